"""What the routes work on: the engine of this process with its settings and spool, and the background readers.

In a process that stands by, a reader of the store takes the engine's place: everything comes from the store, as the
leader has stored it. Changes are passed on to the leader (`leader_proxy.py`). The background readers run all the time:
they read the engine's events.

Metrics for Prometheus are gauges read from the Governor and the store on request, and counters kept by the engine. The
number of series is bounded: names of scopes and campaigns come from outside, so a fixed number of them have series of
their own and the others share one, `other`.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from zoneinfo import ZoneInfo

from litestar.di import NamedDependency
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from paceline.api.event_stream import EventStream, EventTail
from paceline.clock import Clock
from paceline.core import Deferred, Governor, ScopeStatus
from paceline.core.values.scopes import canonical_model
from paceline.engine.capacity.governor_state import OfflineState
from paceline.engine.capacity.leases import Leases
from paceline.engine.dispatch.ticket_queues import backlog
from paceline.engine.engine import Engine
from paceline.engine.settings import CampaignAccounts, EngineSettings
from paceline.engine.store_outage import store_trouble
from paceline.errors import LeadLost, StoreError
from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS
from paceline.executors.spool import Spool
from paceline.hosts.messages import HostState, stored_host_states
from paceline.leadership.election import present_leader
from paceline.metrics import MOST_NAMES, OTHER, Histogram, LabelledCounter, MetricsRegistry
from paceline.settings import Settings
from paceline.store import Balances, Campaign, Store, StoredEvent
from paceline.views.capacity import FleetState, is_busy, read_fleet
from paceline.views.gateway_calls import GatewayCalls, GatewayCounts
from paceline.views.status import VERSION, EngineState, Throughput
from paceline.views.timeline import HOUR_SECONDS, LONGEST_HOURS, Timeline, TimelineView, last_id_before, new_limit
from paceline.views.units import SessionView, session_view, stored_session_view
from paceline.views.why import stored_waits

if TYPE_CHECKING:
    from paceline.api.otel_spans import Traces


log = logging.getLogger("paceline.api")

FRESH_SECONDS: Final = 1.0
"""How old the state may be that requests see: it is rebuilt from the store, which takes milliseconds."""


class StandbyEngine:
    """In place of the engine, for an API whose process does not lead."""

    def __init__(self, store: Store, settings: EngineSettings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.metrics = MetricsRegistry()
        self.limiter = self  # in place of it, for the statuses of scopes
        self._state: OfflineState | None = None
        self._read_at = 0.0

    @property
    def governor(self) -> Governor:
        """The Governor as the leader has stored it, with a ticket for everything that runs."""
        now = self.clock.now()
        if self._state is None or not 0 <= now - self._read_at < FRESH_SECONDS:
            self._state, self._read_at = OfflineState(self.store, self.settings, now), now
        return self._state.governor

    @property
    def leases(self) -> Leases:
        self._refuse()

    def statuses(self) -> list[ScopeStatus]:
        return self.governor.statuses(now=self.clock.now())

    def scope_status(self, scope: str) -> ScopeStatus | None:
        return self.governor.status(scope, now=self.clock.now())

    def wait_reasons(self) -> dict[str, Deferred]:
        return stored_waits(self.store)

    def listen(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """Return a function that does nothing: events of other processes are found by polling."""
        return lambda: None

    def apply_commands(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LeadLost("this process stands by; the leader carries out changes")


# -- metrics -----------------------------------------------------------------------------------------

PREFIX = "paceline_"
UNIT_STATES = ("todo", "running", "done", "unverified", "quarantined", "held", "cancelled")

Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, float | None]]
LIMITS: Final = {"configured": "configured", "platform": "platform", "adaptive": "adaptive", "effective": "limit"}
"""The kinds of limits, and the fields of a status that have them."""


def encode(families: list[Metric], accept: str) -> tuple[bytes, str]:
    """Return the metrics as text, and its media type. Takes milliseconds per hundred scopes; safe in a thread."""
    encoder, media_type = choose_encoder(accept)
    return encoder(_Collected(families)), media_type


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class EngineMetrics:
    """The metrics of one engine, its API and its gateway."""

    def __init__(self, engine: Engine | StandbyEngine) -> None:
        self._engine = engine
        self._metrics = engine.metrics
        self._scopes = SeriesNames()
        self._windows = SeriesNames()
        self._campaigns = SeriesNames()
        self._parked = SeriesNames()
        self._started = {unit.id: unit.started_at or 0.0 for unit in engine.store.running_units()}

    def count(self, events: Sequence[StoredEvent]) -> None:
        """Count new events, which come in order."""
        for stored in events:
            event = stored.event
            if event.name in ATTEMPT_STARTS:
                self._started[event.unit or ""] = event.at
            elif event.name in ATTEMPT_ENDS:
                started_at = self._started.pop(event.unit or "", None)
                if started_at is not None:
                    self._metrics.unit_seconds.observe(max(0.0, event.at - started_at))
            elif event.scope is not None and (limits := new_limit(event)) is not None:
                _count_limits(self._metrics, event.name, event.scope, *limits)

    def collect(self) -> list[Metric]:
        return [*self._of_scopes(), *self._of_units(), *_counted(self._metrics)]

    def _of_scopes(self) -> Iterable[Metric]:
        engine = self._engine
        waiting = engine.governor.waiting(now=engine.clock.now())
        statuses = sorted(engine.limiter.statuses(), key=lambda status: status.configured is None)
        label = self._scopes.choose((status.scope,) for status in statuses)
        scopes = [(label(status.scope), status) for status in statuses]
        windows = [(status.scope, window) for status in statuses for window in status.windows]
        label_window = self._windows.choose((scope, window.name) for scope, window in windows)
        limits = (((*name, kind), getattr(each, field)) for name, each in scopes for kind, field in LIMITS.items())
        waits = (((*label(scope), reason), count) for (scope, reason), count in waiting.items())
        rates = [((*name, rate.kind, rate.source), rate) for name, each in scopes for rate in each.rates]
        rates_used = ((name, rate.used) for name, rate in rates)
        paces = ((name, None if each.pace is None else each.pace.interval) for name, each in scopes)
        paused = ((name, 1.0 if each.paused else None) for name, each in scopes)
        used = ((label_window(scope, window.name), window.used_ratio) for scope, window in windows)
        rated = ("scope", "kind", "source")
        yield _gauge("in_flight", "Live slots", ("scope",), ((name, each.in_flight) for name, each in scopes))
        yield _gauge("limit", "How many slots a scope may hold; absent where unlimited", ("scope", "kind"), limits)
        yield _gauge("waiting", "Waiting tickets, by what binds the first of their lane", ("scope", "reason"), waits)
        yield _gauge("rate_used", "Requests or tokens used of a rate", rated, rates_used)
        yield _gauge("rate_limit", "Size of a rate", rated, ((name, rate.limit) for name, rate in rates))
        yield _gauge("pace_seconds", "Seconds between two runs by a learnt pace", ("scope",), paces, combine=max)
        yield _gauge("paused", "Scopes that are paused", ("scope",), paused)
        yield _gauge("window_used_ratio", "Used share of a quota window", ("scope", "window"), used, combine=max)

    def _of_units(self) -> Iterable[Metric]:
        engine = self._engine
        counts = engine.store.counts()
        label = self._campaigns.choose((name,) for name in counts)
        units = (
            ((*label(name), state), getattr(each, state)) for name, each in counts.items() for state in UNIT_STATES
        )
        yield _gauge("units", "Units by state; parked ones are among the todo", ("campaign", "state"), units)
        campaigns = {campaign.name: campaign for campaign in engine.store.campaigns()}
        accounts = engine.settings.campaign_accounts
        known = [(campaigns[name], each.parked) for name, each in counts.items() if name in campaigns]
        parked = [(_common_scope(campaign, accounts), count) for campaign, count in known]
        label_scope = self._parked.choose((scope,) for scope, _ in parked)
        samples = ((label_scope(scope), count) for scope, count in parked)
        what = "Parked units, by the scope that all accounts of their campaign share"
        yield _gauge("parked", what, ("scope",), samples)


class SeriesNames:
    """The names that have series of their own. A name keeps its series for as long as it exists."""

    def __init__(self) -> None:
        self._names: dict[Labels, None] = {}

    def choose(self, names: Iterable[Labels]) -> Callable[..., Labels]:
        """Return a function from a name to its labels. New names get series in the order given, while there is room."""
        current = dict.fromkeys(names)
        kept = [name for name in self._names if name in current]
        new = [name for name in current if name not in self._names]
        self._names = dict.fromkeys((kept + new)[:MOST_NAMES])
        return lambda *name: name if name in self._names else (OTHER,) * len(name)


def _common_scope(campaign: Campaign, accounts: CampaignAccounts) -> str:
    """Return the narrowest scope that every session of the campaign occupies, whichever account it runs on."""
    found = [accounts.of(campaign, each) for each in accounts.ids_of(campaign)]
    known = [account for account in found if account is not None]
    if not known:
        return f"agent:{campaign.agent}"
    if len({account.provider for account in known}) > 1:
        return f"campaign:{campaign.name}"
    if len(known) > 1:
        return known[0].provider
    model = canonical_model(campaign.model) if campaign.model else None
    return "/".join(part for part in (known[0].provider, known[0].name, model) if part)


def _count_limits(metrics: MetricsRegistry, event: str, scope: str, limit: int | None, before: int | None) -> None:
    """Count a change of a scope's effective limit, and a limit that the provider named."""
    if event == "scope.platform_limit":
        metrics.platform_limits.add(scope)
    if limit != before:
        is_up = limit is None or (before is not None and limit > before)
        metrics.limit_changes.add(scope, "up" if is_up else "down")


