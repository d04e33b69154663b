"""What the engine says of a unit when a try begins and ends, and to whom: those who want to know that there is news."""

import logging
from collections.abc import Callable

from paceline.core import Deferred
from paceline.core.unit_lifecycle import Transition
from paceline.events import Event
from paceline.store import OutcomeRecord, Unit

log = logging.getLogger("paceline.engine")

PACE_TOLD_SECONDS = 60.0

Gist = tuple[str, str, float | None]


class Listeners:
    """Called whenever events were stored. One that fails is told of, and stops nobody."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], object]] = []

    def add(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """The answer takes it out again."""
        self._listeners.append(on_stored)
        return lambda: self._listeners.remove(on_stored)

    def tell(self) -> None:
        for on_stored in list(self._listeners):
            try:
                on_stored()
            except Exception:
                log.exception("a listener failed")


def gist_of(reason: Deferred) -> Gist:
    """What is worth telling anew. The time at which the line of a window is reached moves with every second of use."""
    at = reason.retry_at
    if at is not None and reason.reason == "pacing":
        at = at // PACE_TOLD_SECONDS * PACE_TOLD_SECONDS
    return reason.reason, reason.scope, at


def start_event(unit: Unit, scope: str, now: float) -> Event:
    """A try begins, at the very time that is stored with its unit."""
    name = "unit.resumed" if unit.counters.parks else "unit.started"
    return Event(name, now, scope, unit.id, {"attempt": unit.attempt_id, "session_id": unit.conversation_id})


def unit_event(record: OutcomeRecord, now: float) -> Event:
    """The event for people and pages."""
    transition = record.transition
    fields: dict[str, object] = {
        "reason": transition.reason,
        "resume_at": transition.resume_at,
        "exit_code": transition.exit_code,
        "attempts": transition.counters.failures,
    }
    return Event(_event_name(transition), now, None, record.unit_id, fields)


def _event_name(transition: Transition) -> str:
    match transition.step:
        case "succeed":
            return "unit.done"
        case "quarantine":
            return "unit.quarantined"
        case "hold":
            return "unit.held"
        case "cancel":
            return "unit.cancelled"
    if transition.ending == "failed":
        return "unit.failed"
    waits_for_a_window = transition.ending == "parked" and transition.resume_at is not None
    return "unit.parked" if waits_for_a_window else "unit.requeued"
