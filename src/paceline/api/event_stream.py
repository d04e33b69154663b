"""The tail of the store's events, and events as server-sent events (SSE): stored ones from any id on, then new ones.

The tail is one reader for every subscriber. The engine's notice that it appended events only sets a flag here: nothing
is read inside its pass. Events of other processes (a CLI that stored a command) are found by polling once a second.

A client of the stream is a position in it and nothing more. The newest events are kept here once for all of them and
encoded once; one that falls behind them reads pages from the store at its own pace. A client that stops reading
therefore costs only what is already on its way to it, and none holds up the engine or another one.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

import msgspec

from paceline.clock import Clock, TimerHandle
from paceline.engine.command_log import is_change
from paceline.errors import OUTAGES, StoreError
from paceline.events import FIELDS, Event
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


REPLAY_PAGE = 200
"""Stored events per read: each read holds the engine's loop for a few milliseconds."""
KEPT_FRAMES = 2_000
"""Newest events kept in memory: a reader that is slower than this reads from the store."""
CHUNK_FRAMES = 200
KEPT_CHUNKS = 50
"""Joined chunks kept for readers at the same position: readers that keep up share one."""
RETRY_MILLISECONDS = 2_000
"""How long a browser waits before it connects again."""
BEAT_SECONDS = 5.0
SILENT_SECONDS = 10.0
"""Silence after which a heartbeat is sent, checked with every beat: a reader gets data at least every 15 s."""
HEARTBEAT = b": still here\n"


class EventFilter(msgspec.Struct, frozen=True):
    """Which events a reader wants: those of one unit, with these prefixes of names, or only changes that were made.

    By default, all of them.
    """

    unit: str | None = None
    names: tuple[str, ...] = ()
    only_changes: bool = False

    def accepts(self, event: Event) -> bool:
        if self.unit is not None and event.unit != self.unit:
            return False
        if self.only_changes and not is_change(event):
            return False
        return not self.names or event.name.startswith(self.names)


def is_event_prefix(text: str) -> bool:
    """Return whether the name of any event starts with the text."""
    return bool(text) and any(name.startswith(text) for name in FIELDS)


class Frame:
    """An event, encoded when the first reader wants it."""

    __slots__ = ("_encoded", "event", "id")

    def __init__(self, stored: StoredEvent) -> None:
        self.id = stored.id
        self.event = stored.event
        self._encoded: bytes | None = None

    def encoded(self) -> bytes:
        if self._encoded is None:
            event = self.event
            body = {"id": self.id, "at": event.at, "name": event.name, "scope": event.scope, "unit": event.unit}
            body["fields"] = event.fields
            self._encoded = b"id: %d\ndata: %b\n\n" % (self.id, msgspec.json.encode(body))
        return self._encoded