# -- metric families ----------------------------------------------------------------------------


def _counted(metrics: MetricsRegistry) -> Iterable[Metric]:
    yield CounterMetricFamily(
        f"{PREFIX}grants", "Slots granted to sessions, HTTP clients and the gateway", metrics.grants
    )
    yield _counter("rate_limited", "Rate-limit refusals (429)", metrics.rate_limited)
    yield _counter("platform_limit", "Times that a provider reported its own limit", metrics.platform_limits)
    yield _counter("limit_changes", "Changes of the effective limit", metrics.limit_changes)
    yield _counter("tokens", "Tokens reported by responses through the gateway", metrics.tokens)
    yield _counter("parking_lost_tokens", "Context tokens that resumed sessions paid again", metrics.lost_tokens)
    yield _counter("gateway_retries", "Requests that the gateway retried", metrics.gateway_retries)
    yield _histogram("wait_seconds", "How long granted tickets had waited for their slot", metrics.wait_seconds)
    yield _histogram("unit_seconds", "How long attempts of units took, whatever their outcome", metrics.unit_seconds)
    yield _histogram("pass_seconds", "Duration of the engine's passes", metrics.pass_seconds)
    yield _histogram("gateway_request_seconds", "Duration of gateway requests", metrics.gateway_request_seconds)
    yield _histogram("gateway_wait_seconds", "Part of it spent waiting for a slot", metrics.gateway_wait_seconds)
    yield _histogram("gateway_ttfb_seconds", "Part of it until the upstream answered", metrics.gateway_ttfb_seconds)
    yield _histogram("gateway_overhead_seconds", "Part of it added by the gateway", metrics.gateway_overhead_seconds)


