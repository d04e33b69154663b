"""Steering an engine from another process: every command is an event in the store, read in order by the leader."""

from collections.abc import Sequence

from paceline.core import Governor
from paceline.errors import PacelineError
from paceline.events import Event
from paceline.store import Store, StoredEvent

PREFIX = "control."


def send(store: Store, command: str, *, now: float, scope: str | None = None, **fields: object) -> None:
    """Leave a command for the engine that leads, or the next one."""
    store.append_events([event_of(command, now=now, scope=scope, **fields)])


def event_of(command: str, *, now: float, scope: str | None = None, **fields: object) -> Event:
    return Event(PREFIX + command, now, scope, None, fields)


def carry_out(governor: Governor, commands: Sequence[StoredEvent], now: float) -> list[str]:
    """What could not be done comes back in words."""
    troubles = []
    for command in commands:
        try:
            _carry_out(governor, command.event, now)
        except PacelineError as error:
            troubles.append(f"{command.event.name}: {error}")
    return troubles


def _carry_out(governor: Governor, event: Event, now: float) -> None:
    scope = event.scope or ""
    match event.name.removeprefix(PREFIX), event.fields:
        case "limit", {"limit": int() | None as limit}:
            governor.set_limit(scope, limit, now=now)
        case "remove", _:
            governor.remove_limit(scope, now=now)
        case "cooldown", {"seconds": float() | int() | "auto" as cooldown}:
            governor.set_cooldown(scope, cooldown, now=now)
        case "reset", _:
            governor.reset_limit(scope, now=now)
        case "restore", _:
            governor.restore_limit(scope, now=now)
        case "lift", _:
            governor.lift_hold(scope, now=now)
