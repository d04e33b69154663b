"""A unit's life as a trace: from the events of a real engine to the spans that an exporter gets."""

import logging
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from paceline.api import otel_spans
from paceline.api.context import enabled_by, open_traces
from paceline.api.otel_spans import Traces
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected, retry
from paceline.simulation.executor import Run
from paceline.store import StoredEvent
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


class Exported:
    """Traces whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = Traces(provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def take(self, *events: Event) -> None:
        self.traces.add([StoredEvent(number, event) for number, event in enumerate(events, 1)])


def started(unit: str, at: float, name: str = "unit.started") -> Event:
    return Event(name, at, "anthropic/max-1/opus-4-6", unit, {"attempt": "engine1-1", "session_id": None})


def ended(unit: str, at: float, how: str, reason: str = "") -> Event:
    return Event(f"unit.{how}", at, None, unit, {"reason": reason, "resume_at": None, "attempts": 1})


def span_events(span: ReadableSpan) -> list[tuple[str, float]]:
    return [(event.name, event.timestamp / 1e9) for event in span.events]


async def test_a_unit_that_was_parked_and_resumed_is_one_trace_with_two_tries() -> None:
    reset = NOW + HOUR

    def script(launch: Launch) -> Run:
        if harness.clock.now() < reset:
            return Run(
                stdout=init() + answer() + retry(20.0), later=((60.0, rejected(reset)),), exit_code=1, seconds=600.0
            )
        return Run(stdout=init() + answer(), later=((60.0, done()),), seconds=60.0)

    async with EngineHarness(script, pool=1) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR)
        exported = Exported()
        exported.traces.add(harness.store.events(limit=10_000))
        happened = {event.name: event.at for event in harness.events("unit.parked", "unit.done")}

    *tries, unit = exported.spans
    assert unit.name == "unit"
    assert dict(unit.attributes or {}) == {
        "paceline.campaign": "night",
        "paceline.unit": "night/u0",
        "paceline.ending": "done",
    }
    assert ("unit.parked", happened["unit.parked"]) in span_events(unit)
    assert ((unit.start_time or 0) / 1e9, (unit.end_time or 0) / 1e9) == (NOW, happened["unit.done"])
    assert unit.parent is None
    assert [(span.name, span.parent) for span in tries] == [("try", unit.get_span_context())] * len(tries)
    first, last = dict(tries[0].attributes or {}), dict(tries[-1].attributes or {})
    assert first == {
        "paceline.campaign": "night",
        "paceline.unit": "night/u0",
        "paceline.provider": "anthropic",
        "paceline.account": "max-1",
        "paceline.model": "opus-4-6",
        "paceline.attempt": harness.executor.started[0].attempt_id,
        "paceline.ending": "parked",
    }
    assert (last["paceline.ending"], last["paceline.session_id"]) == ("done", "s1")
    assert "scope.paused" in {name for name, _ in span_events(tries[0])}
    assert "window.closed" in {name for name, _ in (*span_events(tries[0]), *span_events(unit))}


def test_a_unit_that_failed_for_good_is_an_error() -> None:
    exported = Exported()

    exported.take(
        started("n/a", 1.0),
        ended("n/a", 2.0, "failed", "exit code 1"),
        started("n/a", 3.0),
        ended("n/a", 4.0, "quarantined", "exit code 2"),
    )

    assert [(span.name, span.status.is_ok, span.status.description) for span in exported.spans] == [
        ("try", False, "exit code 1"),
        ("try", False, "exit code 2"),
        ("unit", False, "exit code 2"),
    ]


def test_a_unit_without_an_account_has_no_provider() -> None:
    exported = Exported()

    exported.take(Event("unit.started", 1.0, "agent:command", "n/a", {"attempt": "x"}), ended("n/a", 2.0, "done"))

    assert dict(exported.spans[0].attributes or {}) == {
        "paceline.campaign": "n",
        "paceline.unit": "n/a",
        "paceline.attempt": "x",
        "paceline.ending": "done",
    }


def test_what_is_open_at_the_end_is_sent_too() -> None:
    exported = Exported()
    exported.take(started("n/a", 1.0), started("n/b", 2.0), ended("n/b", 3.0, "parked"))

    exported.traces.close()

    assert [(span.name, (span.attributes or {})["paceline.ending"]) for span in exported.spans] == [
        ("try", "parked"),
        ("try", "engine stopped"),
        ("unit", "engine stopped"),
        ("unit", "engine stopped"),
    ]


def test_a_start_without_the_end_before_it_ends_the_lost_try() -> None:
    exported = Exported()

    exported.take(started("n/a", 1.0), started("n/a", 5.0, "unit.resumed"), ended("n/a", 6.0, "done"))

    assert [(span.attributes or {})["paceline.ending"] for span in exported.spans] == ["lost", "done", "done"]


def test_events_of_units_that_were_not_seen_to_start_are_passed_over() -> None:
    exported = Exported()

    exported.take(ended("n/a", 1.0, "done"), Event("scope.paused", 1.0, "anthropic"), ended("n/b", 1.0, "held"))

    assert exported.spans == []


def test_units_that_wait_without_end_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel_spans, "MOST_OPEN", 3)
    exported = Exported()

    exported.take(*(started(f"n/{number}", number) for number in range(5)))

    ends = [span.attributes or {} for span in exported.spans if span.name == "unit"]
    assert [(end["paceline.unit"], end["paceline.ending"]) for end in ends] == [
        ("n/0", "not followed any more"),
        ("n/1", "not followed any more"),
    ]


# -- asking for them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, None),
        (ENDPOINT, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, None),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
    ],
)
def test_the_standard_variables_ask_for_traces(environ: dict[str, str], asked: str | None) -> None:
    assert enabled_by(environ) == asked


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_without_the_extra_it_is_said_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "paceline.api.otel_spans")
    monkeypatch.setitem(sys.modules, missing, None)

    with caplog.at_level(logging.WARNING, "paceline.api"):
        assert open_traces(ENDPOINT) is None
        assert open_traces({}) is None

    assert caplog.messages == [
        "OTEL_EXPORTER_OTLP_ENDPOINT turns traces on, but OpenTelemetry is not installed: pip install 'paceline[otel]'"
    ]
