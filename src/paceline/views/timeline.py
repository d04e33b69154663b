"""The timeline of the last day: sessions as bars, incidents as marks, and in-flight against the limit.

Events are added as they happen, so that a view costs what it shows, not what is stored. Everything is bounded: the
longest sessions, the newest marks, the busiest scopes and the peaks are kept. Nothing here reads a clock.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from paceline.agents.account import split_login
from paceline.core import ScopeStatus
from paceline.core.values.scopes import SESSIONS, is_provider_scope, path_scopes
from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS, Event
from paceline.store import Store, StoredEvent, Unit

LONGEST_HOURS: Final = 24
HOUR_SECONDS: Final = 3600.0
KEPT_SESSIONS = 20_000
KEPT_MARKS = 5_000
KEPT_LEVELS = 100
"""Bounds on memory: a busy day has fewer, except for scopes, whose names come from outside."""
MOST_SESSIONS = 2_000
MOST_MARKS = 1_000
MOST_POINTS = 500
MOST_SERIES = 40
"""Bounds on one view: a browser draws this many without delay."""

MarkKind = Literal[
    "rate_limited",
    "overloaded",
    "unreachable",
    "window_closed",
    "window_reopened",
    "limit_step",
    "platform_limit",
    "account_held",
]


class Bar(msgspec.Struct):
    """One attempt of a unit. It runs while `ended_at` is None; `ending` is its outcome."""

    unit: str
    scope: str | None
    account: str | None
    started_at: float
    ended_at: float | None = None
    ending: str | None = None


class Mark(msgspec.Struct, frozen=True):
    """An event that changed how much may run."""

    at: float
    kind: MarkKind
    scope: str
    detail: str


class Point(msgspec.Struct):
    """How many were in flight from `at` on, under this effective limit. None means unlimited or unknown."""

    at: float
    in_flight: int
    limit: int | None


class Series(msgspec.Struct, frozen=True):
    """In-flight and limit of one scope."""

    scope: str
    points: list[Point]


class LeftOut(msgspec.Struct, frozen=True):
    """How many more there are than the view shows."""

    sessions: int = 0
    marks: int = 0
    series: int = 0


class TimelineView(msgspec.Struct, frozen=True):
    """The timeline between two times."""

    since: float = msgspec.field(name="from")
    to: float
    sessions: list[Bar]
    marks: list[Mark]
    series: list[Series]
    left_out: LeftOut


class Level:
    """In-flight and limit of one scope over time. Old points are thinned out to stay within a bound."""

    __slots__ = ("_is_limit_known", "points")

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._is_limit_known = False

    @property
    def in_flight(self) -> int:
        return self.points[-1].in_flight if self.points else 0

    def change_by(self, at: float, difference: int) -> None:
        limit = self.points[-1].limit if self.points else None
        self._set(at, max(0, self.in_flight + difference), limit)

    def set_limit(self, at: float, limit: int | None, before: int | None) -> None:
        """Set the limit from now on. `before` is the one until now."""
        self._backfill_limit(before)
        self._set(at, self.in_flight, limit)

    def set_both(self, at: float, in_flight: int, limit: int | None) -> None:
        """Set both, as the Governor has them."""
        self._backfill_limit(limit)
        self._set(at, in_flight, limit)

    def _backfill_limit(self, before: int | None) -> None:
        """Give all earlier points the limit that was in force before the first known change."""
        if not self._is_limit_known:
            self._is_limit_known = True
            for point in self.points:
                point.limit = before

    def _set(self, at: float, in_flight: int, limit: int | None) -> None:
        last = self.points[-1] if self.points else None
        if last is not None and (last.in_flight, last.limit) == (in_flight, limit):
            return
        if last is not None and last.at == at:
            last.in_flight, last.limit = in_flight, limit
            return
        self.points.append(Point(at, in_flight, limit))
        if len(self.points) > 2 * MOST_POINTS:
            self.points = thinned(self.points[:MOST_POINTS], MOST_POINTS // 2) + self.points[MOST_POINTS:]

    def between(self, since: float, to: float) -> list[Point]:
        """Return the points between two times, with the values at both ends."""
        inside = [point for point in self.points if since < point.at <= to]
        before = [point for point in self.points if point.at <= since]
        begin = [Point(since, before[-1].in_flight, before[-1].limit)] if before else []
        shown = thinned(begin + inside, MOST_POINTS - 1)
        return [*shown, Point(to, shown[-1].in_flight, shown[-1].limit)] if shown else []


def thinned(points: list[Point], most: int) -> list[Point]:
    """Return at most `most` points: the peak and the last one of each stretch."""
    if len(points) <= most:
        return points
    stretch = math.ceil(2 * len(points) / most)
    kept: list[Point] = []
    for first in range(0, len(points), stretch):
        part = points[first : first + stretch]
        peak = max(part, key=lambda point: point.in_flight)
        kept += [peak] if peak is part[-1] else [peak, part[-1]]
    return kept


class Timeline:
    """The timeline. `add` adds events, `sample` reads the Governor's counts, and `view` returns a part of it.

    Levels come from events until the first sample. The Governor also counts slots that cause no event, such as the
    requests of the gateway.
    """

    def __init__(self) -> None:
        self._open: dict[str, Bar] = {}
        self._without_slot: set[str] = set()
        """Units that are checked or delivered: their agent has ended, and its slot is free."""
        self._ended: deque[Bar] = deque(maxlen=KEPT_SESSIONS)
        self._marks: deque[Mark] = deque(maxlen=KEPT_MARKS)
        self._levels: dict[str, Level] = {}
        self._is_sampled = False

    # -- adding --------------------------------------------------------------------------------

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Add new events, in order."""
        for stored in events:
            event = stored.event
            if event.name in ATTEMPT_STARTS:
                self._start(event)
            elif event.name == "unit.worked":
                self._free_slot(event.unit or "", event.at)
            elif event.name in ATTEMPT_ENDS:
                self._end(event.unit or "", event.at, event.name.removeprefix("unit."))
            elif event.scope is not None:
                self._mark(event, event.scope)

    def sample(self, at: float, statuses: Iterable[ScopeStatus]) -> None:
        """Add what is in flight now, and the limits."""
        seen = set()
        for status in statuses:
            seen.add(status.scope)
            level = self._levels.get(status.scope)
            if level is None:
                if not status.in_flight or status.scope.startswith("campaign:"):
                    continue
                level = self._level(status.scope)
            if level is not None:
                level.set_both(at, status.in_flight, status.limit)
        for scope in self._levels.keys() - seen:  # the Governor drops idle scopes
            self._levels[scope].change_by(at, -self._levels[scope].in_flight)
        self._is_sampled = True

    def reconcile(self, store: Store) -> None:
        """Correct the open sessions by the store: an engine that was killed may have emitted no start or end."""
        running = {unit.id: unit for unit in store.running_units()}
        for bar in [bar for bar in self._open.values() if bar.unit not in running]:
            unit = store.unit(bar.unit)
            ended_at = unit.ended_at if unit is not None else None
            self._end(bar.unit, ended_at or bar.started_at, _ending_of(unit))
        for unit_id in running.keys() - self._open.keys():
            unit = running[unit_id]
            self._open[unit_id] = Bar(unit_id, None, split_login(unit.account or "")[0] or None, unit.started_at or 0.0)

    def _start(self, event: Event) -> None:
        unit = event.unit or ""
        known = self._open.get(unit)
        if known is not None and known.started_at == event.at:
            known.scope = event.scope  # `reconcile` found it in the store before its event was read
            return
        if known is not None:
            self._end(unit, event.at, "lost")
        self._open[unit] = Bar(unit, event.scope, _account_of(event.scope), event.at)
        self._count(event.scope, event.at, 1)

    def _end(self, unit: str, at: float, ending: str) -> None:
        self._free_slot(unit, at)
        self._without_slot.discard(unit)
        bar = self._open.pop(unit, None)
        if bar is not None:
            bar.ended_at, bar.ending = at, ending
            self._ended.append(bar)

    def _free_slot(self, unit: str, at: float) -> None:
        if unit in self._open and unit not in self._without_slot:
            self._without_slot.add(unit)
            self._count(self._open[unit].scope, at, -1)

    def _count(self, scope: str | None, at: float, difference: int) -> None:
        if self._is_sampled:
            return
        for each in (SESSIONS, *_scopes_of(scope)):
            level = self._level(each)
            if level is not None:
                level.change_by(at, difference)

    def _level(self, scope: str) -> Level | None:
        if scope not in self._levels and len(self._levels) < KEPT_LEVELS:
            self._levels[scope] = Level()
        return self._levels.get(scope)

    def _mark(self, event: Event, scope: str) -> None:
        mark = _mark_of(event)
        if mark is not None:
            self._marks.append(Mark(event.at, mark[0], scope, mark[1]))
        limit = new_limit(event)
        if limit is not None and scope in self._levels and not self._is_sampled:
            self._levels[scope].set_limit(event.at, *limit)

    # -- reading -------------------------------------------------------------------------------

    def view(self, since: float, to: float) -> TimelineView:
        """Return the timeline between two times."""
        bars = [*self._ended_since(since), *self._open.values()]
        bars = [bar for bar in bars if bar.started_at <= to]
        marks = [mark for mark in self._marks if since <= mark.at <= to]
        longest = heapq.nlargest(MOST_SESSIONS, bars, key=lambda bar: (bar.ended_at or to) - bar.started_at)
        levels = [(scope, points) for scope, level in self._levels.items() if (points := level.between(since, to))]
        busiest = heapq.nlargest(MOST_SERIES, levels, key=lambda each: max(point.in_flight for point in each[1]))
        bounded = ((bars, MOST_SESSIONS), (marks, MOST_MARKS), (levels, MOST_SERIES))
        return TimelineView(
            since=since,
            to=to,
            sessions=sorted(longest, key=lambda bar: (bar.started_at, bar.unit)),
            marks=marks[-MOST_MARKS:],
            series=[Series(scope, points) for scope, points in sorted(busiest)],
            left_out=LeftOut(*(max(0, len(there) - most) for there, most in bounded)),
        )

    def _ended_since(self, since: float) -> Iterable[Bar]:
        for bar in reversed(self._ended):  # in the order of their ends, unless the clock was set back
            if (bar.ended_at or 0.0) < since:
                return
            yield bar


