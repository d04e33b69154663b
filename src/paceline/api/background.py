"""The background readers of an engine's events: the event stream, the timeline, the metrics and the traces."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping

from prometheus_client.core import Metric

from paceline.api.events.sse import EventStream
from paceline.api.events.tail import EventTail
from paceline.api.otel import open_traces
from paceline.api.prometheus import EngineMetrics
from paceline.api.standby import StandbyEngine
from paceline.engine.engine import Engine
from paceline.errors import StoreError
from paceline.views.timeline import HOUR_SECONDS, LONGEST_HOURS, Timeline, TimelineView, last_id_before

log = logging.getLogger("paceline.api")

SAMPLE_SECONDS = 1.0
"""How often the timeline reads the Governor: peaks shorter than this do not show."""
STANDBY_SAMPLE_SECONDS = 10.0
"""The same on a standby, which builds the Governor from the store each time."""


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
