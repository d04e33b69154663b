"""A unit's life as a trace, made from its events alone: a span for the unit, and in it one for each try.

Needs the extra `otel`. A trace begins with the first try that is seen and ends with the unit, or with the engine.
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
FINAL = ("unit.done", "unit.quarantined", "unit.held", "unit.cancelled")
FAILURES = ("unit.failed", "unit.quarantined")
MOST_OPEN = 10_000
CLOSING_SECONDS = 2.0


def exported(service_name: str) -> "Traces":
    """Sent in the background to where the standard variables say."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service_name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)


class _Life:
    """The open spans of one unit."""

    __slots__ = ("attempt", "unit")

    def __init__(self, unit: Span) -> None:
        self.unit = unit
        self.attempt: Span | None = None


class Traces:
    """Takes events and ends spans; what becomes of them is the provider's business."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("paceline")
        self._lives: dict[str, _Life] = {}

    def take(self, events: Sequence[StoredEvent]) -> None:
        """New events, in order. Those that name no unit belong to no trace."""
        for stored in events:
            event = stored.event
            if event.unit is None:
                continue
            if event.name in ATTEMPT_STARTS:
                self._start(event, event.unit)
            elif (life := self._lives.get(event.unit)) is not None:
                if event.name in ATTEMPT_ENDS:
                    self._end(event, event.unit, life)
                else:
                    (life.attempt or life.unit).add_event(event.name, _scalars(event), _nanoseconds(event.at))

    def close(self) -> None:
        """End what is open, and send it if that takes no more than a moment."""
        for life in self._lives.values():
            _end_life(life, "engine stopped", None)
        self._lives.clear()
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSING_SECONDS)

    def _start(self, event: Event, unit: str) -> None:
        began = _nanoseconds(event.at)
        whose: dict[str, AttributeValue] = {PREFIX + "campaign": unit.partition("/")[0], PREFIX + "unit": unit}
        life = self._lives.get(unit)
        if life is None:
            self._make_room()
            span = self._tracer.start_span("unit", context=Context(), start_time=began, attributes=whose)
            life = self._lives[unit] = _Life(span)
        elif life.attempt is not None:
            _end_span(life.attempt, "lost", event.at)
        context = set_span_in_context(life.unit, Context())
        attributes = {**whose, **_place(event)}
        life.attempt = self._tracer.start_span("try", context=context, start_time=began, attributes=attributes)

    def _end(self, event: Event, unit: str, life: _Life) -> None:
        ending = event.name.removeprefix("unit.")
        if life.attempt is not None:
            if event.name in FAILURES:
                life.attempt.set_status(Status(StatusCode.ERROR, str(event.fields.get("reason") or "")))
            _end_span(life.attempt, ending, event.at)
            life.attempt = None
        if event.name not in FINAL:
            life.unit.add_event(event.name, _scalars(event), _nanoseconds(event.at))
            return
        if event.name in FAILURES:
            life.unit.set_status(Status(StatusCode.ERROR, str(event.fields.get("reason") or "")))
        _end_life(life, ending, event.at)
        del self._lives[unit]

    def _make_room(self) -> None:
        """Units that wait for days keep their spans open, but not without end."""
        if len(self._lives) >= MOST_OPEN:
            oldest = next(iter(self._lives))
            _end_life(self._lives.pop(oldest), "not followed any more", None)


def _end_life(life: _Life, ending: str, at: float | None) -> None:
    if life.attempt is not None:
        _end_span(life.attempt, ending, at)
    _end_span(life.unit, ending, at)


def _end_span(span: Span, ending: str, at: float | None) -> None:
    span.set_attribute(PREFIX + "ending", ending)
    span.end(None if at is None else _nanoseconds(at))


def _place(event: Event) -> dict[str, AttributeValue]:
    """Where a try runs: provider, account and model of its scope, and its attempt."""
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