def last_id_before(store: Store, at: float, last: int) -> int:
    """Return the id of the last event before that time, found by bisection. `last` is the newest id."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        found = store.events(after=middle, limit=1)
        if not found or found[0].event.at >= at:
            high = middle
        else:
            low = found[0].id
    return low


# -- reading events ------------------------------------------------------------------------------


def _scopes_of(scope: str | None) -> tuple[str, ...]:
    if scope is None or not is_provider_scope(scope):
        return () if scope is None else (scope,)
    return path_scopes(scope)


def _account_of(scope: str | None) -> str | None:
    parts = scope.split("/", 2) if scope is not None and is_provider_scope(scope) else []
    return parts[1] if len(parts) > 1 else None


def _ending_of(unit: Unit | None) -> str:
    if unit is None:
        return "cancelled"  # it was deleted with its campaign
    if unit.state != "todo":
        return unit.state
    return "parked" if unit.is_parked else "requeued"


def new_limit(event: Event) -> tuple[int | None, int | None] | None:
    """Return the new effective limit and the one before, or None for an event that changes no limit."""
    fields = event.fields
    if event.name in ("scope.limit_set", "scope.limit_reduced", "scope.limit_raised"):
        return _count_of(fields.get("limit")), _count_of(fields.get("previous"))
    if event.name == "scope.platform_limit":
        return _count_of(fields.get("effective_cap")), _count_of(fields.get("previous_cap"))
    return None


def _count_of(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _mark_of(event: Event) -> tuple[MarkKind, str] | None:
    """Return the mark and its sentence, or None for an event without a mark."""
    fields = event.fields
    match event.name:
        case "scope.paused":
            if fields.get("cause") == "platform_limit":
                return None  # the event scope.platform_limit has the mark
            if fields.get("cause") == "unreachable":
                return "unreachable", "nobody answered; one session tries first"
            kind: MarkKind = "overloaded" if fields.get("cause") == "overloaded" else "rate_limited"
            return kind, f"paused for {_time_left(fields.get('until'), event.at)}"
        case "window.closed":
            window, left = fields.get("window"), _time_left(fields.get("resets_at"), event.at)
            return "window_closed", f"the {window} window is spent, resets in {left}"
        case "window.reopened":
            return "window_reopened", f"the {fields.get('window')} window is open again"
        case "scope.limit_set" | "scope.limit_reduced" | "scope.limit_raised":
            how = event.name.removeprefix("scope.limit_")
            return "limit_step", f"limit {how} from {_limit(fields.get('previous'))} to {_limit(fields.get('limit'))}"
        case "scope.platform_limit":
            return "platform_limit", f"the provider's own limit is {fields.get('detected_limit')}"
        case "account.held":
            return "account_held", str(fields.get("detail") or "held")
    return None


def _limit(value: object) -> str:
    return "unlimited" if value is None else str(value)


def _time_left(until: object, now: float) -> str:
    if not isinstance(until, int | float):
        return "an unknown time"
    seconds = max(0.0, until - now)
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
