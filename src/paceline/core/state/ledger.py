"""All mutable state of a Governor as one object, and the arithmetic of places.

Here: counting, what an entry or a release does to the counts, and what is due when. Never here: who may enter
(`decisions/admission.py`) and what a signal does (`decisions/reactions.py`).
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from paceline.core.limits import UNLIMITED
from paceline.core.state.fairness import FairShares
from paceline.core.state.lane import Lane, LiveSlot, Waiter, WatchTable
from paceline.core.state.scope import Scope
from paceline.core.state.tables import LaneTable, LiveSettings, ScopeTable
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.settings import GovernorSettings
from paceline.core.values.tickets import Effect, Granted, PollUsage, Ticket
from paceline.events import Event


class Timers:
    """Two heaps. A scope's timer counts only while its `wake_at` is the same; a waiter's until it is gone."""

    def __init__(self) -> None:
        self._scopes: list[tuple[float, int, Scope]] = []
        self._patience: list[tuple[float, int, Waiter]] = []
        self._count = 0

    def wake(self, scope: Scope, when: float) -> None:
        scope.wake_at = when
        self._count += 1
        heappush(self._scopes, (when, self._count, scope))

    def end_patience(self, waiter: Waiter, when: float) -> None:
        """Count the waiter as overdue from this time on."""
        heappush(self._patience, (when, waiter.seq, waiter))

    def next_time(self) -> float | None:
        """Return when something is due; None while nothing is."""
        while self._scopes and self._scopes[0][2].wake_at != self._scopes[0][0]:
            heappop(self._scopes)
        while self._patience and self._patience[0][2].gone:
            heappop(self._patience)
        if not self._scopes:
            return self._patience[0][0] if self._patience else None
        first = self._scopes[0][0]
        return min(first, self._patience[0][0]) if self._patience else first

    def due_scopes(self, now: float) -> Iterator[Scope]:
        """Remove and return the scopes that are due."""
        while self._scopes and self._scopes[0][0] <= now:
            when, _, scope = heappop(self._scopes)
            if scope.wake_at == when:
                scope.wake_at = None
                yield scope

    def overdue_waiters(self, now: float) -> Iterator[Waiter]:
        """Remove and return the waiters whose patience has ended."""
        while self._patience and self._patience[0][0] <= now:
            waiter = heappop(self._patience)[2]
            if not waiter.gone:
                yield waiter

    def shift(self, seconds: float) -> None:
        """Keep the patience of waiters when the clock is set back. Scopes are to be scheduled again."""
        self._patience = [(when - seconds, seq, waiter) for when, seq, waiter in self._patience]
        heapify(self._patience)
        self._scopes.clear()


KEPT_GRANTS = 4096
"""Grants to remember: a minute of some seventy a second, from which a rate or a spacing is first guessed."""


class Ledger:
    """Owned by one Governor. `effects` is what the next `advance` returns.

    Nothing happens by time alone before `next_due`. `place_claims` are overdue waiters for whom places are kept,
    `lost` the slots whose lease ran out, `recent` the last grants, `origin` the unit that events name for now.
    """

    def __init__(self, settings: GovernorSettings, now: float, *, live: LiveSettings | None = None) -> None:
        self.settings = settings
        self.slot_timeout = settings.slot_timeout
        self.now = now
        self.next_due = math.inf
        self.seq = 0
        self.slots: dict[str, LiveSlot] = {}
        self.waiters: dict[str, Waiter] = {}
        self.place_claims: list[Waiter] = []
        self.lost: list[LiveSlot] = []
        self.effects: list[Effect] = []
        self.origin: str | None = None
        self.sweep_at: float | None = None
        self.recent: deque[tuple[float, tuple[Scope, ...]]] = deque(maxlen=KEPT_GRANTS)
        self.shares = FairShares()
        self.watches = WatchTable()
        self.timers = Timers()
        self.scopes = ScopeTable(settings, live or LiveSettings(), now)
        self.lanes = LaneTable(self.scopes, self.shares, self.watches, self.slots)

    def scope(self, name: str) -> Scope:
        return self.scopes.scope(name, self.now)

    # -- places --------------------------------------------------------------------------------

    def enter(self, lane: Lane, ticket: Ticket, waited: float) -> Granted:
        """Take a place in every scope of the lane and open the lease."""
        now = self.now
        group = lane.group
        group.accrued += group.live * (now - group.accrued_at)  # as `accrue`, without the call
        group.accrued_at = now
        group.live += 1
        self.seq = token = self.seq + 1
        expires_at = now + self.slot_timeout if ticket.leased else None
        self.slots[ticket.id] = LiveSlot(ticket, lane, now, token, expires_at, token)
        if lane.parent is None:
            for scope in lane.scopes:
                scope.used += 1
                meter = scope.meter
                meter.starts += 1
                meter.place_balance -= now
                if now >= scope.notify_from:
                    self._notify_gates(scope, ticket, takes_place=True)
        else:
            self._enter_run(lane, lane.parent, ticket)
        self.recent.append((now, lane.scopes))
        if self.sweep_at is None and expires_at is not None:
            self._expect_sweep()
        return Granted(ticket.id, token, now, waited, expires_at)

    def adopt(self, lane: Lane, ticket: Ticket) -> Granted:
        """Count a slot that its holder already has. No gate is notified, and no start counted: nobody was admitted."""
        lane.group.accrue(self.now)
        lane.group.live += 1
        self.seq = token = self.seq + 1
        expires_at = self.now + self.slot_timeout if ticket.leased else None
        self.slots[ticket.id] = LiveSlot(ticket, lane, self.now, token, expires_at, token, is_adopted=True)
        self.take_places(lane, is_start=False)
        if expires_at is not None:
            self._expect_sweep()
        return Granted(ticket.id, token, self.now, 0.0, expires_at)

    def _expect_sweep(self) -> None:
        if self.sweep_at is None:
            self.sweep_at = self.now + self.settings.watchdog_interval
            self.next_due = min(self.next_due, self.sweep_at)

    def _enter_run(self, lane: Lane, session: LiveSlot, ticket: Ticket) -> None:
        placed = [scope for scope in lane.scopes if not session.covers(scope)]
        self.take_places(lane)
        for scope in lane.scopes:
            takes_place = scope in placed
            if self.now >= scope.notify_from or (scope.gates.in_order and not takes_place):
                self._notify_gates(scope, ticket, takes_place=takes_place)

    def take_places(self, lane: Lane, *, is_start: bool = True) -> None:
        """Take one place in each scope, but for a run whose session's own place there is free."""
        session = lane.parent
        for scope in lane.scopes:
            if session is None or not session.covers(scope):
                scope.used += 1
                scope.meter.starts += is_start
                scope.meter.place_balance -= self.now
            if session is not None and scope.is_provider and scope.name in session.lane.names:
                session.on_run_started(scope.name)

    def _notify_gates(self, scope: Scope, ticket: Ticket, *, takes_place: bool) -> None:
        counter = scope.counter if takes_place and self.now < scope.counts_until else None
        if counter is not None and counter.counts(ticket, scope, self.now):
            if scope.wake_at is not None:  # perhaps for somebody who has entered just now
                self.schedule(scope)
            return
        if scope.usage is not None and takes_place:
            scope.usage.on_grant(ticket.id, self.now)
        for event in scope.on_grant(ticket, self.now, takes_place=takes_place):
            self.emit(event.name, scope.name, **event.fields)
        self.schedule(scope)
        if takes_place and scope.is_full and scope.keeps_tokens:
            self.timers.wake(scope, self.now)  # what is kept for others no longer holds the runs of its sessions back
            self.next_due = self.now

    def runs_since(self, scope: Scope, since: float) -> list[float]:
        """Return when runs entered the scope from that time on, the latest first, as far as grants are remembered."""
        times: list[float] = []
        is_run_here: dict[int, bool] = {}  # by lane: most grants are of few lanes, and this is asked for every reading
        for at, scopes in reversed(self.recent):
            if at < since:
                break
            counts = is_run_here.get(id(scopes))
            if counts is None:
                counts = scope in scopes and all(other.name != SESSIONS for other in scopes)
                is_run_here[id(scopes)] = counts
            if counts:
                times.append(at)
        return times

    def leave(self, slot: LiveSlot, hot: list[Scope]) -> None:
        """Give the places back. `hot` collects the scopes that changed, also those that learn from the end."""
        now = self.now
        lane = slot.lane
        group = lane.group
        group.accrued += group.live * (now - group.accrued_at)  # as `accrue`, without the call
        group.accrued_at = now
        group.live -= 1
        shares = self.shares
        shares.finished_seconds += now - slot.granted_at
        shares.finished_slots += 1
        slot.released = True
        del self.slots[slot.ticket.id]
        stands_alone = lane.parent is None and slot.runs is None
        for scope in lane.scopes:
            if stands_alone or _frees_place(slot, scope):
                scope.used -= 1
                scope.meter.place_balance += now
                if scope.alert and (scope.learner is None or scope.learner.heeds_success(slot.admitted_at, now)):
                    self._place_freed(scope, hot, slot)
            elif scope.alert:
                hot.append(scope)
        if lane.parent is not None and slot.reclaim_at is None:
            self.renew_session(lane.parent)
        if slot.ticket.id in self.lanes.of_session:
            self.lanes.end_session(slot)

    def renew_session(self, session: LiveSlot) -> None:
        """Extend the lease of a session that has, or just had, a live run."""
        if session.expires_at is not None and session.reclaim_at is None:
            session.expires_at = self.now + self.slot_timeout

    def _place_freed(self, scope: Scope, hot: list[Scope], slot: LiveSlot) -> None:
        was_refused = slot.reported
        if scope.adaptive is not None and not was_refused:
            scope.calls.on_ended(self.now - slot.granted_at, scope.use(self.now), scope.live)
            scope.adaptive.on_release(self.now, was_full=scope.live + 1 >= scope.cap)
        lag = scope.cooldown_for(slot.lane.account)
        if not was_refused:
            lag = max(lag, scope.learnt_lag)
        if lag > 0 and scope.cap != UNLIMITED:
            scope.used += 1
            insort(scope.cooling, self.now + lag)
            self.schedule(scope)
        if scope.usage is not None:
            scope.usage.on_ended(slot.ticket.id, was_refused=was_refused)
            if scope.waiting:
                scope.usage.on_release(self.now + (lag if scope.cap != UNLIMITED else 0.0), self.now)
                self.poll_usage(scope)
                self.schedule(scope)
        hot.append(scope)

    # -- effects -------------------------------------------------------------------------------

    def poll_usage(self, scope: Scope) -> None:
        """Poll the provider's count while a ticket waits. One poll runs at a time; an overdue one is given up first."""
        if scope.usage is not None and scope.waiting:
            scope.usage.expire_question(scope.live, self.now)
            if scope.usage.wants_to_ask(self.now):
                scope.usage.on_asked(self.now)
                self.effects.append(PollUsage(scope.name))

    def emit(self, name: str, scope: str | None, **fields: object) -> None:
        self.effects.append(Event(name, self.now, scope, self.origin, fields))

    def note_raised(self, scope: Scope, previous: int | None) -> None:
        """Emit that the limit is not the `previous` one any more. Nobody gets credit for the time below it."""
        if scope.effective != previous:
            self.lift_blocked(scope)
            self.emit("scope.limit_raised", scope.name, limit=scope.effective, previous=previous)

    # -- shares and time -----------------------------------------------------------------------

    def lift_blocked(self, scope: Scope) -> None:
        """Give no credit to groups for the time in which a gate or limit of the scope kept them out.

        All that wait in the scope count, also those that watch another scope: which one a lane watches may depend
        on a wake-up that a restart does not repeat.
        """
        self.shares.lift_blocked(self.lanes.groups_waiting_in(scope), self.now)

    def refresh(self, scope: Scope) -> None:
        """Recompute the hot numbers of a scope whose gates or limits changed, and when it is woken."""
        scope.refresh()
        self.schedule(scope)

    def schedule(self, scope: Scope) -> None:
        """Wake the scope when it next changes by time alone.

        A timer is kept while somebody waits: a gate that is open by now may have opened since it refused them, and
        only a wake-up lets them in.
        """
        when = scope.next_wake(self.now)
        if when is None:
            scope.wake_at = scope.wake_at if scope.waiting else None
        elif scope.wake_at is None or when < scope.wake_at:
            self.timers.wake(scope, when)
            self.next_due = min(self.next_due, when)

    def next_time(self) -> float | None:
        """Return when something happens by time alone; None while nothing does."""
        due = self.timers.next_time()
        if self.sweep_at is not None and (due is None or self.sweep_at < due):
            due = self.sweep_at
        for slot in self.lost:
            if slot.reclaim_at is not None and (due is None or slot.reclaim_at < due):
                due = slot.reclaim_at
        return due


def _frees_place(slot: LiveSlot, scope: Scope) -> bool:
    """Return whether a place becomes free. A session holds max(1, its live runs), so not every end frees one."""
    if slot.runs and slot.runs.get(scope.name):
        return False  # its runs continue and keep the place
    parent = slot.lane.parent
    if parent is None or not scope.is_provider or scope.name not in parent.lane.names:
        return True
    return parent.on_run_ended(scope.name) > 0 or parent.released
