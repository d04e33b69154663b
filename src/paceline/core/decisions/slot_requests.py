"""What a caller does with a ticket beside `request` and `release`: try, adopt, cancel, abandon, renew."""

from collections.abc import Sequence

from paceline.core.decisions.admission import admit_ready, blocker, dequeue, enqueue
from paceline.core.decisions.explanation import deferred, explain_waiter
from paceline.core.decisions.slot_outcome import add_tokens, on_canary_lost, on_success
from paceline.core.decisions.time_effects import move_to
from paceline.core.state.lane import LiveSlot
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.tickets import Ticket, check_ticket
from paceline.core.values.verdicts import Granted, Verdict
from paceline.errors import TicketConflict


def check_request(ledger: Ledger, ticket: Ticket) -> None:
    """Raise an error if the ticket is invalid. Nothing is changed."""
    check_ticket(ticket)
    ledger.lanes.lane(ticket, ledger.now)


def request_all(ledger: Ledger, tickets: Sequence[Ticket], now: float) -> None:
    """Enqueue several tickets together, so that the order rule, not the order of the calls, decides which enter."""
    move_to(ledger, now)
    for ticket in tickets:
        check_request(ledger, ticket)
        _check_unused(ledger, ticket)
    if len({ticket.id for ticket in tickets}) < len(tickets):
        raise TicketConflict("two of these tickets have the same id; choose another id")
    asked = []
    for ticket in tickets:
        lane = ledger.lanes.lane(ticket, ledger.now)  # looked up just before use, because empty lanes may be dropped
        enqueue(ledger, lane, ticket, lane.watching or lane.checks[0])
        asked.append(lane)
    admit_ready(ledger, [*dict.fromkeys(scope for lane in dict.fromkeys(asked) for scope in lane.scopes)])


def adopt_slot(ledger: Ledger, ticket: Ticket, now: float) -> Granted:
    """Count a slot that its holder already has, whatever the limits are. No gate is notified."""
    move_to(ledger, now)
    _check_unused(ledger, ticket)
    return ledger.adopt(ledger.lanes.accepted_lane(ticket, ledger.now), ticket)


def _check_unused(ledger: Ledger, ticket: Ticket) -> None:
    if ticket.id in ledger.slots or ticket.id in ledger.waiters:
        raise TicketConflict(f"ticket id {ticket.id!r} is in use; choose another id")


def try_request(ledger: Ledger, ticket: Ticket, now: float) -> Verdict:
    """Grant the ticket now, or return why not. The ticket does not wait."""
    move_to(ledger, now)
    if ticket.since is not None or ticket.tokens is not None or ticket.weight is not None:
        check_ticket(ticket)
    lane = ledger.lanes.lane(ticket, ledger.now)
    if ticket.id in ledger.slots or ticket.id in ledger.waiters:
        return standing_verdict(ledger, ticket)
    if not lane.size and blocker(ledger, lane, ticket) is None:
        return ledger.enter(lane, ticket, 0.0)
    return deferred(ledger, lane, ticket, None)


def standing_verdict(ledger: Ledger, ticket: Ticket) -> Verdict:
    """Return the present answer to a ticket that is requested again."""
    slot = ledger.slots.get(ticket.id)
    known = slot.ticket if slot is not None else ledger.waiters[ticket.id].ticket
    if known != ticket:
        raise TicketConflict(f"ticket id {ticket.id!r} is in use for another ticket; choose another id")
    if slot is not None:
        return Granted(ticket.id, slot.token, slot.granted_at, 0.0, slot.expires_at)
    verdict = explain_waiter(ledger, ticket.id, ledger.now)
    assert verdict is not None
    return verdict


def leave_queue(ledger: Ledger, ticket_id: str, now: float) -> None:
    """Leave the queue. No-op for a ticket that does not wait."""
    move_to(ledger, now)
    waiter = ledger.waiters.get(ticket_id)
    if waiter is not None and dequeue(ledger, waiter):
        admit_ready(ledger, list(waiter.lane.scopes))


def on_release(ledger: Ledger, slot: LiveSlot, hot: list[Scope]) -> None:
    """Learn from the end of a slot, and grant its places to waiters. `hot` are the scopes that changed."""
    if slot.reported:
        hot += on_canary_lost(ledger, slot)
    elif any(scope.learns for scope in hot):
        hot += on_success(ledger, slot.lane.scopes, slot)
    admit_ready(ledger, hot)


def mark_abandoned(ledger: Ledger, ticket_id: str, now: float) -> None:
    """Remove a waiting ticket from the queue, or mark a slot so that nothing is learnt from its end."""
    leave_queue(ledger, ticket_id, now)
    slot = ledger.slots.get(ticket_id)
    if slot is not None:
        slot.reported = True


def renew_lease(ledger: Ledger, ticket_id: str, now: float) -> bool:
    """Extend the lease. Returns False if it is already lost."""
    move_to(ledger, now)
    slot = ledger.slots.get(ticket_id)
    if slot is None or slot.reclaim_at is not None:
        return False
    slot.expires_at = ledger.now + ledger.settings.slot_timeout if slot.ticket.leased else None
    return True


def count_tokens(ledger: Ledger, ticket_id: str, tokens: int, now: float) -> None:
    """Add tokens used by a live slot. No-op for unknown tickets."""
    move_to(ledger, now)
    if (slot := ledger.slots.get(ticket_id)) is not None:
        add_tokens(slot.lane.scopes, slot, tokens)
