"""The ledger of the checkers (held and waiting tickets), and the checker of gates: pauses, windows, holds, usage.

The ledger has verdicts and effects alone. Everything is counted in the simplest way, again after each change, so that
no optimisation of the Governor is repeated here. The checker of gates keeps the least that is promised (a pause of
Retry-After, but of six hours at most; a window closed at least until its reset or the first probe) and rejects a grant
that comes earlier. Times are elapsed time, except the resets of windows, which are wall time.
"""

import math
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from paceline.core import GovernorSettings, Granted, Ticket, signals
from paceline.core.values.scopes import is_provider_scope, scope_reached
from paceline.core.values.validation import outside_seconds
from paceline.events import Event

LaneKey = tuple[tuple[str, ...], str, str | None, bool]


@dataclass(slots=True)
class Held:
    """A granted ticket. `lost_at` is when its lease expired, `failed` whether a report blamed it.

    `slept` is the time since the grant in which the machine was suspended: nobody can renew a lease then.
    """

    ticket: Ticket
    granted: Granted
    since: float
    renewed_at: float
    lost_at: float | None = None
    failed: bool = False
    slept: float = 0.0
    run_lost_at: float = -math.inf
    """When the lease of one of its runs was found to be lost: until then the run may have renewed it."""


@dataclass(slots=True, order=True)
class Waiting:
    """A waiting ticket. The order of its lane is by key, then by arrival."""

    key: float
    arrival: int
    ticket: Ticket = field(compare=False)
    enqueued_at: float = field(compare=False)
    passed_at: float | None = field(compare=False, default=None)


