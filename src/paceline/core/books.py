"""The Governor's books: every scope, lane, group, slot and waiter, and the arithmetic of places.

Counting only. Who may enter is decided in `admission.py`; what a signal does, in `reports.py`.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from paceline.core.limits import UNLIMITED, LimitTable, PatternTable
from paceline.core.queue import Group, Lane, Waiter, watch, weight_of
from paceline.core.rates import Rate, RateWindow
from paceline.core.scope_state import ScopeState
from paceline.core.scopes import ScopePattern, canonical_scope
from paceline.core.settings import Cooldown, GovernorSettings, HeadroomMode
from paceline.core.slots import LiveSlot
from paceline.core.tickets import Ticket
from paceline.core.usage_gate import UsageGate
from paceline.core.verdicts import Effect, Granted, PollUsage
from paceline.errors import InvalidInput, InvalidScope, UnresolvedModel
from paceline.events import Event

KEPT_GRANTS = 4096
TIDY_AT_LEAST = 2048

LaneKey = tuple[tuple[str, ...], str, int, str | None, bool]


class Books:
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
        self.settings = settings
        self.slot_timeout = settings.slot_timeout
        self.now = now
        self.limits = LimitTable(settings.limits, live_limits or {})
        self.cooldowns: PatternTable[Cooldown] = PatternTable(settings.cooldowns, live_cooldowns or {})
        self.modes: PatternTable[HeadroomMode] = PatternTable(settings.headrooms, live_modes or {})
        self.reserves: PatternTable[float] = PatternTable(settings.reserves, {})
        self.rates: PatternTable[Rate] = PatternTable(settings.rates, {})
        self.scopes: dict[str, ScopeState] = {}
        self.lanes: dict[LaneKey, Lane] = {}
        self.groups: dict[str | int, Group] = {}
        self.slots: dict[str, LiveSlot] = {}
        self.waiters: dict[str, Waiter] = {}
        self.claims: list[Waiter] = []
        self.lost: list[LiveSlot] = []
        self.effects: list[Effect] = []
        self.seq = 0
        self.finished_seconds = 0.0
        self.finished_slots = 0
        self.sweep_at: float | None = None
        self.recent: deque[tuple[float, tuple[ScopeState, ...]]] = deque(maxlen=KEPT_GRANTS)
        self.next_due = math.inf  # nothing happens by time alone before this
        self.timers: list[tuple[float, int, ScopeState]] = []
        self.claim_timers: list[tuple[float, int, Waiter]] = []
        self._timer_count = 0
        self._group_count = 0
        self._tidy_at = TIDY_AT_LEAST
        for text in (*settings.limits, *settings.cooldowns):
            if (pattern := ScopePattern(text)).is_exact:
                self.scope(pattern.text)

    # -- scopes, groups and lanes ------------------------------------------------------------

    def scope(self, name: str) -> ScopeState:
        """The state of a canonical scope, made on first use."""
        state = self.scopes.get(name)
        if state is None:
            state = ScopeState(
                name, self.limits.configured(name), self.cooldown_of(name), self.mode_of(name), self.reserve_of(name)
            )
            if name in self.settings.usage_scopes:
                state.usage = UsageGate(self.settings.usage_interval, self.settings.usage_timeout)
            if (rate := self.rates.lookup(name)) is not None:
                state.rate = RateWindow(rate[1])
            state.refresh()
            self.scopes[name] = state
        return state

    def cooldown_of(self, name: str) -> Cooldown:
        """Its own, else that of the path it lies in, else the default."""
        found = self.cooldowns.lookup_path(name)
        return self.settings.cooldown if found is None else found

    def mode_of(self, name: str) -> HeadroomMode:
        """Its own, else that of the path it lies in, else the default."""
        return self.modes.lookup_path(name) or self.settings.headroom

    def reserve_of(self, name: str) -> float:
        """Its own, else that of the path it lies in: an account's holds for the windows of its models too."""
        return self.reserves.lookup_path(name) or 0.0

    def lane(self, ticket: Ticket) -> Lane:
        """The line the ticket belongs in. Its scopes are checked when the line is made."""
        key = (ticket.scopes, ticket.group, ticket.priority, ticket.parent, ticket.spread)
        lane = self.lanes.get(key)
        if lane is not None:
            return lane
        if type(ticket.priority) is not int:
            raise InvalidInput(f"priority must be a whole number; got {ticket.priority!r}")
        names = tuple(canonical_scope(name) for name in ticket.scopes)
        if not names:
            raise InvalidScope("a ticket must name at least one scope")
        if (missing := self.limits.model_needed(names) or self.rates.model_needed(names)) is not None:
            path, cap = missing
            raise UnresolvedModel(f"{path!r} names no model, but caps per model apply there ({cap}); add the model")
        return self._make_lane(key)

    def lane_as_accepted(self, ticket: Ticket) -> Lane:
        """The line of a ticket that was checked when it came in."""
        key = (ticket.scopes, ticket.group, ticket.priority, ticket.parent, ticket.spread)
        return self.lanes.get(key) or self._make_lane(key)

    def _make_lane(self, key: LaneKey) -> Lane:
        scopes, group_name, priority, parent, spread = key
        if parent is not None and parent not in self.slots:  # not yet, or no longer: its runs stand alone
            key = (scopes, group_name, priority, _absent(parent), spread)
            if (known := self.lanes.get(key)) is not None:
                return known
        names = dict.fromkeys(canonical_scope(name) for name in scopes)
        self._tidy()
        parent_slot = self.slots.get(parent) if parent is not None else None
        weight = weight_of(priority)
        group = self.group(group_name or priority, weight)
        lane = Lane(tuple(self.scope(name) for name in names), group, weight, parent_slot)
        for scope in lane.scopes:
            scope.lane_count += 1
        if parent_slot is not None:
            if parent_slot.run_lanes is None:
                parent_slot.run_lanes = {}
            parent_slot.run_lanes[lane] = None
        self.lanes[key] = lane
        return lane

    def group(self, name: str | int, weight: float) -> Group:
        """A campaign, or for bare tickets a priority level."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name, self._group_count, weight, self.now)
            self._group_count += 1
        return group

    def forget_lanes(self, parent: str | None = None) -> None:
        """Drop empty lanes (of one parent), so that they are made and checked anew."""
        for key in [key for key, lane in self.lanes.items() if not lane.size and (parent is None or key[3] == parent)]:
            lane = self.lanes.pop(key)
            for scope in lane.scopes:
                scope.lane_count -= 1
            if lane.parent is not None and lane.parent.run_lanes is not None:
                lane.parent.run_lanes.pop(lane, None)

    def _tidy(self) -> None:
        """Scopes, lanes and groups of campaigns and agents long gone do not pile up; what has a setting stays."""
        if len(self.scopes) + len(self.lanes) + len(self.groups) < self._tidy_at:
            return
        self.forget_lanes()
        named = {*self.limits.entries(), *self.cooldowns.entries()}
        self.scopes = {
            name: scope for name, scope in self.scopes.items() if name in named or not scope.is_idle(self.now)
        }
        busy = {lane.group for lane in self.lanes.values()} | {slot.lane.group for slot in self.slots.values()}
        self.groups = {name: group for name, group in self.groups.items() if group in busy}
        self._tidy_at = max(TIDY_AT_LEAST, 2 * (len(self.scopes) + len(self.lanes) + len(self.groups)))

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
                if scope.alert:
                    self._place_freed(scope, hot, was_refused=slot.reported)
            elif scope.alert:
                hot.append(scope)
        if slot.run_lanes is not None:
            self._orphan(slot, slot.run_lanes)
            slot.run_lanes = None
            self.forget_lanes(parent=ticket.id)

    def _orphan(self, session: LiveSlot, lanes: Iterable[Lane]) -> None:
        """Runs that still wait when their session ends wait on as any others do, in lines of their own.

        The session's name may come back, and its new runs belong to that one.
        """
        for lane in lanes:
            lane.parent = None
            scope = lane.watching
            if scope is not None and lane in scope.run_lanes:
                del scope.run_lanes[lane]
                watch(lane, scope)
                scope.refresh()
        session_id, absent = session.ticket.id, _absent(session.ticket.id)
        self.forget_lanes(parent=absent)
        for key in [key for key, lane in self.lanes.items() if key[3] == session_id and lane.size]:
            scopes, group, priority, _, spread = key
            alone = (scopes, group, priority, absent, spread)
            if alone in self.lanes:
                alone = (scopes, group, priority, f"{absent} since {session.token}", spread)
            self.lanes[alone] = self.lanes.pop(key)

    def _frees_place(self, slot: LiveSlot, scope: ScopeState) -> bool:
        """A session holds max(1, its live runs) places, so not every end frees one."""
        if slot.runs and slot.runs.get(scope.name):
            return False  # its runs go on and keep the place
        parent = slot.lane.parent
        if parent is None or not scope.is_provider or scope.name not in parent.lane.names:
            return True
        return parent.on_run_ended(scope.name) > 0 or parent.released

    def _place_freed(self, scope: ScopeState, hot: list[ScopeState], *, was_refused: bool) -> None:
        if scope.headroom is not None and not was_refused and scope.headroom.on_release(self.now):
            scope.refresh()
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
        self.effects.append(Event(name, self.now, scope, None, fields))


def _absent(parent: str) -> str:
    """Where runs stand whose session is not there, so that one that comes under this name finds lines of its own."""
    return f"{parent} (absent)"
