"""What the engine says of a unit when a try is over. Values only."""

from paceline.core.lifecycle import Settlement
from paceline.events import Event
from paceline.store import Settled


def unit_event(record: Settled, now: float) -> Event:
    """The event for people and pages."""
    settlement = record.settlement
    fields: dict[str, object] = {
        "reason": settlement.reason,
        "resume_at": settlement.resume_at,
        "exit_code": settlement.exit_code,
        "attempts": settlement.counters.attempts,
    }
    return Event(_event_name(settlement), now, None, record.unit_id, fields)


def _event_name(settlement: Settlement) -> str:
    match settlement.step:
        case "succeed":
            return "unit.done"
        case "quarantine":
            return "unit.quarantined"
        case "hold":
            return "unit.held"
        case "cancel":
            return "unit.cancelled"
    if settlement.ending == "failed":
        return "unit.failed"
    waits_for_a_window = settlement.ending == "parked" and settlement.resume_at is not None
    return "unit.parked" if waits_for_a_window else "unit.requeued"
