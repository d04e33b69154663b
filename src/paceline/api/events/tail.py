"""The tail of the store's events: one reader for every subscriber.

The engine's notice that it appended events only sets a flag here: nothing is read inside its pass. Events of other
processes (a CLI that stored a command) are found by polling once a second.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from paceline.clock import Clock
from paceline.engine.store_outage import OUTAGES
from paceline.errors import StoreError
from paceline.store import Store, StoredEvent

log = logging.getLogger("paceline.api")

PAGE_EVENTS = 200
"""Events per read: small enough that a long backlog does not hold up the engine's loop."""
REST_SECONDS = 0.25
"""Pause after a read, so that the events of a busy engine are read in batches."""
POLL_SECONDS = 1.0
"""How late an event of another process may be seen."""

Value = TypeVar("Value")
Subscriber = Callable[[Sequence[StoredEvent]], None]
Listen = Callable[[Callable[[], None]], Callable[[], None]]


class EventTail:
    """Passes every new event, once and in order, to all subscribers. `last` is the newest id that it has read."""

    def __init__(self, store: Store, listen: Listen, clock: Clock) -> None:
        self.last = store.append_events([])
        self._store = store
        self._listen = listen
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._has_news = asyncio.Event()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass all events after `last` to the subscriber."""
        self._subscribers.append(subscriber)

    async def replay(self, subscriber: Subscriber, *, after: int) -> None:
        """Pass the stored events after that id to the subscriber, then subscribe it, without gap or repeat."""
        while after < self.last:
            page = [event for event in await self._page(after) if event.id <= self.last]
            if not page:
                break
            subscriber(page)
            after = page[-1].id
            await asyncio.sleep(0)
        self.subscribe(subscriber)

    async def _page(self, after: int) -> list[StoredEvent]:
        return await self.retry(lambda: self._store.events(after=after, limit=PAGE_EVENTS))

    async def retry(self, read: Callable[[], Value]) -> Value:
        """Return what `read` returns, trying again until the store can be read."""
        while True:
            try:
                return read()
            except StoreError as error:
                log.warning("stored events could not be read; trying again in %g s: %s", POLL_SECONDS, error)
                await self._clock.sleep(POLL_SECONDS)

    async def run(self) -> None:
        """Read new events until cancelled."""
        unlisten = self._listen(self._has_news.set)
        try:
            while True:
                await self.read_new()
                await self._clock.sleep(REST_SECONDS)
                await self._wait_for_news()
        finally:
            unlisten()

    async def read_new(self) -> None:
        """Read what is new now. Harmless while another read is in progress."""
        self._has_news.clear()
        try:
            while events := self._store.events(after=self.last, limit=PAGE_EVENTS):
                self.last = events[-1].id
                self._pass_on(events)
                await asyncio.sleep(0)
        except OUTAGES:
            return  # the engine reports it, and the next poll tries again
        except StoreError as error:
            log.warning("new events could not be read; the next poll tries again: %s", error)

    def _pass_on(self, events: Sequence[StoredEvent]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(events)
            except Exception:
                log.exception("a subscriber failed on events %d to %d", events[0].id, events[-1].id)

    async def _wait_for_news(self) -> None:
        timer = self._clock.call_at(self._clock.now() + POLL_SECONDS, self._has_news.set)
        try:
            await self._has_news.wait()
        finally:
            timer.cancel()
