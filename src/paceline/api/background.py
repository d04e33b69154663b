"""All that follows an engine's events, put together: the feed, the time line, the metrics and the traces."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping

from prometheus_client.core import Metric

from paceline.api.events.sse import Feed
from paceline.api.events.tail import Tail
from paceline.api.otel import open_traces
from paceline.api.prometheus import Metrics
from paceline.engine.engine import Engine
from paceline.views.timeline import HOUR_SECONDS, LONGEST_HOURS, Timeline, TimelineView, first_place_since

log = logging.getLogger("paceline.api")

SAMPLE_SECONDS = 1.0


class Watch:
    """Made on the loop of the engine; it follows from then on, until it is closed."""

    def __init__(self, engine: Engine, environ: Mapping[str, str]) -> None:
        self._engine = engine
        self._tail = Tail(engine.store, engine.listen, engine.clock)
        self.feed = Feed(engine.store, self._tail, engine.clock)
        self._metrics = Metrics(engine)
        self._tail.follow(self._metrics.take)
        self._timeline = Timeline()
        self._is_drawn = asyncio.Event()
        self._traces = open_traces(environ)
        if self._traces is not None:
            self._tail.follow(self._traces.take)
        self._tasks = [self._begin(self._tail.run()), self._begin(self._draw())]

    def close(self) -> None:
        """Every stream comes to its end, now."""
        self.feed.close()
        for task in self._tasks:
            task.cancel()
        if self._traces is not None:
            self._traces.close()

    async def timeline(self, hours: float) -> TimelineView:
        """The last so many hours, once all that is stored of the last day has been read."""
        await self._is_drawn.wait()
        await self._tail.look()
        self._timeline.mend(self._engine.store)
        self._sample()
        now = self._engine.clock.now()
        return self._timeline.view(now - hours * HOUR_SECONDS, now)

    async def metrics(self) -> list[Metric]:
        """Every number there is."""
        await self._tail.look()
        return self._metrics.read()

    async def _draw(self) -> None:
        """What is stored of the last day, and then how many are in flight, again and again."""
        engine, clock = self._engine, self._engine.clock
        day_ago = clock.now() - LONGEST_HOURS * HOUR_SECONDS
        after = await self._tail.patiently(lambda: first_place_since(engine.store, day_ago, self._tail.last))
        await self._tail.catch_up(self._timeline.take, after=after)
        self._is_drawn.set()
        while True:
            self._sample()
            await clock.sleep(SAMPLE_SECONDS)

    def _sample(self) -> None:
        self._timeline.sample(self._engine.clock.now(), self._engine.limiter.statuses())

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_tell_failure)
        return task


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("events are not followed any more", exc_info=error)
