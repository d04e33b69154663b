"""The fleet at a glance: campaigns and their progress, the engine, the pool, units, the next resume, other machines.

The progress of a campaign is read from stored events.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Final, Literal

import msgspec

from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import SESSIONS
from paceline.events import ATTEMPT_STARTS
from paceline.hosts.messages import HostCli, HostPresence, HostState, Login
from paceline.store import Campaign, Store, UnitCounts, UnitTotals
from paceline.views.capacity import FleetState, next_resume_at, quota_line
from paceline.views.gateway_calls import GatewayCounts

HOUR_SECONDS = 3600.0
PAGE_EVENTS = 1000
MOST_PAGES = 20
"""Pages that one call reads. A reader that comes back late has many events to read, and the engine shares its loop."""
DONE = "unit.done"
SHORTEST_SPAN_SECONDS = 60.0
"""A pace is measured over a minute at least: the first unit after a second is no 3,600 an hour."""


class CompletionRate(msgspec.Struct, frozen=True, kw_only=True):
    """`per_hour` counts the units done in the last hour. `eta` is when the rest will be done, None if unknown.

    `pace` is how many units an hour brings: the same number, unless the work began less than an hour ago.
    """

    per_hour: int
    pace: float
    eta: float | None

    def eta_after(self, resumes_at: float | None) -> float | None:
        """Return `eta`, but not before the next parked unit resumes: a rate of the past knows nothing of a window."""
        return None if self.eta is None else max(self.eta, resumes_at or 0.0)


class Throughput:
    """Starts and completions of the last hour. `last_event_id` is the last event that it has counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._done: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()
        self._started: dict[str, float] = {}
        self.last_event_id = max(0, store.append_events([]) - PAGE_EVENTS * MOST_PAGES)

    def catch_up(self, now: float) -> None:
        """Count the events that were stored since the last call, and drop those older than an hour."""
        for _ in range(MOST_PAGES):
            events = self._store.events(after=self.last_event_id, limit=PAGE_EVENTS)
            for stored in events:
                self._count(stored.event.name, stored.event.at, stored.event.unit or "")
            if events:
                self.last_event_id = events[-1].id
            if len(events) < PAGE_EVENTS:
                break
        while self._done and self._done[0][0] <= now - HOUR_SECONDS:
            self._counts[self._done.popleft()[1]] -= 1

    def _count(self, name: str, at: float, unit: str) -> None:
        campaign = unit.partition("/")[0]
        if name == DONE:
            self._done.append((at, campaign))
            self._counts[campaign] += 1
        elif name in ATTEMPT_STARTS:
            self._started.setdefault(campaign, at)

    def rate(self, left: Mapping[str, int], now: float, campaign: str | None = None) -> CompletionRate:
        """Return the rate of one campaign, or of all together. `left` are the units that are still to be done."""
        names = [name for name, units in self._counts.items() if units] if campaign is None else [campaign]
        done = sum(self._counts[name] for name in names)
        starts = [self._started[name] for name in names if name in self._started]
        span = HOUR_SECONDS  # since the first of these campaigns began, at most an hour ago
        if starts:
            span = min(HOUR_SECONDS, max(SHORTEST_SPAN_SECONDS, now - min(starts)))
        return CompletionRate(per_hour=done, pace=done * HOUR_SECONDS / span, eta=self._eta(left, now))

    def _eta(self, left: Mapping[str, int], now: float) -> float | None:
        """Extrapolate from the campaigns that have units left: finished ones say nothing about the rest."""
        unfinished = [name for name, units in left.items() if units]
        done = sum(self._counts[name] for name in unfinished)
        starts = [self._started[name] for name in unfinished if name in self._started]
        if not done or not starts:
            return None
        span = min(HOUR_SECONDS, max(1.0, now - min(starts)))
        return now + sum(left.values()) * span / done


class CampaignSummary(Campaign, frozen=True, kw_only=True):
    """A stored campaign with the number of its units in each state."""

    units: UnitCounts

    @property
    def is_finished(self) -> bool:
        """Whether it is active and has nothing left to run."""
        return self.state == "active" and not self.units.todo and not self.units.running

    @property
    def shown_state(self) -> str:
        """The state as people are shown it."""
        return "finished" if self.is_finished else self.state


