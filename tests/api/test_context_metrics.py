"""`/metrics`: every number is the Governor's or the store's, names are the contract's, and series are bounded."""

from typing import Any

import msgspec
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.daemon import Daemon

from paceline.api.context import EngineMetrics, SeriesNames, encode
from paceline.core import Ticket
from paceline.core.signals import Budget, PlatformLimit, RateLimited
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.metrics import MOST_NAMES, OTHER
from paceline.simulation.agent_transcripts import answer, done, init, rejected, retry, warned
from paceline.simulation.executor import Run
from paceline.store import StoredEvent
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

OPUS = "anthropic/max-1/opus-4-6"
CONTRACT = {
    "in_flight": "gauge",
    "limit": "gauge",
    "waiting": "gauge",
    "wait_seconds": "histogram",
    "grants": "counter",
    "rate_limited": "counter",
    "platform_limit": "counter",
    "limit_changes": "counter",
    "parked": "gauge",
    "units": "gauge",
    "unit_seconds": "histogram",
    "gateway_request_seconds": "histogram",
    "gateway_overhead_seconds": "histogram",
    "window_used_ratio": "gauge",
    "pass_seconds": "histogram",
}
OF_THE_GATEWAY = {
    "gateway_wait_seconds": "histogram",
    "gateway_ttfb_seconds": "histogram",
    "gateway_retries": "counter",
    "tokens": "counter",
}
OF_RATES = {"rate_used": "gauge", "rate_limit": "gauge", "pace_seconds": "gauge", "paused": "gauge"}
OF_PARKING = {"parking_lost_tokens": "counter"}

NAMES_FIRST = ("scope", "campaign")
Values = dict[tuple[str, ...], float]


