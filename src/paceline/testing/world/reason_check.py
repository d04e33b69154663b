"""Is the reason a waiting ticket is given a true one? A false one would hide an idle place."""

import math
from typing import TYPE_CHECKING, get_args

from paceline.core import Deferred
from paceline.core.values.verdicts import Reason
from paceline.testing.world.gates import SLACK
from paceline.testing.world.ledger_check import Waiting

if TYPE_CHECKING:
    from paceline.testing.world.checked_governor import CheckedGovernor

REASONS = frozenset(get_args(Reason))
HELPED_BY_TIME = frozenset({"paused", "cooldown", "usage_gate", "window_closed", "pacing", "reserve"})


def check_reason(watched: "CheckedGovernor", waiting: Waiting, why: Deferred) -> None:
    """The reason is one of the contract's, about one of the ticket's scopes, backed by what can be seen."""
    ticket = waiting.ticket
    if why.ticket_id != ticket.id or why.reason not in REASONS or not why.detail:
        watched.fail(f"{ticket.id} waits because of {why!r}, which is no answer")
    if why.scope not in ticket.scopes:
        watched.fail(f"{ticket.id} is said to wait for {why.scope}, which is not among its scopes")
    if why.position is None or why.position < 1:
        watched.fail(f"{ticket.id} waits at position {why.position}")
    if why.reason in HELPED_BY_TIME and not _has_prospect(watched, why):
        watched.fail(f"{ticket.id} waits for time to pass ({why.reason}) and nothing will wake it: {why!r}")
    if not _is_backed(watched, waiting, why):
        watched.fail(f"{ticket.id} waits because of {why.reason} in {why.scope} ({why.detail}), which is not so")


def _has_prospect(watched: "CheckedGovernor", why: Deferred) -> bool:
    """Someone will look again, and no later than was said; a usage answer may come at any time."""
    wakeup = watched.governor.next_wakeup()
    if wakeup is None or why.retry_at is None or why.reason == "usage_gate":
        return wakeup is not None
    return math.isfinite(why.retry_at) and wakeup <= why.retry_at + SLACK


def _is_backed(watched: "CheckedGovernor", waiting: Waiting, why: Deferred) -> bool:
    status = watched.governor.status(why.scope, now=watched.wall)
    match why.reason:
        case "limit" | "platform_limit":
            return lacks_room(watched, waiting, why.scope) or may_be_kept(watched, waiting)
        case "cooldown":
            return status is not None and status.cooling > 0
        case "paused":
            return status is not None and status.paused
        case "window_closed":
            return status is not None and status.window is not None
        case "usage_gate":
            return why.scope in watched.gates.usage
        case "held":
            return why.scope in watched.gates.held
        case "queue_order":
            has_room = not any(lacks_room(watched, waiting, scope) for scope in waiting.ticket.scopes)
            return has_room and may_be_kept(watched, waiting)
        case _:
            return True


def lacks_room(watched: "CheckedGovernor", waiting: Waiting, scope: str) -> bool:
    """Whether the scope is full for this ticket; a run in its session's place waits only if the session is too much."""
    limit = watched.limit_of(scope)
    if limit is None:
        return False
    if not watched.books.places_needed(waiting.ticket, scope):
        return watched.books.is_excess(waiting.ticket.parent, scope, limit)
    occupied = watched.books.occupied()[scope]
    return occupied >= limit or occupied + watched.cooling_in(scope) >= limit


def may_be_kept(watched: "CheckedGovernor", waiting: Waiting) -> bool:
    """Whether a place may be kept for someone else: a ticket in a common scope that has waited beyond `ageing`."""
    overdue_since = watched.elapsed - watched.settings.ageing + SLACK
    return any(
        other.enqueued_at <= overdue_since
        and other is not waiting
        and set(other.ticket.scopes) & set(waiting.ticket.scopes)
        for other in watched.books.waiting.values()
    )