class CampaignView(CampaignSummary, frozen=True, kw_only=True):
    """A campaign and its progress. `quota` is a sentence for people while a quota window is spent."""

    id: str
    running: int
    finished: bool
    throughput: int
    eta: float | None
    quota: str | None


def campaign_summary(campaign: Campaign, counts: UnitCounts) -> CampaignSummary:
    return CampaignSummary(**msgspec.structs.asdict(campaign), units=counts)


def campaign_views(fleet: FleetState, throughput: Throughput) -> list[CampaignView]:
    """Return every campaign of the fleet. `throughput` must have caught up with the store."""
    return [campaign_view(fleet, campaign, throughput) for campaign in fleet.campaigns]


def campaign_view(fleet: FleetState, campaign: Campaign, throughput: Throughput) -> CampaignView:
    """Return one campaign. `throughput` must have caught up with the store."""
    summary = campaign_summary(campaign, fleet.counts_of(campaign.name))
    left = summary.units.todo + summary.units.running
    waiting = {campaign.name: left if campaign.state == "active" else 0}
    rate = throughput.rate(waiting, fleet.now, campaign.name)
    resumes_at = next_resume_at(fleet, [campaign]) if summary.units.parked else None
    return CampaignView(
        **msgspec.structs.asdict(summary),
        id=campaign.name,
        running=summary.units.running,
        finished=summary.is_finished,
        throughput=rate.per_hour,
        eta=rate.eta_after(resumes_at),
        quota=quota_line(fleet, campaign) if left else None,
    )


# -- the engine, the pool and the totals -------------------------------------------------------------

VERSION: Final = version("paceline")


class EngineState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An engine. `paused`: it leads, and campaigns are paused and none is active. `standby`: another one leads."""

    state: Literal["leading", "standby", "paused"]
    since: float
    """Since when it leads or stands by."""
    version: str
    pid: int
    host: str | None = None
    """The machine, where several share a store."""
    leader: str | None = None
    """Who leads, if this process stands by."""
    trouble: str | None = None
    """Why nothing can be stored now, so that nothing starts."""


class StoppedEngine(msgspec.Struct, frozen=True, kw_only=True):
    """No engine leads."""

    state: Literal["stopped"] = "stopped"
    since: None = None
    version: str = VERSION
    pid: None = None


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions` is the size, null for no limit. `running` counts sessions; `waiting` and `parked` count units."""

    sessions: int | None
    running: int
    waiting: int
    parked: int


class StatusSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, the pool, the units of all campaigns, and when the next parked unit resumes."""

    engine: EngineState | StoppedEngine
    pool: PoolState
    units: UnitTotals
    next_resume_at: float | None
    gateway: GatewayCounts | None
    """Null where the gateway is another process, which was not asked or did not answer."""


class Status(StatusSummary, frozen=True, kw_only=True):
    """The status under a leading engine.

    `throughput` is how many units were done in the last hour, `eta` when the rest will be at that speed. `pace` is how
    many units an hour brings, also while the work is younger than that.
    """

    engine: EngineState
    throughput: int
    pace: float
    eta: float | None


def read_status_summary(fleet: FleetState, leader: EngineState | None, gateway: GatewayCounts | None) -> StatusSummary:
    """Return the status. `leader` is None where no engine leads, `gateway` where nothing is known of its calls."""
    total = total_counts(fleet.counts.values())
    # Only campaigns with units that wait or run can be paused.
    counts = ((each, fleet.counts_of(each.name)) for each in fleet.campaigns)
    unfinished = [each for each, count in counts if count.todo or count.running]
    return StatusSummary(
        engine=StoppedEngine() if leader is None else engine_state(unfinished, leader),
        pool=PoolState(
            sessions=fleet.governor.get_limit(SESSIONS),
            running=fleet.scopes[SESSIONS].in_flight if SESSIONS in fleet.scopes else total.running,
            waiting=total.todo - total.parked,
            parked=total.parked,
        ),
        units=UnitTotals(**fields_of(UnitTotals, total)),
        next_resume_at=next_resume_at(fleet, fleet.campaigns),
        gateway=gateway,
    )


def read_status(
    fleet: FleetState, leader: EngineState, throughput: Throughput, gateway: GatewayCounts | None
) -> Status:
    """Return the status with the throughput, which must have caught up with the store."""
    summary = read_status_summary(fleet, leader, gateway)
    rate = completion_rate(fleet, throughput)
    return Status(
        **msgspec.structs.asdict(summary),
        throughput=rate.per_hour,
        pace=rate.pace,
        eta=rate.eta_after(summary.next_resume_at),
    )


def completion_rate(fleet: FleetState, throughput: Throughput) -> CompletionRate:
    """Return how fast the active campaigns get done together."""
    active = [campaign.name for campaign in fleet.campaigns if campaign.state == "active"]
    left = {name: fleet.counts_of(name).todo + fleet.counts_of(name).running for name in active}
    return throughput.rate(left, fleet.now)


def engine_state(campaigns: Iterable[Campaign], engine: EngineState) -> EngineState:
    """Return the engine, `paused` where that is so.

    An engine is `paused` only where a person paused what it would run: resuming would start something. With nothing
    but finished or cancelled campaigns it leads and waits for work.
    """
    states = {campaign.state for campaign in campaigns}
    is_paused = engine.state == "leading" and "paused" in states and "active" not in states
    return msgspec.structs.replace(engine, state="paused") if is_paused else engine


def total_counts(counts: Iterable[UnitCounts]) -> UnitCounts:
    each = list(counts)
    return UnitCounts(**{name: sum(getattr(count, name) for count in each) for name in UnitCounts.__struct_fields__})


# -- other machines ----------------------------------------------------------------------------------

MOST_PROBLEMS: Final = 3
"""How many problems of logins a row names. One account that expires has the same problem on every host."""


class HostSummary(HostPresence, frozen=True, kw_only=True):
    """What every form of a host has. Times are wall time of the leader, sizes are bytes."""

    max_sessions: int | None = None
    labels: list[str]
    hostname: str | None = None
    memory: int | None = None
    free_memory: int | None = None
    leaves_at: float | None = None
    clis: Sequence[HostCli] = ()


class HostView(HostSummary, frozen=True, kw_only=True):
    """One host. `problem` says why nothing starts there."""

    launcher: str | None
    host_lease: float
    version: str | None = None
    home: str | None = None
    cpus: int | None = None
    load: float | None = None
    joined_at: float | None = None
    logins: Sequence[Login] = ()
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class HostRow(HostSummary, frozen=True, kw_only=True):
    """One host in a table: what is enough to see whether it is there and works.

    `logins` is the number of accounts that it can use; `login_problems` has a few of the others.
    """

    logins: int
    login_problems: list[str]


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """Every known host, also those whose workers never joined."""

    hosts: list[HostView]


def host_views(states: Iterable[HostState]) -> list[HostView]:
    """Return what people are shown of the hosts."""
    return [_host_view(state) for state in states]


def host_rows(states: Iterable[HostState]) -> list[HostRow]:
    """Return the table of hosts. Its size does not grow with the number of accounts."""
    return [_host_row(_host_view(state)) for state in states]


def _host_row(view: HostView) -> HostRow:
    problems = [f"{login.account}: {login.problem}" for login in view.logins if login.problem is not None]
    fields = fields_of(HostSummary, view) | {"clis": [cli for cli in view.clis if cli.version is not None]}
    return HostRow(**fields, logins=len(view.logins) - len(problems), login_problems=problems[:MOST_PROBLEMS])


def _host_view(state: HostState) -> HostView:
    settings, facts = state.settings, state.facts
    known = fields_of(HostView, settings, state, state.load, facts)
    labels = {*settings.labels, *(facts.labels if facts is not None else ())}
    own = {"home": None if facts is None else facts.home, "labels": sorted(labels)}
    return HostView(**known | own)
