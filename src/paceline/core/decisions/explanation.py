"""Why a ticket waits, in words and numbers.

The scope that binds is found in the order of deciding: gates, then room, then usage. So the gate that is named is
the one that refused. Library, CLI, API and page say the same. Nothing is decided here.
"""

from functools import lru_cache

from paceline.core.decisions.admission import is_excess
from paceline.core.gates.gate import Explanation, Gate
from paceline.core.gates.quota_window import QuotaGate
from paceline.core.state.lane import Lane
from paceline.core.state.ledger import Ledger
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.state.scope import Scope
from paceline.core.values.scopes import is_unnamed_model
from paceline.core.values.tickets import Deferred, Reason, Ticket

Refusal = tuple[Scope, Reason, Gate | None]


def deferred(
    ledger: Ledger, lane: Lane, ticket: Ticket, position: int | None, refusing: Scope | None = None
) -> Deferred:
    """Return why the ticket waits now. `refusing` is the scope that refuses it, if the caller has just found it."""
    gate: Gate | None = None
    if refusing is not None and refusing.live >= refusing.cap and _only_room_counts(lane, refusing):
        scope, reason = refusing, refusing.room_reason() or "limit"  # the usual case, made cheap
    else:
        scope, reason, gate = _binding(ledger, lane, ticket)
    found = _explain_room(scope, reason, ledger.now) if gate is None else gate.explain(ticket, scope, ledger.now)
    return Deferred(ticket.id, reason, scope.name, found.detail, found.retry_at, position)


def _only_room_counts(lane: Lane, scope: Scope) -> bool:
    """Return whether no gate of the scope can refuse the lane's tickets, and none of them shares a place."""
    if scope.is_gated or lane.parent is not None:
        return False
    return not lane.is_spread or not scope.gates.in_order


def _binding(ledger: Ledger, lane: Lane, ticket: Ticket) -> Refusal:
    """Return the narrowest scope that refuses, and what does so there. Order binds only where nothing else does."""
    kept = None
    for scope in lane.checks:
        reason, gate = _refusal(ledger, lane, ticket, scope)
        if reason == "queue_order":
            kept = kept or scope
        elif reason is not None:
            return _last_to_open(lane, ticket, ledger.now) if isinstance(gate, QuotaGate) else (scope, reason, gate)
    return kept or lane.checks[0], "queue_order", None


def _last_to_open(lane: Lane, ticket: Ticket, now: float) -> Refusal:
    """Return the windows that refuse longest, in whichever scope: the ticket waits for the last of them."""
    found: list[tuple[float, Refusal]] = []
    for scope in lane.checks:
        gate = scope.gates.get(QuotaGate)
        reason = gate.refuses(ticket, scope, now) if gate is not None else None
        if gate is not None and reason is not None:
            found.append((gate.explain(ticket, scope, now).retry_at or 0.0, (scope, reason, gate)))
    return max(found, key=lambda each: each[0])[1]


def _refusal(ledger: Ledger, lane: Lane, ticket: Ticket, scope: Scope) -> tuple[Reason | None, Gate | None]:
    session = lane.parent
    covered = session is not None and session.covers(scope)
    if session is not None and covered and is_excess(ledger, scope, session):
        return "limit", None  # a gate opens by itself, an excess lasts until a session ends
    refusal = scope.gates.refusal(ticket, scope, ledger.now)
    if refusal is not None:
        return refusal[1], refusal[0]
    own_claims = sum([waiter.ticket is ticket for waiter in ledger.place_claims]) if ledger.place_claims else 0
    return scope.refuses(ticket, ledger.now, needs_room=not covered, own_claims=own_claims), None


def _explain_room(scope: Scope, reason: Reason, now: float) -> Explanation:
    """Explain a refusal for lack of room, by the provider's own count, or by the order."""
    if reason == "cooldown":
        cooling = len(scope.cooling)
        numbers = f"{scope.live} live and {cooling} cooling down of {scope.cap}"
        return Explanation(f"{scope.name} has {numbers}", scope.cooling[0] if cooling else None)
    if reason == "queue_order":
        return Explanation(f"others are ahead of it in the queue for {scope.name}")
    if reason == "usage_gate" and scope.usage is not None:
        cap = "no limit" if scope.cap == UNLIMITED else str(scope.cap)
        return scope.usage.explain(scope.name, cap, now)
    return _explain_full(scope.name, reason, scope.live, scope.cap)


@lru_cache(maxsize=1024)
def _explain_full(scope: str, reason: Reason, live: int, cap: int) -> Explanation:
    numbers = f"({live}/{cap})"
    parts = scope.split("/")
    what = "platform limit" if reason == "platform_limit" else "cap" if len(parts) == 3 else "limit"
    if is_unnamed_model(scope) and what == "cap":
        return Explanation(f"the strictest model cap {numbers} on {parts[1]} is reached; no model was named")
    if len(parts) == 3:
        return Explanation(f"{parts[2]} at its {what} {numbers} on {parts[1]}")
    return Explanation(f"{scope} at its {what} {numbers}")
