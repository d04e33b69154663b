"""The one object that answers "may this start now?". The only mutable object of the core.

Time comes in as an argument; verdicts and effects come out as values. Every shell (asyncio
limiter, engine, gateway, simulator) drives the same methods:

    verdict = governor.request(ticket, now=t)    # Granted, or Deferred and waiting in line
    governor.release(ticket.id, now=t)           # places go to those in line, in order
    governor.report(scope, signal, now=t)        # what was learnt about the provider
    for effect in governor.advance(now=t): ...   # Granted, Expired, PollUsage, Event
    governor.next_wakeup()                       # call advance again by then
"""

import math
from collections import Counter
from collections.abc import Sequence

from paceline.core.decisions.admission import blocker, dequeue, enqueue, settle
from paceline.core.decisions.commands import Steering
from paceline.core.decisions.explanation import deferred
from paceline.core.decisions.reactions import apply_signal, count_tokens, on_canary_lost, on_success
from paceline.core.decisions.time_effects import move_to
from paceline.core.signals import Signal
from paceline.core.state import snapshot as snapshots
from paceline.core.state.ledger import Books
from paceline.core.state.scope import ScopeState
from paceline.core.state.snapshot import Snapshot
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.settings import GovernorSettings
from paceline.core.values.status import ScopeStatus, scope_status
from paceline.core.values.tickets import Ticket, check_ticket
from paceline.core.values.verdicts import Agenda, Deferred, Effect, Granted, Reason, Verdict
from paceline.errors import TicketConflict


