"""Every scope, line and group by name: made on first use, found again, tidied away when there is nothing in them.

Where a ticket stands. Never here: places, and who may enter.
"""

from collections.abc import Iterable

from paceline.core.gates.rate_limit import Rate, RateWindow
from paceline.core.gates.usage_poll import UsageGate
from paceline.core.state.limit_table import LimitTable, PatternTable
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.queue import Group, Lane, watch, weight_of
from paceline.core.state.scope import ScopeState
from paceline.core.values.scopes import ScopePattern, canonical_scope
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode
from paceline.core.values.tickets import Ticket
from paceline.errors import InvalidInput, InvalidScope, UnresolvedModel

TIDY_AT_LEAST = 2048

LaneKey = tuple[tuple[str, ...], str, int, str | None, bool]


class Roster:
    """One half of the books: what there is, and the tables of what was set."""

    def __init__(
        self,
        settings: GovernorSettings,
        now: float,
        live_limits: dict[str, int | None],
        live_cooldowns: dict[str, Cooldown],
        live_modes: dict[str, HeadroomMode],
    ) -> None:
        self.settings = settings
        self.now = now
        self.limits = LimitTable(settings.limits, live_limits)
        self.cooldowns: PatternTable[Cooldown] = PatternTable(settings.cooldowns, live_cooldowns)
        self.modes: PatternTable[HeadroomMode] = PatternTable(settings.headrooms, live_modes)
        self.reserves: PatternTable[float] = PatternTable(settings.reserves, {})
        self.rates: PatternTable[Rate] = PatternTable(settings.rates, {})
        self.scopes: dict[str, ScopeState] = {}
        self.lanes: dict[LaneKey, Lane] = {}
        self.groups: dict[str | int, Group] = {}
        self.slots: dict[str, LiveSlot] = {}
        self._group_count = 0
        self._tidy_at = TIDY_AT_LEAST
        for text in (*settings.limits, *settings.cooldowns):
            if (pattern := ScopePattern(text)).is_exact:
                self.scope(pattern.text)

    def scope(self, name: str) -> ScopeState:
        """The state of a canonical scope, made on first use."""
        state = self.scopes.get(name)
        if state is None:
            cooldown, mode, reserve = self.cooldown_of(name), self.mode_of(name), self.reserve_of(name)
            state = ScopeState(name, self.limits.configured(name), cooldown, mode, reserve, self.now)
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

    def orphan(self, session: LiveSlot, lanes: Iterable[Lane]) -> None:
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


def _absent(parent: str) -> str:
    """Where runs stand whose session is not there, so that one that comes under this name finds lines of its own."""
    return f"{parent} (absent)"
