"""The background readers of an engine's events: the event stream, the timeline, the metrics and the traces."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from paceline.api.event_stream import EventStream, EventTail
from paceline.api.prometheus import EngineMetrics
from paceline.api.standby import StandbyEngine
from paceline.engine.engine import Engine
from paceline.errors import StoreError
from paceline.views.timeline import HOUR_SECONDS, LONGEST_HOURS, Timeline, TimelineView, last_id_before

if TYPE_CHECKING:
    from paceline.api.otel_spans import Traces

log = logging.getLogger("paceline.api")

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