class ExpectedLedger:
    """Everything that a caller can know about slots and waiters."""

    def __init__(self, limits: dict[str, int | None]) -> None:
        self.held: dict[str, Held] = {}
        self.waiting: dict[str, Waiting] = {}
        self.lanes: dict[LaneKey, list[Waiting]] = {}
        self.limits = dict(limits)
        self._from_settings = frozenset(limits)
        self._looked_up: dict[str, int | None] = {}
        self.cooling: list[tuple[float, str]] = []
        self.priorities: dict[str, int] = {}
        self.last_token = 0
        self.released_count = 0
        self.released_seconds = 0.0
        self._arrivals = 0
        self._occupied: Counter[str] | None = None
        self._runs_of: dict[tuple[str, str], int] = {}

    # -- waiting --------------------------------------------------------------------------------

    def enqueue(self, ticket: Ticket, now: float, since: float, ageing: float) -> None:
        self._arrivals += 1
        key = min(max(since, now - ageing), now)
        waiting = Waiting(key, self._arrivals, ticket, now)
        self.waiting[ticket.id] = waiting
        self.priorities[group_of(ticket)] = ticket.priority
        insort(self.lanes.setdefault(lane_of(ticket), []), waiting)

    def dequeue(self, ticket_id: str) -> Waiting:
        waiting = self.waiting.pop(ticket_id)
        key = lane_of(waiting.ticket)
        self.lanes[key].remove(waiting)
        if not self.lanes[key]:
            del self.lanes[key]
        return waiting

    def heads(self) -> list[Waiting]:
        return [lane[0] for lane in self.lanes.values()]

    # -- holding --------------------------------------------------------------------------------

    def hold(self, ticket: Ticket, granted: Granted, now: float) -> None:
        self.held[ticket.id] = Held(ticket, granted, now, now)
        self.last_token = granted.token
        self._occupied = None

    def let_go(self, ticket_id: str, now: float) -> Held:
        held = self.held.pop(ticket_id)
        self.released_count += 1
        self.released_seconds += now - held.since
        self._occupied = None
        return held

    def occupied(self) -> Counter[str]:
        """Return the places taken in each scope. A session and its runs take `max(1, live runs)` in a provider's."""
        if self._occupied is None:
            self._occupied = self._recount()
        return self._occupied

    def _recount(self) -> Counter[str]:
        occupied: Counter[str] = Counter()
        runs_of: dict[tuple[str, str], int] = defaultdict(int)
        for held in self.held.values():
            for scope in held.ticket.scopes:
                if self._shares_place(held.ticket, scope):
                    runs_of[held.ticket.parent or "", scope] += 1
                else:
                    occupied[scope] += 1
        for (_, scope), runs in runs_of.items():
            occupied[scope] += runs - 1
        self._runs_of = runs_of
        return occupied

    def _shares_place(self, ticket: Ticket, scope: str) -> bool:
        """Return whether the ticket is a run that can use the place of its session in this scope."""
        session = self.held.get(ticket.parent) if ticket.parent is not None else None
        return session is not None and is_provider_scope(scope) and scope in session.ticket.scopes

    def places_needed(self, ticket: Ticket, scope: str) -> int:
        """Return how many more places the ticket would take: none if the place of its session is still unused."""
        self.occupied()
        needs_none = self._shares_place(ticket, scope) and not self._runs_of.get((ticket.parent or "", scope))
        return 0 if needs_none else 1

    def is_excess(self, session: str | None, scope: str, limit: int) -> bool:
        """Return whether the session is one of the youngest that put the scope over its limit."""
        too_many = self.occupied()[scope] - limit
        if too_many <= 0 or session is None:
            return False
        mine = self.held[session].granted.token
        others = [held for held in self.held.values() if {"sessions", scope} <= set(held.ticket.scopes)]
        return sum(held.granted.token > mine for held in others) < too_many

    # -- limits and cooldowns ---------------------------------------------------------------------

    def configured(self, scope: str) -> int | None:
        """Return the limit set for a scope: its own, else that of the most specific pattern."""
        if scope not in self._looked_up:
            self._looked_up[scope] = self._look_up(scope)
        return self._looked_up[scope]

    def _look_up(self, scope: str) -> int | None:
        if scope in self.limits:
            return self.limits[scope]
        matching = [pattern for pattern in self.limits if _matches(pattern, scope)]
        if not matching:
            return None
        return self.limits[max(matching, key=lambda p: (-p.count("*") - p.count("?"), len(p)))]

    def set_limit(self, scope: str, limit: int | None) -> None:
        self.limits[scope] = limit
        self._looked_up.clear()

    def remove_limit(self, scope: str) -> None:
        """Remove a limit. If a pattern would apply instead, the scope is recorded as unlimited."""
        self.limits.pop(scope, None)
        self._looked_up.clear()
        if scope in self._from_settings or any(_matches(pattern, scope) for pattern in self.limits):
            self.limits[scope] = None

    def cool(self, scope: str, until: float) -> None:
        self.cooling.append((until, scope))

    def cooling_in(self, scope: str, now: float) -> int:
        return sum(1 for until, name in self.cooling if name == scope and until > now)

    def forget_cooled(self, now: float) -> None:
        self.cooling = [entry for entry in self.cooling if entry[0] > now]

    def mean_seconds(self) -> float:
        """Return the mean duration of all slots released so far."""
        return self.released_seconds / self.released_count if self.released_count else 1.0


def lane_of(ticket: Ticket) -> LaneKey:
    """Return the key of the lane: tickets in a lane are alike in everything that decides whether they may enter."""
    return ticket.scopes, group_of(ticket), ticket.parent, ticket.spread


def group_of(ticket: Ticket) -> str:
    """Return the group of a ticket. Tickets without a group form one group per priority."""
    return ticket.group or f"priority {ticket.priority}"


def _matches(pattern: str, scope: str) -> bool:
    parts, names = pattern.split("/"), scope.split("/")
    return len(parts) == len(names) and all(fnmatchcase(n, p) for p, n in zip(parts, names, strict=True))


SLACK = 1e-6
SHORTEST_OVERLOAD_PAUSE = 5.0
SHORTEST_OUTAGE_SECONDS = 5.0
OUTAGE_CANARY_SECONDS = 5 * 60.0
HELD_LOGIN_SECONDS = 3600.0
DOUBTED_SECONDS = 90.0
OPEN_REPORT_SECONDS = 60.0
FIRST_PROBE_SECONDS = 30 * 60.0
CANARY_SECONDS = 15 * 60.0
FIRST_BACKOFF_SECONDS = 5 * 60.0
SHORTEST_LOOK_SECONDS = 5.0
"""The least time between two canaries of a window after any reset that was stated, or after it has reopened."""
LONGEST_WINDOW_SECONDS = 40 * 86400.0
LONGEST_PAUSE_SECONDS = 6 * 3600.0
"""The longest pause that is promised: a Retry-After of a day may be wrong, so somebody looks sooner."""
UNNAMED_WINDOW = "quota"

