"""The events of a unit's attempts, and the listeners that are called when events were stored."""

import logging
from collections.abc import Callable

from paceline.core.unit_lifecycle import Transition
from paceline.events import Event
from paceline.store import Campaign, OutcomeRecord, Unit

log = logging.getLogger("paceline.engine")

OTHERS_FIRST = " (other units go first, until one has ended well)"


class Listeners:
    """Functions that are called whenever events were stored. One that fails is logged; the others are still called."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], object]] = []

    def add(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """Add a listener. Returns a function that removes it."""
        self._listeners.append(on_stored)
        return lambda: self._listeners.remove(on_stored)

    def notify(self) -> None:
        for on_stored in list(self._listeners):
            try:
                on_stored()
            except Exception:
                log.exception("a listener failed")


def start_event(unit: Unit, scope: str, now: float) -> Event:
    """Return the event of an attempt that begins, with the start time that is stored for its unit."""
    name = "unit.resumed" if unit.counters.parks else "unit.started"
    fields: dict[str, object] = {"attempt": unit.attempt_id, "session_id": unit.conversation_id}
    if unit.result.carried.is_restarted:
        fields["restarted"] = True
    return Event(name, now, scope, unit.id, fields)


def pause_event(campaign: Campaign, now: float) -> Event:
    """Return the event of a campaign that pauses itself."""
    return Event("campaign.paused", now, f"campaign:{campaign.name}", None, {"reason": campaign.pause_reason})


def unit_event(record: OutcomeRecord, now: float, *, others_first: bool = False) -> Event:
    """Return the event of an attempt that ended.

    `others_first`: its unit waits until another one of its campaign has ended well, and until `resume_at` at most.
    """
    transition = record.transition
    fields: dict[str, object] = {
        "reason": transition.reason + (OTHERS_FIRST if others_first else ""),
        "resume_at": transition.resume_at,
        "exit_code": transition.exit_code,
        "attempts": transition.counters.failures,
    }
    if record.denials:
        fields["denials"] = record.denials
    if record.warnings:
        fields["warnings"] = list(record.warnings)
    return Event(_event_name(transition), now, None, record.unit_id, fields)


def _event_name(transition: Transition) -> str:
    match transition.step:
        case "succeed":
            return "unit.done"
        case "quarantine":
            return "unit.quarantined"
        case "fail_check":
            return "unit.unverified"
        case "hold":
            return "unit.held"
        case "cancel":
            return "unit.cancelled"
    if transition.ending == "failed":
        return "unit.failed"
    waits_for_a_window = transition.ending == "parked" and transition.resume_at is not None
    return "unit.parked" if waits_for_a_window else "unit.requeued"