def _gauge(
    name: str,
    what: str,
    labels: Sequence[str],
    samples: Samples,
    combine: Callable[[float, float], float] = lambda one, other: one + other,
) -> Metric:
    """Return a gauge. Samples with the same labels are combined, as those of `other` are; None is no sample."""
    values: dict[tuple[str, ...], float] = {}
    for key, value in samples:
        if value is not None:
            values[key] = combine(values[key], value) if key in values else value
    family = GaugeMetricFamily(PREFIX + name, what, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, what: str, tally: LabelledCounter) -> Metric:
    family = CounterMetricFamily(PREFIX + name, what, labels=tally.labels)
    for key, value in tally.values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, what: str, histogram: Histogram) -> Metric:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(PREFIX + name, what, buckets=buckets, sum_value=histogram.total)


# -- background readers ------------------------------------------------------------------------------

SAMPLE_SECONDS = 1.0
"""How often the timeline reads the Governor: peaks shorter than this do not show."""
STANDBY_SAMPLE_SECONDS = 10.0
"""The same on a standby, which builds the Governor from the store each time."""
OTEL_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTEL_MISSING = "{variable} turns traces on, but OpenTelemetry is not installed: pip install 'paceline[otel]'"


class BackgroundReaders:
    """Reads events from its creation until `close`. Create it on the engine's loop."""

    def __init__(self, engine: Engine | StandbyEngine, environ: Mapping[str, str]) -> None:
        self._engine = engine
        self._tail = EventTail(engine.store, engine.listen, engine.clock)
        self.stream = EventStream(engine.store, self._tail, engine.clock)
        self._metrics = EngineMetrics(engine)
        self._tail.subscribe(self._metrics.count)
        self._timeline = Timeline()
        self._has_history = asyncio.Event()
        # Every process of a fleet reads the events; only the leader sends the traces.
        self._traces = open_traces(environ) if isinstance(engine, Engine) else None
        if self._traces is not None:
            self._tail.subscribe(self._traces.add)
        self._tasks = [self._start(self._tail.run()), self._start(self._fill_timeline())]

    def close(self) -> None:
        """End every stream and stop reading."""
        self.stream.close()
        for task in self._tasks:
            task.cancel()
        if self._traces is not None:
            self._traces.close()

    async def timeline(self, hours: float) -> TimelineView:
        """Return the last hours, once the stored events of the last day have been read."""
        await self._has_history.wait()
        await self._tail.read_new()
        self._timeline.reconcile(self._engine.store)
        self._sample()
        now = self._engine.clock.now()
        return self._timeline.view(now - hours * HOUR_SECONDS, now)

    async def metrics(self) -> list[Metric]:
        """Return every metric, with the newest events counted."""
        await self._tail.read_new()
        return self._metrics.collect()

    async def _fill_timeline(self) -> None:
        """Read the stored events of the last day, then sample what is in flight until cancelled."""
        engine, clock = self._engine, self._engine.clock
        day_ago = clock.now() - LONGEST_HOURS * HOUR_SECONDS
        after = await self._tail.retry(lambda: last_id_before(engine.store, day_ago, self._tail.last))
        await self._tail.replay(self._timeline.add, after=after)
        self._has_history.set()
        seconds = SAMPLE_SECONDS if isinstance(engine, Engine) else STANDBY_SAMPLE_SECONDS
        while True:
            with contextlib.suppress(StoreError):  # on a standby the state comes from the store, which may be away
                self._sample()
            await clock.sleep(seconds)

    def _sample(self) -> None:
        self._timeline.sample(self._engine.clock.now(), self._engine.limiter.statuses())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_log_failure)
        return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a background reader of events has failed and stays stopped", exc_info=error)


