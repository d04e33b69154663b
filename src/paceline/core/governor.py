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

from paceline.core import snapshot as snapshots
from paceline.core.admission import blocker, dequeue, enqueue, settle
from paceline.core.books import Books
from paceline.core.checks import check_seconds
from paceline.core.explain import deferred
from paceline.core.limits import LimitSource
from paceline.core.pacing import Pace, Strategy
from paceline.core.reports import apply_signal, hold, on_canary_lost, on_success
from paceline.core.scope_state import ScopeState
from paceline.core.scopes import ScopePattern, canonical_scope
from paceline.core.settings import HEADROOM_MODES, GovernorSettings, HeadroomMode
from paceline.core.signals import Signal
from paceline.core.snapshot import Snapshot
from paceline.core.status import ScopeStatus, scope_status
from paceline.core.tickets import Ticket
from paceline.core.timekeeping import run_due, step_back
from paceline.core.verdicts import Deferred, Effect, Granted, Verdict
from paceline.errors import InvalidInput, TicketConflict

CLOCK_STEP_SECONDS = 1.0


class Governor:
    """Admits tickets to scopes. Not thread-safe; never waits; never reads a clock.

    A shell in a hurry may look at `books.effects` (to collect now) and `books.next_due` (nothing
    happens by time alone before it), and at nothing else there.
    """

    def __init__(self, settings: GovernorSettings | None = None, *, now: float) -> None:
        self.books = Books(settings or GovernorSettings(), now)

    # -- tickets -----------------------------------------------------------------------------

    def request(self, ticket: Ticket, *, now: float) -> Verdict:
        """Enter now, or wait in line. Asking again with the same ticket gives the standing answer."""
        books = self.books
        if books.now <= now < books.next_due:
            books.now = now
        else:
            self._move_to(now)
        lane = books.lanes.get((ticket.scopes, ticket.group, ticket.priority, ticket.parent)) or books.lane(ticket)
        if ticket.id in books.slots or ticket.id in books.waiters:
            return self._standing(ticket)
        refusing = None
        if not lane.size:
            refusing = blocker(books, lane, ticket)
            if refusing is None:
                return books.enter(lane, ticket, 0.0)
        enqueue(books, lane, ticket, refusing)
        return deferred(books, lane, ticket, lane.size, refusing)

    def try_request(self, ticket: Ticket, *, now: float) -> Verdict:
        """Enter now or not at all."""
        books = self.books
        if books.now <= now < books.next_due:
            books.now = now
        else:
            self._move_to(now)
        lane = books.lane(ticket)
        if ticket.id in books.slots or ticket.id in books.waiters:
            return self._standing(ticket)
        if not lane.size and blocker(books, lane, ticket) is None:
            return books.enter(lane, ticket, 0.0)
        return deferred(books, lane, ticket, None)

    def cancel(self, ticket_id: str, *, now: float) -> None:
        """Leave the line. Does nothing for a ticket that is not in it."""
        self._move_to(now)
        waiter = self.books.waiters.get(ticket_id)
        if waiter is not None:
            dequeue(self.books, waiter)
            settle(self.books, list(waiter.lane.scopes))

    def release(self, ticket_id: str, *, now: float) -> None:
        """Give the slot back. Without a report before, it went well. Idempotent."""
        books = self.books
        if books.now <= now < books.next_due:
            books.now = now
        else:
            self._move_to(now)
        slot = books.slots.get(ticket_id)
        if slot is None:
            return
        hot: list[ScopeState] = []
        books.leave(slot, hot)
        if hot:
            hot += on_canary_lost(books, slot) if slot.reported else on_success(books, slot.lane.scopes, slot)
            settle(books, hot)

    def abandon(self, ticket_id: str, *, now: float) -> None:
        """Take the ticket out wherever it is, line or slot: it was never used, so nothing is learnt from it."""
        self.cancel(ticket_id, now=now)
        slot = self.books.slots.get(ticket_id)
        if slot is not None:
            slot.reported = True
            self.release(ticket_id, now=now)

    def renew(self, ticket_id: str, *, now: float) -> bool:
        """Keep the lease. False if it is lost already."""
        self._move_to(now)
        slot = self.books.slots.get(ticket_id)
        if slot is None or slot.reclaim_at is not None:
            return False
        slot.expires_at = self.books.now + self.books.settings.slot_timeout if slot.ticket.leased else None
        return True

    def is_held(self, ticket_id: str) -> bool:
        """Whether the ticket has a slot whose lease is not lost."""
        slot = self.books.slots.get(ticket_id)
        return slot is not None and slot.reclaim_at is None

    def why(self, ticket_id: str, *, now: float) -> Deferred | None:
        """What holds a waiting ticket, with its place in line."""
        self._move_to(now)
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

    def report(self, scope: str, signal: Signal, *, now: float) -> None:
        """Something was learnt about a scope. A signal carries the ticket it came from, if any."""
        self._move_to(now)
        settle(self.books, apply_signal(self.books, scope, signal))

    def advance(self, *, now: float) -> list[Effect]:
        """Let time pass, and hand out everything the caller has to carry out."""
        self._move_to(now)
        return self.collect()

    def pass_time(self, *, now: float) -> None:
        """Let what is due happen; its effects wait to be collected."""
        self._move_to(now)

    def collect(self) -> list[Effect]:
        """What `advance` would hand out without time passing."""
        effects, self.books.effects = self.books.effects, []
        return effects

    def next_wakeup(self) -> float | None:
        """When to call `advance` at the latest; None while time alone changes nothing."""
        due = self.books.next_timer()
        self.books.next_due = math.inf if due is None else due
        return due

    def _move_to(self, now: float) -> None:
        books = self.books
        if now >= books.now:
            books.now = now  # after a jump, what was due on the way happens now: that is when it is seen
            while (due := books.next_timer()) is not None and due <= now:
                settle(books, run_due(books))
            books.next_due = math.inf if due is None else due
        elif now < books.now - CLOCK_STEP_SECONDS:
            step_back(books, books.now - now)

    # -- limits ------------------------------------------------------------------------------

    def set_limit(self, scope: str, limit: int | None, *, now: float) -> None:
        """Set a scope's or pattern's limit by hand; what was learnt there is forgotten."""
        pattern = ScopePattern(scope)
        self._move_to(now)
        self.books.limits.set(pattern.text, limit)
        self._apply_limits(pattern)

    def remove_limit(self, scope: str, *, now: float) -> None:
        """Unlimited from now on: waiters enter, live slots stay counted, pauses stay."""
        pattern = ScopePattern(scope)
        self._move_to(now)
        self.books.limits.remove(pattern.text)
        self._apply_limits(pattern)

    def reset_limit(self, scope: str, *, now: float) -> None:
        """Forget what was set live: the settings rule again."""
        pattern = ScopePattern(scope)
        self._move_to(now)
        self.books.limits.reset_live(pattern.text)
        self._apply_limits(pattern)

    def restore_limit(self, scope: str, *, now: float) -> None:
        """Back to the configured limit: forget what was learnt."""
        pattern = ScopePattern(scope)
        self._move_to(now)
        self._apply_limits(pattern)

    def get_limit(self, scope: str) -> int | None:
        """The configured limit of a scope, or of a pattern as it was set."""
        return self.books.limits.configured(ScopePattern(scope).text)

    def limits(self) -> dict[str, int]:
        """Every configured limit, by scope or pattern."""
        return {text: limit for text, limit in self.books.limits.entries().items() if limit is not None}

    def limit_source(self, scope: str) -> LimitSource:
        """Where a configured limit comes from."""
        return self.books.limits.source(ScopePattern(scope).text)

    def _apply_limits(self, pattern: ScopePattern) -> None:
        books = self.books
        books.forget_lanes()
        touched = [scope for scope in books.scopes.values() if pattern.matches(scope.name)]
        if pattern.is_exact and not touched:
            touched = [books.scope(pattern.text)]
        for scope in touched:
            previous = scope.effective
            scope.configured = books.limits.configured(scope.name)
            if scope.headroom is not None:
                scope.headroom.clear()
            scope.platform = None
            scope.refresh()
            books.lift_blocked(scope)
            books.schedule(scope)
            if scope.effective != previous:
                books.emit("scope.limit_set", scope.name, limit=scope.effective, previous=previous)
        settle(books, touched)

    # -- cooldown, headroom, pace, hold ----------------------------------------------------

    def set_cooldown(self, scope: str, seconds: float, *, now: float) -> None:
        """How long a released slot still counts. Slots that cool already keep the cooldown they began with."""
        pattern = ScopePattern(scope)
        check_seconds(seconds, "cooldown")
        self._move_to(now)
        self.books.cooldowns.set_live(pattern.text, float(seconds))
        for state in self.books.scopes.values():
            state.cooldown = self.books.cooldown_of(state.name) if state.is_provider else 0.0
            state.refresh()

    def get_cooldown(self, scope: str) -> float:
        return self.books.cooldown_of(ScopePattern(scope).text)

    def cooldowns(self) -> dict[str, float]:
        return self.books.cooldowns.entries()

    def set_headroom(self, scope: str, mode: HeadroomMode, *, now: float) -> None:
        if mode not in HEADROOM_MODES:
            raise InvalidInput(f"headroom must be one of {', '.join(HEADROOM_MODES)}; got {mode!r}")
        self._move_to(now)
        state = self.books.scope(canonical_scope(scope))
        self.books.modes[state.name] = state.mode = mode

    def set_pace(self, scope: str, *, strategy: Strategy = "rush", reserve: float = 0.0, now: float) -> None:
        """How the scope's windows may be used up: flat out, along the line, and what is left to the person."""
        if strategy not in ("rush", "spread"):
            raise InvalidInput(f"strategy must be rush or spread; got {strategy!r}")
        if isinstance(reserve, bool) or not isinstance(reserve, int | float) or not 0 <= reserve < 1:
            raise InvalidInput(f"reserve must be a share from 0 to below 1; got {reserve!r}")
        self._move_to(now)
        state = self.books.scope(canonical_scope(scope))
        is_default = strategy == "rush" and reserve == 0
        state.pace = None if is_default else Pace(strategy=strategy, reserve=float(reserve))
        self.books.schedule(state)
        settle(self.books, [state])

    def hold(self, scope: str, detail: str, *, now: float) -> None:
        """Admit nobody to the scope until a person lifts it."""
        self._move_to(now)
        settle(self.books, hold(self.books, canonical_scope(scope), detail))

    def lift_hold(self, scope: str, *, now: float) -> None:
        self._move_to(now)
        state = self.books.scope(canonical_scope(scope))
        state.hold = None
        state.refresh()
        self.books.lift_blocked(state)
        settle(self.books, [state])

    # -- looking in --------------------------------------------------------------------------

    def status(self, scope: str, *, now: float) -> ScopeStatus | None:
        """The scope as it is, or None if nothing was ever set, asked or learnt there."""
        self._move_to(now)
        state = self.books.scopes.get(canonical_scope(scope))
        return scope_status(state, self.books.now) if state is not None else None

    def statuses(self, *, now: float) -> list[ScopeStatus]:
        self._move_to(now)
        return [scope_status(state, self.books.now) for state in self.books.scopes.values()]

    def snapshot(self) -> Snapshot:
        """All of it, as a value that can be stored."""
        return snapshots.take(self.books)

    @classmethod
    def restore(cls, snapshot: Snapshot, *, now: float, settings: GovernorSettings | None = None) -> "Governor":
        """Go on where the snapshot was taken; new `settings` replace the old, what was learnt stays."""
        governor = cls.__new__(cls)
        governor.books = snapshots.rebuild(snapshot, settings)
        governor._move_to(now)
        return governor
