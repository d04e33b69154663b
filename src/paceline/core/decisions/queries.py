"""Answers about the state as it is: why a ticket waits, how many wait, what a slot is. Nothing is decided here."""

from collections import Counter

from paceline.core.decisions.admission import is_excess
from paceline.core.decisions.explanation import deferred
from paceline.core.decisions.scope_view import scope_status
from paceline.core.decisions.time_effects import move_to
from paceline.core.gates.quota_gate import QuotaGate
from paceline.core.state.ledger import Ledger
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.status import ScopeStatus
from paceline.core.values.verdicts import Deferred, Reason


def explain_waiter(ledger: Ledger, ticket_id: str, now: float) -> Deferred | None:
    """Return why a ticket waits, with its position; None if it does not wait."""
    move_to(ledger, now)
    waiter = ledger.waiters.get(ticket_id)
    if waiter is None:
        return None
    lane, position = waiter.lane, 1
    if waiter is not lane.head:
        position += sum((other.key, other.seq) < (waiter.key, waiter.seq) for other in lane.waiters())
    return deferred(ledger, lane, waiter.ticket, position)


def count_waiting(ledger: Ledger, now: float) -> Counter[tuple[str, Reason]]:
    """Count waiting tickets by the scope and the reason that bind the first of their lane."""
    move_to(ledger, now)
    found: Counter[tuple[str, Reason]] = Counter()
    for lane in dict.fromkeys(waiter.lane for waiter in ledger.waiters.values()):
        verdict = deferred(ledger, lane, lane.head.ticket, None)
        found[verdict.scope, verdict.reason] += lane.size
    return found


def is_canary(ledger: Ledger, ticket_id: str) -> bool:
    """Return whether the ticket is the canary of a closed window."""
    slot = ledger.slots.get(ticket_id)
    for scope in slot.lane.scopes if slot is not None else ():
        for gate in scope.gates.in_order:
            if gate.has_canary(ticket_id):
                return True
    return False


def has_excess_slot(ledger: Ledger, ticket_id: str, now: float) -> bool:
    """Return whether the slot is among the youngest of a scope that are too many since its limit fell."""
    move_to(ledger, now)
    slot = ledger.slots.get(ticket_id)
    return slot is not None and any(is_excess(ledger, scope, slot) for scope in slot.lane.scopes)


def find_status(ledger: Ledger, scope: str, now: float | None) -> ScopeStatus | None:
    """Return the status of the scope, or None if nothing was ever set, requested or learnt there."""
    if now is not None:
        move_to(ledger, now)
    state = ledger.scopes.by_name.get(canonical_scope(scope))
    return scope_status(state, ledger.now) if state is not None else None


def count_demand(ledger: Ledger, scope: str) -> tuple[int, int | None]:
    """Return how many places of the scope are taken, cooling or waited for, and its effective limit."""
    state = ledger.scopes.by_name.get(canonical_scope(scope))
    if state is None:
        return 0, None
    return state.used + state.waiting, None if state.cap == UNLIMITED else state.cap


def list_statuses(ledger: Ledger, now: float | None) -> list[ScopeStatus]:
    """Return the status of every scope."""
    if now is not None:
        move_to(ledger, now)
    return [scope_status(state, ledger.now) for state in list(ledger.scopes.by_name.values())]


def reserve_reached(ledger: Ledger, ticket_id: str, now: float) -> tuple[str, float] | None:
    """Return the window whose reserve the slot now uses, and its reset."""
    move_to(ledger, now)
    slot = ledger.slots.get(ticket_id)
    for scope in slot.lane.scopes if slot is not None else ():
        quota = scope.gates.get(QuotaGate)
        held = quota.reserve_reached(scope, ledger.now) if quota is not None else None
        if held is not None:
            return held.window.name, held.until
    return None
