"""Metrics for Prometheus: gauges read from the Governor and the store on request, and counters kept by the engine.

The number of series is bounded: names of scopes and campaigns come from outside, so a fixed number of them have series
of their own and the others share one, `other`.
"""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from paceline.api.standby import StandbyEngine
from paceline.core import ScopeStatus
from paceline.core.values.scopes import canonical_model
from paceline.engine.engine import Engine
from paceline.engine.settings import CampaignAccounts
from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS
from paceline.metrics import MOST_NAMES, OTHER, Histogram, LabelledCounter, MetricsRegistry
from paceline.store import Campaign, StoredEvent
from paceline.views.timeline import new_limit

PREFIX = "paceline_"
UNIT_STATES = ("todo", "running", "done", "unverified", "quarantined", "held", "cancelled")

Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, float]]


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
        in_flight = ((label(status.scope), status.in_flight) for status in statuses)
        limits = (
            ((*label(status.scope), kind), limit)
            for status in statuses
            for kind, limit in _limits(status).items()
            if limit is not None
        )
        waits = (((*label(scope), reason), count) for (scope, reason), count in waiting.items())
        windows = [(status.scope, window) for status in statuses for window in status.windows]
        label_window = self._windows.choose((scope, window.name) for scope, window in windows)
        used = (
            (label_window(scope, window.name), window.used_ratio)
            for scope, window in windows
            if window.used_ratio is not None
        )
        yield _gauge("in_flight", "Live slots", ("scope",), in_flight)
        yield _gauge("limit", "How many slots a scope may hold; absent where unlimited", ("scope", "kind"), limits)
        yield _gauge("waiting", "Waiting tickets, by what binds the first of their lane", ("scope", "reason"), waits)
        yield from _rates_of(statuses, label)
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
        parked = [
            (_common_scope(campaigns[name], engine.settings.campaign_accounts), each.parked)
            for name, each in counts.items()
            if name in campaigns
        ]
        label_scope = self._parked.choose((scope,) for scope, _ in parked)
        samples = ((label_scope(scope), count) for scope, count in parked)
        yield _gauge(
            "parked",
            "Parked units, by the scope that all accounts of their campaign share",
            ("scope",),
            samples,
        )


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


def _rates_of(statuses: Sequence[ScopeStatus], label: Callable[..., Labels]) -> Iterable[Metric]:
    rates = [((*label(status.scope), rate.kind, rate.source), rate) for status in statuses for rate in status.rates]
    labels = ("scope", "kind", "source")
    yield _gauge("rate_used", "Requests or tokens used of a rate", labels, [(name, rate.used) for name, rate in rates])
    yield _gauge("rate_limit", "Size of a rate", labels, [(name, rate.limit) for name, rate in rates])
    paces = [(label(status.scope), status.pace.interval) for status in statuses if status.pace is not None]
    yield _gauge("pace_seconds", "Seconds between two runs by a learnt pace", ("scope",), paces, combine=max)
    paused = [(label(status.scope), 1.0) for status in statuses if status.paused]
    yield _gauge("paused", "Scopes that are paused", ("scope",), paused)


def _limits(status: ScopeStatus) -> dict[str, int | None]:
    return {
        "configured": status.configured,
        "platform": status.platform,
        "adaptive": status.adaptive,
        "effective": status.limit,
    }


def _common_scope(campaign: Campaign, accounts: CampaignAccounts) -> str:
    """Return the narrowest scope that every session of the campaign occupies, whichever account it runs on."""
    found = [accounts.find(each) for each in accounts.ids_of(campaign)]
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
    """Return a gauge. Samples with the same labels are combined, as those of `other` are."""
    values: dict[tuple[str, ...], float] = {}
    for key, value in samples:
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