# -- traces, which the standard variables of OpenTelemetry turn on ------------------------------------


def open_traces(environ: Mapping[str, str]) -> "Traces | None":
    """Return traces that are exported to where the variables say, or None if they are off or cannot be made."""
    variable = enabled_by(environ)
    if variable is None:
        return None
    try:  # the extra `otel` may not be installed
        from paceline.api import otel_spans

        return otel_spans.exported_traces(service_name=environ.get("OTEL_SERVICE_NAME") or "paceline")
    except ImportError:
        log.warning(OTEL_MISSING.format(variable=variable))
        return None


def enabled_by(environ: Mapping[str, str]) -> str | None:
    """Return the variable that turns traces on, or None if there is none or another one turns them off."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return None if is_off else next((name for name in OTEL_ENDPOINTS if environ.get(name)), None)


# -- what a request needs ---------------------------------------------------------------------------


class ApiContext:
    """Everything that a request may need. `folder` is the base of relative paths in posted plans.

    `since` is when the engine took the lead, or began to stand by.
    """

    def __init__(
        self,
        engine: Engine | StandbyEngine,
        *,
        settings: Settings,
        spool: Spool,
        zone: ZoneInfo,
        environ: Mapping[str, str],
        folder: Path,
        since: float,
    ) -> None:
        self.engine = engine
        self.store: Store = engine.store
        self.settings = settings
        self.spool = spool
        self.zone = zone
        self.environ = environ
        self.folder = folder
        self.leads = isinstance(engine, Engine)
        self._since = since
        self.throughput = Throughput(engine.store)
        self.background = BackgroundReaders(engine, environ)
        self.calls = GatewayCalls()
        """The calls of the gateway beside this API."""
        self.transfers: set[str] = set()
        """The calls for which a worker sends or fetches commits now."""
        self.import_lock = asyncio.Lock()
        """Held while a plan is imported: two imports into one campaign would conflict in the store."""

    def close(self) -> None:
        """End all event streams, fail pending slot requests with "try again", and answer workers that wait."""
        self.background.close()
        if isinstance(self.engine, Engine):
            self.engine.leases.close()
            self.engine.hosts.answer_all()

    def apply_commands(self) -> None:
        """Carry out the stored commands now. If the store fails, the engine's next pass carries them out."""
        try:
            self.engine.apply_commands()
        except StoreError as error:
            log.warning("a command is delayed to the next pass: %s", error)

    def read_fleet(self) -> FleetState:
        """Read what views are built from, and bring the throughput up to date."""
        now = self.now
        self.throughput.catch_up(now)
        return read_fleet(
            self.store,
            self.governor,
            self.settings,
            self.zone,
            statuses=self.statuses(),
            now=now,
        )

    def statuses(self) -> list[ScopeStatus]:
        """Return the scopes that people see: without models that clients have named and no provider has served."""
        return [
            each for each in self.engine.limiter.statuses() if not self.calls.is_unserved(each.scope) or is_busy(each)
        ]

    @property
    def process(self) -> EngineState:
        """This process, and who leads if it stands by."""
        host = socket.gethostname() if self.store.is_shared else None
        return EngineState(
            state="leading" if self.leads else "standby",
            since=self._since,
            version=VERSION,
            pid=os.getpid(),
            host=host,
            leader=None if self.leads else str(present_leader(self.store) or "nobody"),
            trouble=self.trouble,
        )

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored now."""
        return store_trouble(self.settings.home)

    @property
    def leaderless(self) -> str | None:
        """The store, by a name for people, if nobody leads it now."""
        if self.leads:
            return None
        lease = self.store.leader(now=self.now)
        return "this database" if lease is None or lease.seconds <= 0 else None

    @property
    def balances(self) -> Balances:
        """What keys and accounts have spent. The leader knows it, others read it."""
        known = self.calls.balances()
        return Balances(self.store.spend(by_model=False)) if known is None else known

    @property
    def call_counts(self) -> GatewayCounts | None:
        """How many calls the gateway has. Only the leader knows."""
        return self.calls.counts() if self.leads else None

    def sessions(self) -> list[SessionView]:
        """Return the live sessions. A process that stands by knows of them what the store has."""
        if isinstance(self.engine, Engine):
            return [session_view(session) for session in self.engine.live_sessions()]
        campaigns = {campaign.name: campaign for campaign in self.store.campaigns()}
        running = [unit for unit in self.store.running_units() if unit.campaign in campaigns]
        return [stored_session_view(unit, campaigns[unit.campaign]) for unit in running]

    def backlog(self) -> dict[str, int]:
        """Return how many units wait in each scope, beyond those that a ticket waits there for.

        A process that stands by does not know for which units the leader's tickets wait.
        """
        if not isinstance(self.engine, Engine):
            return {}
        return backlog(self.engine.queues.queues.values(), self.store.claimable())

    def host_states(self) -> list[HostState]:
        """Return the other machines. A process that stands by knows of them what the store has."""
        if isinstance(self.engine, Engine):
            return self.engine.hosts.remote_states()
        return stored_host_states(self.store, self.settings.hosts)

    @property
    def governor(self) -> Governor:
        """For reading only: changes go through stored commands."""
        return self.engine.governor

    @property
    def now(self) -> float:
        return self.engine.clock.now()


Context = NamedDependency[ApiContext]
"""The type of the parameter `context` by which a route receives it."""