class EventStream:
    """The newest events, and all their readers.

        async for chunk in stream.read(after=17, wanted=EventFilter(names=("unit.",))): ...

    Chunks are whole lines of `text/event-stream`. `close` ends all streams at once.
    """

    def __init__(self, store: Store, tail: EventTail, clock: Clock) -> None:
        self.readers = 0
        self._store = store
        self._clock = clock
        self._frames: list[Frame] = []
        self._kept_after = self._last = tail.last
        self._chunks: dict[tuple[int, EventFilter], tuple[bytes, int]] = {}
        self._news = asyncio.Event()
        self._replay_lock = asyncio.Lock()
        self._is_closed = False
        self._beat: TimerHandle | None = None
        tail.subscribe(self.add)

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Keep new events, which come in order, and wake the readers."""
        self._frames += map(Frame, events)
        self._last = events[-1].id
        if len(self._frames) > 2 * KEPT_FRAMES:  # trimmed now and then, not at every event
            self._kept_after = self._frames[-KEPT_FRAMES - 1].id
            del self._frames[:-KEPT_FRAMES]
        self._chunks.clear()
        self._wake_readers()

    def close(self) -> None:
        """End every stream now. A stream that is opened later ends at once."""
        self._is_closed = True
        if self._beat is not None:
            self._beat.cancel()
        self._wake_readers()

    async def read(self, *, after: int | None, wanted: EventFilter) -> AsyncGenerator[bytes, None]:
        """Yield the events after that id, without end. Without an id, yield those from now on."""
        position = self._last if after is None else after
        sent_at = self._clock.now()
        self._enter()
        try:
            yield b"retry: %d\n%b" % (RETRY_MILLISECONDS, _position_line(position))
            if self._is_from_another_store(position):
                chunk, position = self._gap(position)
                yield chunk
            while not self._is_closed:
                chunk = b""
                if position < self._kept_after:
                    chunk, position = await self._stored(position, wanted)
                elif position < self._last:
                    chunk, position = self._recent(position, wanted)
                else:
                    await self._news.wait()
                if not chunk and self._clock.now() - sent_at >= SILENT_SECONDS:
                    chunk = HEARTBEAT + _position_line(position)
                if chunk:
                    sent_at = self._clock.now()
                    yield chunk
        except StoreError as error:
            log.warning("an event stream is ended; its reader connects again and continues: %s", error)
        finally:
            self.readers -= 1

    # -- stored and recent events ----------------------------------------------------------------

    async def _stored(self, position: int, wanted: EventFilter) -> tuple[bytes, int]:
        """Return a page from the store and the position after it. One page at a time: the engine needs its loop."""
        async with self._replay_lock:
            oldest = self._oldest()
            if oldest > position + 1:
                return self._gap(position)
            page = self._store.events(after=position, limit=REPLAY_PAGE, unit=wanted.unit)
            reached = [stored.id for stored in page[-1:]]
            if len(page) < REPLAY_PAGE:  # the store has no more, and may have more than the tail has read
                reached.append(self._last)
            await asyncio.sleep(0)
        return b"".join(Frame(stored).encoded() for stored in page if wanted.accepts(stored.event)), max(reached)

    def _recent(self, position: int, wanted: EventFilter) -> tuple[bytes, int]:
        """Return some of the newest events, joined once for all readers at this position."""
        joined = self._chunks.get((position, wanted))
        if joined is None:
            first = bisect_right(self._frames, position, key=lambda frame: frame.id)
            frames = self._frames[first : first + CHUNK_FRAMES]
            chunk = b"".join(frame.encoded() for frame in frames if wanted.accepts(frame.event))
            if len(self._chunks) >= KEPT_CHUNKS:
                self._chunks.clear()
            joined = self._chunks[position, wanted] = chunk, frames[-1].id
        return joined

    def _gap(self, position: int) -> tuple[bytes, int]:
        """Return what a reader gets that asked for more than is kept: what follows starts at `oldest`."""
        oldest = self._oldest()
        gap = {"after": position, "oldest": oldest}
        return b"event: gap\ndata: %b\n\n" % msgspec.json.encode(gap), oldest - 1

    def _oldest(self) -> int:
        """Return the id of the first event that is kept, or will be."""
        first = self._store.events(limit=1)
        return first[0].id if first else self._last + 1

    def _is_from_another_store(self, position: int) -> bool:
        """Return whether the reader knew another store: this one has not reached the position."""
        if position <= self._last:
            return False
        return not any(stored.id == position for stored in self._store.events(after=position - 1, limit=1))

    # -- waking readers --------------------------------------------------------------------------

    def _wake_readers(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _enter(self) -> None:
        self.readers += 1
        if self._beat is None:
            self._schedule_beat()

    def _schedule_beat(self) -> None:
        """While there are readers, wake them now and then: each checks whether a heartbeat is due."""
        self._beat = None
        if self.readers:
            self._wake_readers()
            self._beat = self._clock.call_at(self._clock.now() + BEAT_SECONDS, self._schedule_beat)


def _position_line(position: int) -> bytes:
    """Return an id without data: clients show nothing for it, and continue there when they connect again."""
    return b"id: %d\n\n" % position
