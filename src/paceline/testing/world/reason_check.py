"""The checker of wait reasons. A false reason would hide an idle place."""

import math
from typing import TYPE_CHECKING, get_args

from paceline.core import Deferred
from paceline.core.values.verdicts import Reason
from paceline.testing.world.gates import SLACK
from paceline.testing.world.ledger_check import Waiting

if TYPE_CHECKING:
    from paceline.testing.world.checked_governor import CheckedGovernor

REASONS = frozenset(get_args(Reason))
HELPED_BY_TIME = frozenset({"paused", "cooldown", "usage_gate", "window_closed", "pacing", "reserve", "unreachable"})


def check_reason(checked: "CheckedGovernor", waiting: Waiting, why: Deferred) -> None:
    """Check that a reason is one of the contract, names a scope of the ticket, and agrees with the ledger."""
    ticket = waiting.ticket
    if why.ticket_id != ticket.id or why.reason not in REASONS or not why.detail:
        checked.fail(f"{ticket.id} waits because of {why!r}, which is no answer")
    if why.scope not in ticket.scopes:
        checked.fail(f"{ticket.id} is said to wait for {why.scope}, which is not among its scopes")
    if why.position is None or why.position < 1:
        checked.fail(f"{ticket.id} waits at position {why.position}")
    if why.reason in HELPED_BY_TIME and not _has_prospect(checked, why):
        checked.fail(f"{ticket.id} waits for time to pass ({why.reason}) and nothing will wake it: {why!r}")
    if not _is_backed(checked, waiting, why):
        checked.fail(f"{ticket.id} waits because of {why.reason} in {why.scope} ({why.detail}), which is not so")


def _has_prospect(checked: "CheckedGovernor", why: Deferred) -> bool:
    """Return whether the Governor will decide again, not later than it said. A usage reading may come at any time."""
    wakeup = checked.governor.next_wakeup()
    if wakeup is None or why.retry_at is None or why.reason == "usage_gate":
        return wakeup is not None
    return math.isfinite(why.retry_at) and wakeup <= why.retry_at + SLACK


def _is_backed(checked: "CheckedGovernor", waiting: Waiting, why: Deferred) -> bool:
    status = checked.governor.status(why.scope, now=checked.wall)
    match why.reason:
        case "limit" | "platform_limit":
            return lacks_room(checked, waiting, why.scope) or may_be_kept(checked, waiting)
        case "cooldown":
            return status is not None and status.cooling > 0
        case "paused" | "unreachable":
            return status is not None and status.paused
        case "window_closed":
            return status is not None and status.window is not None
        case "usage_gate":
            return why.scope in checked.gates.usage
        case "held":
            return why.scope in checked.gates.held
        case "queue_order":
            has_room = not any(lacks_room(checked, waiting, scope) for scope in waiting.ticket.scopes)
            return has_room and may_be_kept(checked, waiting)
        case _:
            return True


def lacks_room(checked: "CheckedGovernor", waiting: Waiting, scope: str) -> bool:
    """Return whether the scope is full for this ticket. A run in its session waits only if that is excess."""
    limit = checked.limit_of(scope)
    if limit is None:
        return False
    if not checked.expected.places_needed(waiting.ticket, scope):
        return checked.expected.is_excess(waiting.ticket.parent, scope, limit)
    occupied = checked.expected.occupied()[scope]
    return occupied >= limit or occupied + checked.cooling_in(scope) >= limit


def may_be_kept(checked: "CheckedGovernor", waiting: Waiting) -> bool:
    """Return whether a place may be kept for another ticket that shares a scope and has waited for `ageing`."""
    overdue_since = checked.elapsed - checked.settings.ageing + SLACK
    return any(
        other.enqueued_at <= overdue_since
        and other is not waiting
        and set(other.ticket.scopes) & set(waiting.ticket.scopes)
        for other in checked.expected.waiting.values()
    )
