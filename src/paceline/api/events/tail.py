"""Follows the store's events: one reading for all who want to know, however many they are.

The engine's word that it appended something only sets a flag here: nothing is read inside its pass. Events of other
processes (a CLI that left an order) come with the next look, which is made every second anyway.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from paceline.clock import Clock
from paceline.errors import StoreError
from paceline.store import Store, StoredEvent

log = logging.getLogger("paceline.api")

PAGE = 200
REST_SECONDS = 0.25
LOOK_SECONDS = 1.0

Value = TypeVar("Value")
Take = Callable[[Sequence[StoredEvent]], None]
Listen = Callable[[Callable[[], None]], Callable[[], None]]


class Tail:
    """Hands every new event, once and in order, to all who `follow`. `last` is the newest it has read.

    After a reading it rests for a moment, so that a busy engine is followed in batches.
    """

    def __init__(self, store: Store, listen: Listen, clock: Clock) -> None:
        self.last = store.append_events([])
        self._store = store
        self._listen = listen
        self._clock = clock
        self._followers: list[Take] = []
        self._is_called = asyncio.Event()

    def follow(self, take: Take) -> None:
        """`take` gets all events after `last`."""
        self._followers.append(take)

    async def catch_up(self, take: Take, *, after: int) -> None:
        """Let `take` have what is stored after that id, page by page, and follow from there without gap or repeat."""
        while after < self.last:
            page = [event for event in await self._page(after) if event.id <= self.last]
            if not page:
                break
            take(page)
            after = page[-1].id
            await asyncio.sleep(0)
        self.follow(take)

    async def _page(self, after: int) -> list[StoredEvent]:
        return await self.patiently(lambda: self._store.events(after=after, limit=PAGE))

    async def patiently(self, read: Callable[[], Value]) -> Value:
        """What it reads from the store, as soon as the store can be read."""
        while True:
            try:
                return read()
            except StoreError as error:
                log.warning("stored events could not be read, the next look tries again: %s", error)
                await self._clock.sleep(LOOK_SECONDS)

    async def run(self) -> None:
        """Until cancelled."""
        unlisten = self._listen(self._is_called.set)
        try:
            while True:
                await self.look()
                await self._clock.sleep(REST_SECONDS)
                await self._until_called()
        finally:
            unlisten()

    async def look(self) -> None:
        """Read what is new, now; harmless while another look is under way."""
        self._is_called.clear()
        try:
            while events := self._store.events(after=self.last, limit=PAGE):
                self.last = events[-1].id
                self._hand_on(events)
                await asyncio.sleep(0)
        except StoreError as error:
            log.warning("new events could not be read, the next look tries again: %s", error)

    def _hand_on(self, events: Sequence[StoredEvent]) -> None:
        for take in self._followers:
            try:
                take(events)
            except Exception:
                log.exception("events %d to %d were not taken in", events[0].id, events[-1].id)

    async def _until_called(self) -> None:
        timer = self._clock.call_at(self._clock.now() + LOOK_SECONDS, self._is_called.set)
        try:
            await self._is_called.wait()
        finally:
            timer.cancel()