Broken = Callable[[str], AssertionError]


@dataclass(slots=True)
class ClosedWindow:
    """One spent window. No canary before `earliest`; `canaries` are testing it, the last one since `sent_at`.

    It `is_doubted` if it was reported open moments before it closed.
    """

    earliest: float
    canaries: list[str] = field(default_factory=list)
    sent_at: float = 0.0
    canary_passed: bool = False
    is_doubted: bool = False


@dataclass(slots=True)
class OutageRecord:
    """A scope where nobody answered. Nobody enters before `earliest`; then one canary, and the next after 5 min."""

    earliest: float
    canary: str | None = None


@dataclass(slots=True)
class UsageRecord:
    """The last usage that the provider reported, and the grants since then."""

    reading: int | None = None
    heard_at: float | None = None
    grants_since: int = 0
    asked_at: float | None = None
    unknown_since: float | None = None
    last_gated_grant: float = float("-inf")


@dataclass(slots=True)
class Gates:
    """The gates of all scopes. `broken` creates the error that names the broken promise."""

    settings: GovernorSettings
    broken: Broken
    paused_until: dict[str, float] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    logins: dict[str, OutageRecord] = field(default_factory=dict)
    """Held logins, which one session asks again every hour."""
    windows: dict[str, dict[str, ClosedWindow]] = field(default_factory=dict)
    usage: dict[str, UsageRecord] = field(default_factory=dict)
    outages: dict[str, OutageRecord] = field(default_factory=dict)
    open_reports: dict[tuple[str, str], float] = field(default_factory=dict)
    stated: dict[tuple[str, str], float] = field(default_factory=dict)
    """The earliest reset that was stated of a window, or minus infinity once it has passed or the window reopened."""

    def __post_init__(self) -> None:
        self.usage = {scope: UsageRecord() for scope in self.settings.usage_scopes}

    # -- signals ----------------------------------------------------------------------------------

    def note_report(
        self, scope: str, signal: signals.AnySignal, session: str | None, elapsed: float, wall: float
    ) -> None:
        """Record a signal. `session` is the session of its ticket: the runs of a canary count as the canary."""
        scope = scope_reached(scope, signal.reach)
        speakers = tuple(name for name in (signal.ticket, session) if name is not None)
        match signal:
            case signals.RateLimited() | signals.Overloaded():
                self._note_pause(scope, signal, elapsed)
            case signals.QuotaClosed():
                self._note_closed(scope, signal, speakers, elapsed, wall)
                self._note_stated(scope, signal.window, signal.resets_at, wall)
            case signals.Budget():
                if signal.window is not None and (signal.used_ratio or 0.0) < 1.0:
                    self.open_reports[scope, signal.window] = elapsed
                self._note_stated(scope, signal.window, signal.resets_at, wall)
            case signals.Usage() if scope in self.usage:
                self._note_usage(self.usage[scope], signal, elapsed)
            case signals.Succeeded():
                self.note_canary_passed(speakers)
            case _:
                pass

    def _note_pause(self, scope: str, signal: signals.RateLimited | signals.Overloaded, elapsed: float) -> None:
        seconds = outside_seconds(signal.retry_after)
        if seconds is None and isinstance(signal, signals.RateLimited):
            seconds = self.settings.default_pause
        elif seconds is None:  # many streams that meet the same overload are one refusal
            seconds = 0.0 if elapsed < self.paused_until.get(scope, 0.0) else SHORTEST_OVERLOAD_PAUSE
        until = elapsed + min(seconds, LONGEST_PAUSE_SECONDS)
        self.paused_until[scope] = max(until, self.paused_until.get(scope, elapsed))

    def _note_closed(
        self, scope: str, signal: signals.QuotaClosed, speakers: tuple[str, ...], elapsed: float, wall: float
    ) -> None:
        windows = self.windows.setdefault(scope, {})
        name = signal.window or UNNAMED_WINDOW
        known = windows.get(name)
        if known is not None and known.canaries and not set(known.canaries) & set(speakers):
            return  # the outcome of the present canary decides
        was_open = elapsed <= self.open_reports.get((scope, name), -math.inf) + OPEN_REPORT_SECONDS + SLACK
        is_doubted = was_open or (known is not None and known.is_doubted and not known.canaries)
        wait = _shortest_wait(signal.resets_at, wall)
        wait = min(wait, DOUBTED_SECONDS) if is_doubted else wait
        ahead = self.stated.get((scope, name), math.inf) - wall
        wait = min(wait, max(SHORTEST_LOOK_SECONDS, ahead))
        if ahead <= 0 and known is not None and not known.canaries:
            wait = min(wait, max(0.0, known.earliest - elapsed))  # the look after a missed reset stays where it was
        windows[name] = ClosedWindow(elapsed + wait, is_doubted=is_doubted)

    def _note_stated(self, scope: str, window: str | None, resets_at: float | None, wall: float) -> None:
        """Record a stated reset. One that has passed does not come back when the clock is set back."""
        name = window or UNNAMED_WINDOW
        earliest = min(math.inf if resets_at is None else resets_at, self.stated.get((scope, name), math.inf))
        self.stated[scope, name] = earliest if earliest > wall else -math.inf

    def _note_usage(self, record: UsageRecord, signal: signals.Usage, elapsed: float) -> None:
        record.asked_at = None
        count = signal.concurrent_sessions
        if type(count) is int and count >= 0:
            record.reading, record.heard_at, record.grants_since, record.unknown_since = count, elapsed, 0, None
        elif record.unknown_since is None:
            record.reading, record.unknown_since = None, elapsed

    def note_event(self, event: Event, elapsed: float) -> None:
        """Record what the Governor announces. A pause lasts as long as it says, and a reopening needs a good canary."""
        if event.name == "scope.paused" and event.fields["cause"] == "unreachable" and event.scope is not None:
            self.outages[event.scope] = OutageRecord(elapsed + SHORTEST_OUTAGE_SECONDS)
        elif event.name == "scope.paused" and event.fields["cause"] != "auth" and event.scope is not None:
            until = event.fields["until"]
            assert isinstance(until, float)
            self.paused_until[event.scope] = max(
                elapsed + until - event.at, self.paused_until.get(event.scope, elapsed)
            )
        if event.name == "account.held" and event.scope is not None:
            if event.fields["until"] is None:
                self.held.add(event.scope)
            else:
                self.logins[event.scope] = OutageRecord(elapsed + HELD_LOGIN_SECONDS)
        elif event.name == "scope.paused" and event.fields["cause"] == "auth" and event.scope in self.logins:
            self.logins[event.scope] = OutageRecord(elapsed + HELD_LOGIN_SECONDS)
        elif event.name == "scope.resumed" and event.scope is not None:
            self.logins.pop(event.scope, None)
        elif event.name == "window.reopened" and event.scope is not None:
            name = str(event.fields["window"])
            closed = self.windows.get(event.scope, {}).pop(name, None)
            self.stated[event.scope, name] = -math.inf
            if closed is not None and not closed.canary_passed:
                raise self.broken(f"window {name} of {event.scope} reopened without a canary that passed")

    def note_poll(self, scope: str, elapsed: float, someone_waits: bool) -> None:
        record = self.usage[scope]
        if record.asked_at is not None and elapsed < record.asked_at + self.settings.usage_timeout - SLACK:
            raise self.broken(f"a second usage poll of {scope} while one is under way")
        if not someone_waits:
            raise self.broken(f"a usage poll of {scope} though nobody waits there")
        if record.asked_at is not None and record.unknown_since is None:
            record.unknown_since = elapsed
        record.asked_at = elapsed

    # -- slots ------------------------------------------------------------------------------------

    def note_canary_passed(self, speakers: tuple[str, ...]) -> None:
        for closed in self._closed_windows():
            if set(closed.canaries) & set(speakers):
                closed.canary_passed = True

    def note_answer(self, scopes: Iterable[str]) -> None:
        """Record an answer of the provider: it ends an outage."""
        for scope in scopes:
            self.outages.pop(scope, None)

    def note_canary_gone(self, ticket_id: str) -> None:
        for outage in (*self.outages.values(), *self.logins.values()):
            if outage.canary == ticket_id:
                outage.canary, outage.earliest = None, -math.inf
        for closed in self._closed_windows():
            if ticket_id in closed.canaries:
                if ticket_id == closed.canaries[-1]:
                    closed.sent_at = -math.inf  # another canary may go at once
                closed.canaries.remove(ticket_id)

    def _closed_windows(self) -> list[ClosedWindow]:
        return [closed for windows in self.windows.values() for closed in windows.values()]

    def check_grant(self, ticket: Ticket, elapsed: float) -> None:
        """Reject a grant in a paused, held or closed scope. A closed window admits one canary at a time."""
        for scope in ticket.scopes:
            if elapsed < self.paused_until.get(scope, 0.0) - SLACK:
                left = self.paused_until[scope] - elapsed
                raise self.broken(f"{ticket.id} granted in {scope}, which is paused for another {left:.3f} s")
            if scope in self.held:
                raise self.broken(f"{ticket.id} granted in {scope}, which is held")
            for records, state in ((self.outages, "cannot be reached"), (self.logins, "has a held login")):
                if scope in records:
                    self._check_outage(ticket, scope, records[scope], elapsed, state)
            for name, closed in self.windows.get(scope, {}).items():
                self._check_canary(ticket, scope, name, closed, elapsed)

    def _check_outage(self, ticket: Ticket, scope: str, outage: OutageRecord, elapsed: float, state: str) -> None:
        if outage.canary is not None and ticket.parent == outage.canary:
            return
        if elapsed < outage.earliest - SLACK:
            raise self.broken(f"{ticket.id} granted in {scope}, which {state}, beside {outage.canary}")
        outage.canary, outage.earliest = ticket.id, elapsed + OUTAGE_CANARY_SECONDS

    def _check_canary(self, ticket: Ticket, scope: str, name: str, closed: ClosedWindow, elapsed: float) -> None:
        if closed.canaries:
            if ticket.parent in closed.canaries:
                return  # the runs of a canary session are the probe
            if elapsed < closed.sent_at + CANARY_SECONDS - SLACK:
                raise self.broken(f"{ticket.id} granted while a canary is out in window {name} of {scope}")
        if elapsed < closed.earliest - SLACK:
            left = closed.earliest - elapsed
            raise self.broken(f"{ticket.id} granted in window {name} of {scope}, {left:.3f} s before the first canary")
        closed.canaries.append(ticket.id)
        closed.sent_at = elapsed

    def note_grant(self, placed: list[str]) -> None:
        """Record a grant. `placed` are the scopes in which it takes a place of its own."""
        for scope in placed:
            if scope in self.usage:
                self.usage[scope].grants_since += 1

    def check_gated_grant(self, ticket: Ticket, scope: str, limit: int, elapsed: float) -> None:
        """Check a grant behind the usage gate: a fresh reading with room, or one per interval if usage is unknown."""
        record = self.usage[scope]
        interval = self.settings.usage_interval
        if record.reading is not None and record.heard_at is not None and elapsed <= record.heard_at + interval + SLACK:
            if record.reading + record.grants_since + 1 > limit:
                raise self.broken(
                    f"{ticket.id} granted in {scope}: the reading {record.reading} and {record.grants_since} "
                    f"later grants leave nothing of {limit}"
                )
        elif record.unknown_since is None and not self._poll_is_overdue(record, elapsed):
            raise self.broken(f"{ticket.id} granted in {scope} from the queue without a fresh usage reading")
        elif elapsed < record.last_gated_grant + interval - SLACK:
            raise self.broken(f"{ticket.id} granted in {scope}: usage is unknown, and one has entered this second")
        record.last_gated_grant = elapsed

    def _poll_is_overdue(self, record: UsageRecord, elapsed: float) -> bool:
        return record.asked_at is not None and elapsed >= record.asked_at + self.settings.usage_timeout - SLACK


def _shortest_wait(resets_at: float | None, wall: float) -> float:
    """Return how long a window stays closed at least: until its reset or first probe, if it is plausible."""
    if resets_at is None or resets_at > wall + LONGEST_WINDOW_SECONDS:
        return FIRST_BACKOFF_SECONDS
    return min(max(0.0, resets_at - wall), FIRST_PROBE_SECONDS)
