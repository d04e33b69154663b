"""What a leader keeps in the store beside the units: the Governor, and how far it has read the commands."""

import msgspec

from paceline.core import Governor, GovernorSettings, Snapshot
from paceline.engine import command_log as control
from paceline.store import Store, StoredEvent

GOVERNOR_STATE = "governor"
CONTROL_SEEN = "control_seen"
PAGE = 1000
STORE_PLACE_EVERY = 10_000
KEPT_EVENTS = 200_000


def load_governor(store: Store, settings: GovernorSettings, now: float) -> Governor:
    """Limits, pauses, windows and what was learnt; slots are found by looking who still runs."""
    stored = store.load_state(GOVERNOR_STATE)
    if stored is None:
        return Governor(settings, now=now)
    snapshot = msgspec.json.decode(stored, type=Snapshot)
    return Governor.restore(snapshot, now=now, settings=settings, keep_slots=False)


def save_governor(store: Store, governor: Governor) -> None:
    store.save_state(GOVERNOR_STATE, msgspec.json.encode(governor.snapshot()))


class CommandReader:
    """Reads commands once, in order, across restarts. What was read counts once `done` was called.

    Events of our own are no news: those that follow what was read are passed over unread, and the place is
    stored only with commands and now and then, so that a busy engine neither reads nor writes anything for it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored = int(store.load_state(CONTROL_SEEN) or b"0")
        self._seen = self._read = self._stored
        self._has_commands = False

    def read(self) -> list[StoredEvent]:
        commands: list[StoredEvent] = []
        self._read = self._seen
        while events := self._store.events(after=self._read, limit=PAGE):
            self._read = events[-1].id
            commands += [event for event in events if event.event.name.startswith(control.PREFIX)]
            if len(events) < PAGE:
                break
        self._has_commands = bool(commands)
        return commands

    def done(self) -> None:
        """They were carried out, and what they changed is stored."""
        self._seen = self._read
        if self._has_commands or self._seen - self._stored >= STORE_PLACE_EVERY:
            self.save()

    def wrote(self, last_id: int, count: int) -> None:
        """We appended `count` events up to `last_id`."""
        if self._read == self._seen == last_id - count:
            self._read = self._seen = last_id

    def save(self) -> None:
        """Remember the place, and forget what is older than anybody looks."""
        if self._seen > self._stored:
            self._store.save_state(CONTROL_SEEN, str(self._seen).encode())
            self._store.trim_events(keep=KEPT_EVENTS)
            self._stored = self._seen
            self._has_commands = False
