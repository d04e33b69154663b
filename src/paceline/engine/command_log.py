"""The log of commands to an engine: each is an event in the store, which the leader reads once, in order.

Every command carries as `by` who gives it. A command at a terminal and an HTTP request each name that once, before
anything else happens, so that no command needs to pass it on. What an engine does by itself has no author.
"""

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from paceline.core import Governor
from paceline.core.values.settings import Rate
from paceline.errors import StoreDamaged
from paceline.events import Event
from paceline.store import Store, StoredEvent
from paceline.store.rules import COMMAND_EVENTS

_requester: ContextVar[str | None] = ContextVar("requester", default=None)
_person: str | None = None
"""Who started this process as a command. A variable of the process, because its threads act for the same person."""


def current_author() -> str | None:
    """Return who makes the change that is being stored: `alice@box1 (cli)`, `alice@box1 (token)` or `... (page)`."""
    return _requester.get() or _person


def signature() -> dict[str, object]:
    """Return the field of an event that says who made the change; nothing for what an engine does by itself."""
    author = _requester.get() or _person
    return {} if author is None else {"by": author}


@contextlib.contextmanager
def requested_by(author: str) -> Iterator[None]:
    """Name the author of everything that is stored in the block by this task."""
    before = _requester.set(author)
    try:
        yield
    finally:
        _requester.reset(before)


@contextlib.contextmanager
def commanded_by(author: str) -> Iterator[None]:
    """Name the author of everything that this process stores in the block, unless a request names another."""
    global _person
    before, _person = _person, author
    try:
        yield
    finally:
        _person = before


def person() -> str:
    """Return the user of this process and its machine: `alice@box1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no entry in the user database, as in a container
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


PREFIX = "control."
SLOT_COMMANDS = "slot_"
"""How the names of commands begin by which programs use capacity."""
END_AT_TURN = "end_at_turn"
CONTROL_SEEN = "control_seen"
PAGE = 1000
"""Events per read: few enough for little memory, many enough that a backlog takes few reads."""
STORE_POSITION_EVERY = 10_000
"""Own events between two writes of the position. After a crash the leader reads at most so many again."""
KEPT_EVENTS = 200_000
"""Events that stay in the store: more is a longer history for pages and logs, fewer a smaller database."""
KEPT_SLOT_EVENTS = 20_000
"""Events about slots of programs that stay: minutes of a busy gateway, so that they do not push out the units'."""


def send(store: Store, command: str, *, now: float, scope: str | None = None, **fields: object) -> None:
    """Store a command for the leading engine, or for the next one."""
    store.append_events([event_of(command, now=now, scope=scope, **fields)])


def event_of(command: str, *, now: float, scope: str | None = None, **fields: object) -> Event:
    """Return a command as an event, with who gives it. Slots are not changes, and their requests have no author."""
    is_signed = not command.startswith(SLOT_COMMANDS)
    return Event(PREFIX + command, now, scope, None, fields | signature() if is_signed else fields)


def is_change(event: Event) -> bool:
    """Return whether the event is a command by which a person or a program changed something."""
    return event.name.startswith(COMMAND_EVENTS) and not event.name.startswith(PREFIX + SLOT_COMMANDS)


def prune_history(store: Store, *, before: float, limit: int) -> int:
    """Delete at most `limit` events from before that time. Returns how many. Commands that nobody has read yet stay."""
    return store.trim_events(before=before, through=stored_number(store, CONTROL_SEEN), limit=limit)


def carry_out(governor: Governor, event: Event, now: float) -> None:
    """Apply a command to the Governor, if it is one of its own."""
    scope = event.scope or ""
    match event.name.removeprefix(PREFIX), event.fields:
        case "limit", {"limit": int() | None as limit}:
            governor.set_limit(scope, limit, now=now)
        case "remove", _:
            governor.remove_limit(scope, now=now)
        case "cooldown", {"seconds": float() | int() | "auto" as cooldown}:
            governor.set_cooldown(scope, cooldown, now=now)
        case "rate", {"rpm": int() | None as rpm, "tpm": int() | None as tpm}:
            governor.set_rate(scope, Rate(rpm=rpm, tpm=tpm), now=now)
        case "reset_rate", _:
            governor.set_rate(scope, None, now=now)
        case "reset", _:
            governor.reset_limit(scope, now=now)
        case "restore", _:
            governor.restore_limit(scope, now=now)
        case "lift", _:
            governor.lift_hold(scope, now=now)
        case "key.created" | "key.revoked", fields:
            apply_key(governor, scope, fields, now)


def apply_key(governor: Governor, scope: str, fields: Mapping[str, object], now: float) -> None:
    """Give the scope of a key its limit and its rate, or forget those of an earlier key of that name."""
    match fields.get("parallel"):
        case int() as parallel:
            governor.set_limit(scope, parallel, now=now)
        case _:
            governor.reset_limit(scope, now=now)
    rpm, tpm = (value if isinstance(value := fields.get(name), int) else None for name in ("rpm", "tpm"))
    governor.set_rate(scope, None if rpm is None and tpm is None else Rate(rpm=rpm, tpm=tpm), now=now)


class CommandReader:
    """Reads commands once, in order, across restarts. They count as read once `done` was called.

    The engine's own events are skipped without reading them. The position is stored with commands and now and then
    besides, so that a busy engine neither reads nor writes anything for it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored = stored_number(store, CONTROL_SEEN)
        self.position = self._read = self._stored
        """The id of the last event that was handled."""
        self._has_commands = False

    def read(self) -> list[StoredEvent]:
        """Return the commands since the last `done`."""
        commands: list[StoredEvent] = []
        self._read = self.position
        while events := self._store.events(after=self._read, limit=PAGE):
            self._read = events[-1].id
            commands += [event for event in events if event.event.name.startswith(COMMAND_EVENTS)]
            if len(events) < PAGE:
                break
        self._has_commands = bool(commands)
        return commands

    def done(self) -> None:
        """Move past the commands that were read: they were carried out, and what they changed is stored."""
        self.position = self._read
        if self._has_commands or self.position - self._stored >= STORE_POSITION_EVERY:
            self.save()

    def skip_own(self, last_id: int, count: int) -> None:
        """Skip `count` events up to `last_id` that this engine appended, if no other process wrote between them."""
        if self._read == self.position == last_id - count:
            self._read = self.position = last_id

    def save(self) -> None:
        """Store the position, and drop the oldest events."""
        if self.position > self._stored:
            self._store.save_state(CONTROL_SEEN, str(self.position).encode())
            self._store.trim_events(keep=KEPT_EVENTS, keep_slots=KEPT_SLOT_EVENTS)
            self._stored = self.position
            self._has_commands = False


def stored_number(store: Store, key: str) -> int:
    """Return the number saved under the key, or 0."""
    value = store.load_state(key) or b"0"
    if not value.isdigit():
        raise StoreDamaged(
            f"the value of {key!r} in the store is damaged ({value[:40]!r}): restore a copy of the store"
        )
    return int(value)
