"""The life of a unit as a trace, made from its events alone: a span for the unit, and in it one for each attempt.

Needs the extra `otel`. A trace starts with the first attempt that is seen, and ends with the unit or with the engine.
"""

import threading
from collections.abc import Iterable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from paceline.events import ATTEMPT_ENDS, ATTEMPT_STARTS, Event
from paceline.store import StoredEvent

PREFIX = "paceline."
FINAL = ("unit.done", "unit.unverified", "unit.quarantined", "unit.held", "unit.cancelled")
FAILURES = ("unit.failed", "unit.unverified", "unit.quarantined")
MOST_OPEN = 10_000
"""Units with open spans: parked ones keep theirs open for days, so that memory needs a bound."""
CLOSING_SECONDS = 2.0
"""How long the end of the daemon may wait for the exporter."""


def exported_traces(service_name: str) -> "Traces":
    """Return traces that a background thread sends to where the standard variables say."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service_name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)


class Traces:
    """Turns events into spans and hands them to the provider."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("paceline")
        self._open: dict[str, tuple[Span, Span | None]] = {}
        """The open spans of units: that of the unit, and that of its attempt."""

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Add new events, in order. Events without a unit belong to no trace."""
        for stored in events:
            event = stored.event
            if event.unit is None:
                continue
            if event.name in ATTEMPT_STARTS:
                self._start(event, event.unit)
            elif event.unit in self._open:
                if event.name in ATTEMPT_ENDS:
                    self._end(event, event.unit)
                else:
                    whole, attempt = self._open[event.unit]
                    (attempt or whole).add_event(event.name, _scalars(event), _nanoseconds(event.at))

    def close(self) -> None:
        """End the open spans and send them, waiting a short time at most."""
        for unit in list(self._open):
            self._end_unit(unit, "engine stopped", None)
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSING_SECONDS)

    def _start(self, event: Event, unit: str) -> None:
        began = _nanoseconds(event.at)
        subject: dict[str, AttributeValue] = {PREFIX + "campaign": unit.partition("/")[0], PREFIX + "unit": unit}
        if unit not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._end_unit(next(iter(self._open)), "not followed any more", None)
            whole = self._tracer.start_span("unit", context=Context(), start_time=began, attributes=subject)
            self._open[unit] = whole, None
        whole, lost = self._open[unit]
        if lost is not None:
            _end_span(lost, "lost", event.at)
        attributes = {**subject, **_location(event)}
        context = set_span_in_context(whole, Context())
        self._open[unit] = whole, self._tracer.start_span("try", context, start_time=began, attributes=attributes)

    def _end(self, event: Event, unit: str) -> None:
        ending = event.name.removeprefix("unit.")
        whole, attempt = self._open[unit]
        if event.name in FAILURES:
            for span in (attempt, whole) if event.name in FINAL else (attempt,):
                if span is not None:
                    span.set_status(Status(StatusCode.ERROR, str(event.fields.get("reason") or "")))
        if event.name in FINAL:
            self._end_unit(unit, ending, event.at)
            return
        if attempt is not None:
            _end_span(attempt, ending, event.at)
            self._open[unit] = whole, None
        whole.add_event(event.name, _scalars(event), _nanoseconds(event.at))

    def _end_unit(self, unit: str, ending: str, at: float | None) -> None:
        whole, attempt = self._open.pop(unit)
        if attempt is not None:
            _end_span(attempt, ending, at)
        _end_span(whole, ending, at)


def _end_span(span: Span, ending: str, at: float | None) -> None:
    span.set_attribute(PREFIX + "ending", ending)
    span.end(None if at is None else _nanoseconds(at))


def _location(event: Event) -> dict[str, AttributeValue]:
    """Return where an attempt runs: provider, account and model of its scope, and its ids."""
    found: dict[str, AttributeValue] = {}
    scope = event.scope or ""
    if ":" not in scope.partition("/")[0]:
        names = ("provider", "account", "model")
        found = {PREFIX + name: part for name, part in zip(names, scope.split("/", 2), strict=False) if part}
    for name in ("attempt", "session_id"):
        value = event.fields.get(name)
        if isinstance(value, str):
            found[PREFIX + name] = value
    return found


def _scalars(event: Event) -> dict[str, AttributeValue]:
    fields: Iterable[tuple[str, object]] = (("scope", event.scope), *event.fields.items())
    return {PREFIX + name: value for name, value in fields if isinstance(value, str | bool | int | float)}


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