class Scrape:
    """What Prometheus makes of a page: values by the name of the sample and the labels, scopes and campaigns first."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self._samples: dict[str, Values] = {}
        for family in text_string_to_metric_families(text):
            self.types[family.name.removeprefix("paceline_")] = family.type
            for sample in family.samples:
                values = self._samples.setdefault(sample.name.removeprefix("paceline_"), {})
                labels = sorted(sample.labels, key=lambda label: (label not in NAMES_FIRST, label))
                key = tuple(sample.labels[label] for label in labels)
                assert key not in values, f"{sample.name}{key} is there twice"
                values[key] = sample.value

    def __getitem__(self, name: str) -> Values:
        return self._samples.get(name, {})

    def one(self, name: str) -> float:
        (value,) = self[name].values()
        return value


def scrape(metrics: EngineMetrics) -> Scrape:
    content, media_type = encode(metrics.collect(), "")
    assert media_type.startswith("text/plain")
    return Scrape(content.decode())


def started_harness(**settings: Any) -> EngineHarness:
    """Return a harness whose engine leads and makes no passes."""
    harness = EngineHarness(**settings)
    harness.engine.start()
    return harness


def metrics_of(harness: EngineHarness) -> EngineMetrics:
    """Metrics that have seen every event of the harness."""
    metrics = EngineMetrics(harness.engine)
    metrics.count(harness.store.events(limit=100_000))
    return metrics


async def test_names_and_kinds_are_those_of_the_contract() -> None:
    async with EngineHarness() as harness:
        await harness.run(1.0)

        assert scrape(EngineMetrics(harness.engine)).types == CONTRACT | OF_THE_GATEWAY | OF_PARKING | OF_RATES


async def test_while_units_run_every_gauge_is_what_the_governor_and_the_store_say() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=5, limits={OPUS: 2, "runs": 50}) as harness:
        harness.add_claude("night", 9)
        harness.add("day", 20, max_sessions=4)
        await harness.run(60.0)

        seen = scrape(metrics_of(harness))

        statuses = harness.engine.limiter.statuses()
        assert seen["in_flight"] == {(status.scope,): status.in_flight for status in statuses}
        assert (seen["in_flight"]["sessions",], seen["in_flight"][OPUS,]) == (5, 2)
        expected = {
            (status.scope, kind): limit
            for status in statuses
            for kind, limit in {"configured": status.configured, "effective": status.limit}.items()
            if limit is not None
        }
        assert seen["limit"] == expected
        assert expected["sessions", "effective"] == 5
        counts = harness.store.counts()
        assert seen["units"] == {
            (name, state): getattr(each, state)
            for name, each in counts.items()
            for state in ("todo", "running", "done", "unverified", "quarantined", "held", "cancelled")
        }
        assert seen["units"]["night", "running"] + seen["units"]["day", "running"] == len(harness.running()) == 5
        queued = {status.scope: status.queued for status in statuses}
        assert sum(seen["waiting"].values()) == queued["sessions"] > 0
        assert set(seen["waiting"]) == {(OPUS, "limit"), ("sessions", "limit")}
        assert seen["parked"] == {(OPUS,): 0, ("agent:command",): 0}


async def test_refusals_limits_windows_and_parks_are_reported_by_scope() -> None:
    reset = NOW + HOUR

    def script(launch: Launch) -> Run:
        if launch.env["PACELINE_UNIT"] == "night/u0":
            return Run(stdout=init() + answer() + retry(5.0), seconds=HOUR)
        later = ((20.0, warned(0.9, reset)), (50.0, rejected(reset)))
        return Run(stdout=init() + answer(), later=later, exit_code=1, seconds=600.0)

    async with EngineHarness(script, pool=4, limits={OPUS: 4}, heartbeat=5.0) as harness:
        harness.add_claude("night", 2)
        await harness.run(30.0)
        warned_of = scrape(EngineMetrics(harness.engine))
        await harness.run(60.0)
        harness.engine.limiter.report(OPUS, PlatformLimit(limit=2, in_use=2))  # as the gateway does
        harness.engine.limiter.report(OPUS, RateLimited(retry_after=1.0))
        await harness.run(10.0)

        seen = scrape(metrics_of(harness))

        assert warned_of["window_used_ratio"] == {("anthropic/max-1", "5h"): 0.9}
        assert seen["rate_limited_total"] == {(OPUS,): 2}
        assert seen["platform_limit_total"] == {(OPUS,): 1}
        assert [event.fields["limit"] for event in harness.events("scope.limit_reduced")] == [3, 1]
        assert seen["limit_changes_total"] == {(OPUS, "down"): 3}
        status = harness.scope(OPUS)
        assert {kind: value for (scope, kind), value in seen["limit"].items() if scope == OPUS} == {
            "configured": status.configured,
            "platform": status.platform,
            "adaptive": status.adaptive,
            "effective": status.limit,
        }
        assert seen["parked"] == {(OPUS,): harness.store.counts()["night"].parked}
        assert seen["parked"][OPUS,] == 1


async def test_grants_waits_tries_and_passes_are_counted_and_timed() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + answer() + done(), seconds=100.0), pool=2) as harness:
        harness.add_claude("night", 6)
        await harness.run(HOUR)
        slot = await harness.engine.limiter.acquire("umans")
        harness.engine.metrics.granted(slot.waited)  # as the gateway does

        seen = scrape(metrics_of(harness))

        tries = [event.at for event in harness.events("unit.started", "unit.done")]
        assert seen.one("grants_total") == seen.one("wait_seconds_count") == 7
        assert seen["unit_seconds_count"] == {(): 6}
        assert seen["unit_seconds_sum"] == {(): 600.0}
        assert len(tries) == 12
        assert seen["unit_seconds_bucket"]["60.0",] == 0
        assert seen["unit_seconds_bucket"]["180.0",] == seen["unit_seconds_bucket"]["+Inf",] == 6
        assert seen.one("wait_seconds_sum") > 100.0  # two at a time: later ones wait for the earlier
        assert seen.one("pass_seconds_count") >= 6


async def test_a_try_that_began_before_the_metrics_is_timed_from_its_start() -> None:
    async with EngineHarness(lambda _: Run(seconds=500.0), pool=1) as harness:
        harness.add("night", 1)
        await harness.run(100.0)
        metrics = EngineMetrics(harness.engine)
        known = harness.store.events(limit=1000)[-1].id
        await harness.run(500.0)

        metrics.count(harness.store.events(after=known))

        assert scrape(metrics)["unit_seconds_sum"] == {(): harness.unit("night/u0").ended_at - NOW}  # type: ignore[operator]


def test_what_the_gateway_measures_is_shown() -> None:
    harness = started_harness()
    metrics = harness.engine.metrics
    metrics.gateway_retries.add(OPUS, "rate_limited")
    metrics.tokens.add(OPUS, "output", by=812)
    metrics.gateway_ttfb_seconds.observe(0.3)

    seen = scrape(EngineMetrics(harness.engine))

    assert seen["gateway_retries_total"] == {(OPUS, "rate_limited"): 1}
    assert seen["tokens_total"] == {(OPUS, "output"): 812}
    assert (seen["gateway_ttfb_seconds_bucket"]["0.25",], seen["gateway_ttfb_seconds_bucket"]["0.5",]) == (0, 1)


def test_openmetrics_is_spoken_where_it_is_asked_for() -> None:
    harness = started_harness()
    content, media_type = encode(EngineMetrics(harness.engine).collect(), "application/openmetrics-text; version=1.0.0")

    assert media_type.startswith("application/openmetrics-text")
    assert "paceline_pass_seconds" in {family.name for family in parse_openmetrics(content.decode())}  # type: ignore[no-untyped-call]


# -- bounds -------------------------------------------------------------------------------------------


def test_scopes_that_clients_invent_share_one_series_beyond_the_most() -> None:
    harness = started_harness(limits={"anthropic": 3})
    governor = harness.engine.governor
    for number in range(2 * MOST_NAMES):
        governor.request(Ticket(f"t{number}", ("runs", f"provider-{number}")), now=NOW)
    governor.request(Ticket("ours", ("runs", "anthropic")), now=NOW)
    metrics = EngineMetrics(harness.engine)

    seen, again = scrape(metrics), scrape(metrics)

    assert len(seen["in_flight"]) == MOST_NAMES + 1
    assert sum(seen["in_flight"].values()) == sum(status.in_flight for status in harness.engine.limiter.statuses())
    assert seen["in_flight"]["anthropic",] == 1  # what has a limit of its own comes first
    assert seen["in_flight"][OTHER,] > MOST_NAMES
    assert again["in_flight"] == seen["in_flight"]


def test_campaigns_share_one_series_beyond_the_most() -> None:
    harness = started_harness()
    for number in range(MOST_NAMES + 20):
        harness.add(f"c{number}", 2, agent=f"agent{number}")

    seen = scrape(EngineMetrics(harness.engine))

    assert len({name for name, _ in seen["units"]}) == MOST_NAMES + 1
    assert seen["units"][OTHER, "todo"] == 40
    assert len(seen["parked"]) == MOST_NAMES + 1


def test_events_of_invented_scopes_are_bounded_too() -> None:
    harness = started_harness()
    metrics = EngineMetrics(harness.engine)
    fields: dict[str, object] = {"detected_limit": 2, "effective_cap": 2, "previous_cap": None}
    events = [Event("scope.platform_limit", NOW, f"provider-{number}", None, fields) for number in range(600)]
    metrics.count([StoredEvent(number, event) for number, event in enumerate(events, 1)])

    seen = scrape(metrics)

    assert len(seen["platform_limit_total"]) == MOST_NAMES + 1
    assert seen["platform_limit_total"][OTHER,] == 100
    assert seen["limit_changes_total"][OTHER, "down"] == 100


def test_a_name_keeps_its_series_while_it_is_there_and_makes_room_when_it_goes() -> None:
    shown = SeriesNames()
    names = [(f"n{number}",) for number in range(MOST_NAMES)]
    shown.choose(names)

    label = shown.choose([("new",), *names])
    assert (label("n0"), label("new")) == (("n0",), (OTHER,))

    label = shown.choose([("new",), *names[1:]])
    assert label("new") == ("new",)


def test_windows_that_clients_invent_share_one_series_that_shows_the_fullest() -> None:
    harness = started_harness()
    for number in range(MOST_NAMES + 20):
        harness.engine.limiter.report(f"p{number // 10}", Budget(used_ratio=number / 1000, window=f"w{number}"))

    used = scrape(EngineMetrics(harness.engine))["window_used_ratio"]

    assert len(used) == MOST_NAMES + 1
    assert used["p0", "w7"] == 0.007
    assert used[OTHER, OTHER] == 0.519


# -- over HTTP ----------------------------------------------------------------------------------------


async def test_a_scrape_of_the_running_daemon_agrees_with_its_store(daemon: Daemon) -> None:
    daemon.add("docs", "while [ ! -e go ]; do sleep 0.05; done", "a", "b", "c", "d", "e", "f")
    await daemon.until(lambda: daemon.counts("docs").running == 4)

    answer = await daemon.client.get("/metrics")
    seen = Scrape(answer.text)

    counts = msgspec.structs.asdict(daemon.counts("docs"))
    assert answer.headers["content-type"].startswith("text/plain")
    assert {state: value for (_, state), value in seen["units"].items()} == {
        state: count for state, count in counts.items() if state != "parked"
    }
    assert seen["in_flight"]["sessions",] == 4
    assert seen["waiting"]["sessions", "limit"] == 2

    (daemon.home.path.parent / "go").touch()
    await daemon.until(lambda: daemon.counts("docs").done == 6)
    seen = Scrape((await daemon.client.get("/metrics")).text)
    assert seen.one("unit_seconds_count") == 6
    assert seen["units"]["docs", "done"] == 6
    assert seen.one("grants_total") == 6