class Governor(Steering):
    """Admits tickets to scopes. Not thread-safe; never waits; never reads a clock."""

    def __init__(self, settings: GovernorSettings | None = None, *, now: float) -> None:
        self.books = Books(settings or GovernorSettings(), now)

    # -- tickets -----------------------------------------------------------------------------

    def request(self, ticket: Ticket, *, now: float) -> Verdict:
        """Enter now, or wait in line. Asking again with the same ticket gives the standing answer."""
        books = self.books
        if books.now <= now < books.next_due:  # as `move_to`, without the call: requests and releases are hot
            books.now = now
        else:
            move_to(books, now)
        if ticket.since is not None or ticket.tokens is not None:
            check_ticket(ticket)
        lane = books.lanes.get(
            (ticket.scopes, ticket.group, ticket.priority, ticket.parent, ticket.spread)
        ) or books.lane(ticket)
        if ticket.id in books.slots or ticket.id in books.waiters:
            return self._standing(ticket)
        refusing = None
        if not lane.size:
            refusing = blocker(books, lane, ticket)
            if refusing is None:
                return books.enter(lane, ticket, 0.0)
        enqueue(books, lane, ticket, refusing)
        return deferred(books, lane, ticket, lane.size, refusing)

    def request_all(self, tickets: Sequence[Ticket], *, now: float) -> None:
        """Put several in line at once, so that the order rule, not the order of asking, says who enters first.

        Grants come as effects.
        """
        move_to(self.books, now)
        for ticket in tickets:
            self.check(ticket)
            if ticket.id in self.books.slots or ticket.id in self.books.waiters:
                raise TicketConflict(f"ticket id {ticket.id!r} is in use; choose another id")
        if len({ticket.id for ticket in tickets}) < len(tickets):
            raise TicketConflict("two of these tickets have the same id; choose another id")
        asked = []
        for ticket in tickets:
            lane = self.books.lane(ticket)  # found just before it is used: an empty one may be tidied away
            enqueue(self.books, lane, ticket, lane.watching or lane.checks[0])
            asked.append(lane)
        settle(self.books, [scope for lane in dict.fromkeys(asked) for scope in lane.scopes])

    def check(self, ticket: Ticket) -> None:
        """Raise what is wrong with the ticket's scopes or priority, if anything is; nothing is changed."""
        check_ticket(ticket)
        self.books.lane(ticket)

    def adopt(self, ticket: Ticket, *, now: float) -> Granted:
        """Count a slot that is held already, whatever the limits say: its holder was found after a restart."""
        move_to(self.books, now)
        if ticket.id in self.books.slots or ticket.id in self.books.waiters:
            raise TicketConflict(f"ticket id {ticket.id!r} is in use; choose another id")
        return self.books.enter(self.books.lane_as_accepted(ticket), ticket, 0.0)

    def try_request(self, ticket: Ticket, *, now: float) -> Verdict:
        """Enter now or not at all."""
        books = self.books
        move_to(books, now)
        if ticket.since is not None or ticket.tokens is not None:
            check_ticket(ticket)
        lane = books.lane(ticket)
        if ticket.id in books.slots or ticket.id in books.waiters:
            return self._standing(ticket)
        if not lane.size and blocker(books, lane, ticket) is None:
            return books.enter(lane, ticket, 0.0)
        return deferred(books, lane, ticket, None)

    def cancel(self, ticket_id: str, *, now: float) -> None:
        """Leave the line. Does nothing for a ticket that is not in it."""
        move_to(self.books, now)
        waiter = self.books.waiters.get(ticket_id)
        if waiter is not None and dequeue(self.books, waiter):
            settle(self.books, list(waiter.lane.scopes))

    def release(self, ticket_id: str, *, now: float) -> bool:
        """Give the slot back. Without a report before, it went well. Idempotent; whether there was one to give."""
        books = self.books
        if books.now <= now < books.next_due:
            books.now = now
        else:
            move_to(books, now)
        slot = books.slots.get(ticket_id)
        if slot is None:
            return False
        hot: list[ScopeState] = []
        books.leave(slot, hot)
        if hot:
            if slot.reported:
                hot += on_canary_lost(books, slot)
            elif any(scope.learns for scope in hot):
                hot += on_success(books, slot.lane.scopes, slot)
            settle(books, hot)
        return True

    def abandon(self, ticket_id: str, *, now: float) -> bool:
        """Take the ticket out wherever it is, line or slot: nothing is learnt from it. Whether it had a slot."""
        self.cancel(ticket_id, now=now)
        slot = self.books.slots.get(ticket_id)
        if slot is not None:
            slot.reported = True
        return self.release(ticket_id, now=now)

    def renew(self, ticket_id: str, *, now: float) -> bool:
        """Keep the lease. False if it is lost already."""
        move_to(self.books, now)
        slot = self.books.slots.get(ticket_id)
        if slot is None or slot.reclaim_at is not None:
            return False
        slot.expires_at = self.books.now + self.books.settings.slot_timeout if slot.ticket.leased else None
        return True

    def is_held(self, ticket_id: str) -> bool:
        """Whether the ticket has a slot whose lease is not lost."""
        slot = self.books.slots.get(ticket_id)
        return slot is not None and slot.reclaim_at is None

    def ticket_of(self, ticket_id: str) -> Ticket | None:
        """Return the ticket as it was granted while it has a slot, also one whose lease is lost."""
        slot = self.books.slots.get(ticket_id)
        return slot.ticket if slot is not None else None

    def granted_at(self, ticket_id: str) -> float | None:
        """Return when the ticket got its slot; None where it has none."""
        slot = self.books.slots.get(ticket_id)
        return slot.granted_at if slot is not None else None

    def is_canary(self, ticket_id: str) -> bool:
        """Whether the ticket has a slot that is out to try a closed window, so that its first answer is awaited."""
        slot = self.books.slots.get(ticket_id)
        scopes = slot.lane.scopes if slot is not None else ()
        return any(window.canary == ticket_id for scope in scopes for window in scope.windows.values())

    def why(self, ticket_id: str, *, now: float) -> Deferred | None:
        """What holds a waiting ticket, with its place in line."""
        move_to(self.books, now)
        waiter = self.books.waiters.get(ticket_id)
        if waiter is None:
            return None
        position = 1 + sum((other.key, other.seq) < (waiter.key, waiter.seq) for other in waiter.lane.waiters())
        return deferred(self.books, waiter.lane, waiter.ticket, position)

    def _standing(self, ticket: Ticket) -> Verdict:
        slot = self.books.slots.get(ticket.id)
        known = slot.ticket if slot is not None else self.books.waiters[ticket.id].ticket
        if known != ticket:
            raise TicketConflict(f"ticket id {ticket.id!r} is in use for another ticket; choose another id")
        if slot is not None:
            return Granted(ticket.id, slot.token, slot.granted_at, 0.0, slot.expires_at)
        verdict = self.why(ticket.id, now=self.books.now)
        assert verdict is not None
        return verdict

    # -- signals and time --------------------------------------------------------------------

    def report(self, scope: str, signal: Signal, *, now: float, origin: str | None = None) -> None:
        """Report a signal of the provider about a scope.

        A signal carries the ticket it came from, if any. The events that the report makes name `origin` as their unit.
        """
        books = self.books
        move_to(books, now)
        books.origin = origin
        try:
            settle(books, apply_signal(books, scope, signal))
        finally:
            books.origin = None

    def count_tokens(self, ticket_id: str, tokens: int, *, now: float) -> None:
        """The slot has used so many more, and goes on. Does nothing for a ticket that has none."""
        move_to(self.books, now)
        if (slot := self.books.slots.get(ticket_id)) is not None:
            count_tokens(slot.lane.scopes, slot, tokens)

    def advance(self, *, now: float) -> list[Effect]:
        """Let time pass, and hand out everything the caller has to carry out."""
        move_to(self.books, now)
        return self.collect()

    def pass_time(self, *, now: float) -> None:
        """Let what is due happen; its effects wait to be collected."""
        move_to(self.books, now)

    def collect(self) -> list[Effect]:
        """What `advance` would hand out without time passing."""
        effects, self.books.effects = self.books.effects, []
        return effects

    @property
    def agenda(self) -> Agenda:
        """Return what a driver checks after every call. It stays the same object."""
        return self.books

    def next_wakeup(self) -> float | None:
        """When to call `advance` at the latest; None while time alone changes nothing."""
        due = self.books.next_timer()
        self.books.next_due = math.inf if due is None else due
        return due

    # -- looking in --------------------------------------------------------------------------

    def status(self, scope: str, *, now: float) -> ScopeStatus | None:
        """The scope as it is, or None if nothing was ever set, asked or learnt there."""
        move_to(self.books, now)
        state = self.books.scopes.get(canonical_scope(scope))
        return scope_status(state, self.books.now) if state is not None else None

    def statuses(self, *, now: float) -> list[ScopeStatus]:
        move_to(self.books, now)
        return [scope_status(state, self.books.now) for state in self.books.scopes.values()]

    def waiting(self, *, now: float) -> Counter[tuple[str, Reason]]:
        """How many tickets wait, by the scope and the reason that bind the first of their line."""
        move_to(self.books, now)
        found: Counter[tuple[str, Reason]] = Counter()
        for lane in dict.fromkeys(waiter.lane for waiter in self.books.waiters.values()):
            why = deferred(self.books, lane, lane.head.ticket, None)
            found[why.scope, why.reason] += lane.size
        return found

    def reserve_reached(self, ticket_id: str, *, now: float) -> tuple[str, float] | None:
        """The window of which the slot uses the reserve, and its reset: who can go on later should stop."""
        move_to(self.books, now)
        slot = self.books.slots.get(ticket_id)
        for scope in slot.lane.scopes if slot is not None else ():
            if (held := scope.reserve_reached(self.books.now)) is not None:
                return held.window.name, held.until
        return None

    def snapshot(self) -> Snapshot:
        """All of it, as a value that can be stored."""
        return snapshots.take(self.books)

    @classmethod
    def restore(cls, snapshot: Snapshot, *, now: float, settings: GovernorSettings | None = None) -> "Governor":
        """Go on where the snapshot was taken; new `settings` replace the old, what was learnt stays."""
        governor = cls.__new__(cls)
        governor.books = snapshots.rebuild(snapshot, settings)
        move_to(governor.books, now)
        return governor
