"""The Governor's books: every slot and waiter, what happens when, and the arithmetic of places.

Counting only. Who may enter is decided in `admission.py`; what a signal does, in `reports.py`.
"""

import math
from bisect import insort
from collections import deque
from heapq import heappop, heappush

from paceline.core.limits.adaptive_limit import Headroom
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.queue import Lane, Waiter
from paceline.core.state.scope import ScopeState
from paceline.core.state.scope_table import Roster
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Effect, Granted, PollUsage
from paceline.events import Event

KEPT_GRANTS = 4096


class Books(Roster):
    """Mutable; owned by one Governor. `effects` is what the next `advance` hands out."""

    def __init__(
        self,
        settings: GovernorSettings,
        now: float,
        *,
        live_limits: dict[str, int | None] | None = None,
        live_cooldowns: dict[str, Cooldown] | None = None,
        live_modes: dict[str, HeadroomMode] | None = None,
    ) -> None:
        super().__init__(settings, now, live_limits or {}, live_cooldowns or {}, live_modes or {})
        self.slot_timeout = settings.slot_timeout
        self.waiters: dict[str, Waiter] = {}
        self.claims: list[Waiter] = []
        self.lost: list[LiveSlot] = []
        self.effects: list[Effect] = []
        self.origin: str | None = None  # the unit that the events of the report under way name
        self.seq = 0
        self.finished_seconds = 0.0
        self.finished_slots = 0
        self.sweep_at: float | None = None
        self.recent: deque[tuple[float, tuple[ScopeState, ...]]] = deque(maxlen=KEPT_GRANTS)
        self.next_due = math.inf  # nothing happens by time alone before this
        self.timers: list[tuple[float, int, ScopeState]] = []
        self.claim_timers: list[tuple[float, int, Waiter]] = []
        self._timer_count = 0

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
                scope.starts += 1
                scope.place_balance -= now
                if not scope.open_cap:
                    self._tell_gates(scope, ticket)
        else:
            placed = [scope for scope in lane.scopes if not self.is_covered(scope, lane.parent)]
            self.take_places(lane)
            for scope in lane.scopes:
                if not scope.open_cap:
                    self._tell_gates(scope, ticket, takes_place=scope in placed)
        self.recent.append((now, lane.scopes))
        if self.sweep_at is None and expires_at is not None:
            self.sweep_at = now + self.settings.watchdog_interval
            self.next_due = min(self.next_due, self.sweep_at)
        return Granted(ticket.id, token, now, waited, expires_at)

    def take_places(self, lane: Lane) -> None:
        """One place in each scope, but for a run whose session's own place there is free."""
        session = lane.parent
        for scope in lane.scopes:
            if session is None or not self.is_covered(scope, session):
                scope.used += 1
                scope.starts += 1
                scope.place_balance -= self.now
            if session is not None and scope.is_provider and scope.name in session.lane.names:
                session.on_run_started(scope.name)

    def is_covered(self, scope: ScopeState, parent: LiveSlot) -> bool:
        """Whether a run of the session may use the session's own place in the scope."""
        return scope.is_provider and parent.covers(scope.name)

    def _tell_gates(self, scope: ScopeState, ticket: Ticket, *, takes_place: bool = True) -> None:
        if scope.usage is not None and takes_place:
            scope.usage.on_grant(self.now)
        for window in scope.on_grant(ticket, self.now):
            self.emit("window.canary", scope.name, window=window, ticket=ticket.id)
        self.schedule(scope)

    def leave(self, slot: LiveSlot, hot: list[ScopeState]) -> None:
        """Give the places back; `hot` collects the scopes to look at, those that learn from it among them."""
        now = self.now
        ticket = slot.ticket
        lane = slot.lane
        group = lane.group
        group.accrued += group.live * (now - group.accrued_at)  # as `accrue`, without the call
        group.accrued_at = now
        group.live -= 1
        self.finished_seconds += now - slot.granted_at
        self.finished_slots += 1
        slot.released = True
        del self.slots[ticket.id]
        stands_alone = lane.parent is None and slot.runs is None
        for scope in lane.scopes:
            if stands_alone or self._frees_place(slot, scope):
                scope.used -= 1
                scope.place_balance += now
                if scope.alert:
                    self._place_freed(scope, hot, was_refused=slot.reported)
            elif scope.alert:
                hot.append(scope)
        if slot.run_lanes is not None:
            self.orphan(slot, slot.run_lanes)
            slot.run_lanes = None
            self.forget_lanes(parent=ticket.id)

    def _frees_place(self, slot: LiveSlot, scope: ScopeState) -> bool:
        """A session holds max(1, its live runs) places, so not every end frees one."""
        if slot.runs and slot.runs.get(scope.name):
            return False  # its runs go on and keep the place
        parent = slot.lane.parent
        if parent is None or not scope.is_provider or scope.name not in parent.lane.names:
            return True
        return parent.on_run_ended(scope.name) > 0 or parent.released

    def _place_freed(self, scope: ScopeState, hot: list[ScopeState], *, was_refused: bool) -> None:
        if scope.headroom is not None and not was_refused:
            self._tell_headroom(scope, scope.headroom)
        lag = scope.cooldown if was_refused else scope.release_lag
        if lag > 0 and scope.cap != UNLIMITED:
            scope.used += 1
            insort(scope.cooling, self.now + lag)
            self.schedule(scope)
        if scope.usage is not None and scope.waiting:
            scope.usage.on_release(self.now)
            self.ask_usage(scope)
            self.schedule(scope)
        hot.append(scope)

    def _tell_headroom(self, scope: ScopeState, headroom: Headroom) -> None:
        previous = scope.effective
        if headroom.on_release(self.now, was_full=scope.live + 1 >= scope.cap):
            scope.refresh()
            if scope.effective != previous:
                self.emit("scope.limit_raised", scope.name, limit=scope.effective, previous=previous)

    def ask_usage(self, scope: ScopeState) -> None:
        """While someone waits, one question at a time; one that got no answer in time is given up first."""
        if scope.usage is not None and scope.waiting:
            scope.usage.expire_question(scope.live, self.now)
            if scope.usage.wants_to_ask(self.now):
                scope.usage.on_asked(self.now)
                self.effects.append(PollUsage(scope.name))

    # -- shares --------------------------------------------------------------------------------

    @property
    def mean_slot(self) -> float:
        """How long a slot is held, as far as seen; before the first release: a second."""
        return self.finished_seconds / self.finished_slots if self.finished_slots else 1.0

    # -- time ----------------------------------------------------------------------------------

    def schedule(self, scope: ScopeState) -> None:
        """Have the scope looked at when it next changes by time alone."""
        when = scope.next_wake(self.now)
        if when is None:
            scope.wake_at = None
        elif scope.wake_at is None or when < scope.wake_at:
            scope.wake_at = when
            self.next_due = min(self.next_due, when)
            self._timer_count += 1
            heappush(self.timers, (when, self._timer_count, scope))

    def next_timer(self) -> float | None:
        while self.timers and self.timers[0][2].wake_at != self.timers[0][0]:
            heappop(self.timers)
        while self.claim_timers and self.claim_timers[0][2].gone:
            heappop(self.claim_timers)
        times = [heap[0][0] for heap in (self.timers, self.claim_timers) if heap]
        times.extend(slot.reclaim_at for slot in self.lost if slot.reclaim_at is not None)
        if self.sweep_at is not None:
            times.append(self.sweep_at)
        return min(times, default=None)

    def emit(self, name: str, scope: str | None, **fields: object) -> None:
        self.effects.append(Event(name, self.now, scope, self.origin, fields))
