"""Events as a stream (SSE): what is stored, from any place on, and then what comes, without gap or repeat.

A reader is a place in the stream and nothing more. The newest events are kept here once for all readers, encoded
once; one that has fallen behind them reads pages from the store at its own pace. So a reader that does not read costs
what is on its way to it, and no reader ever holds up the engine or another reader.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence

import msgspec

from paceline.api.events.tail import Tail
from paceline.clock import Clock, TimerHandle
from paceline.errors import StoreError
from paceline.events import FIELDS, Event
from paceline.store import Store, StoredEvent

log = logging.getLogger("paceline.api")

REPLAY_PAGE = 200
KEPT_FRAMES = 2_000
CHUNK_FRAMES = 200
KEPT_CHUNKS = 50
RETRY_MILLISECONDS = 2_000
BEAT_SECONDS = 5.0
SILENT_SECONDS = 10.0
"""Looked at with every beat: a reader hears something at least every 15 s."""
HEARTBEAT = b": still here\n"


class ShownEvent(msgspec.Struct, frozen=True):
    """An event as programs get it: the `data` of the stream."""

    id: int
    at: float
    name: str
    scope: str | None
    unit: str | None
    fields: dict[str, object]


class Gap(msgspec.Struct, frozen=True):
    """Told as `event: gap` to a reader that asked for more than is kept: what follows begins at `oldest`."""

    after: int
    oldest: int


class Wanted(msgspec.Struct, frozen=True):
    """Which events a reader wants: of one unit, or whose names begin so; all of them by default."""

    unit: str | None = None
    names: tuple[str, ...] = ()

    def accepts(self, event: Event) -> bool:
        if self.unit is not None and event.unit != self.unit:
            return False
        return not self.names or event.name.startswith(self.names)


def is_known_beginning(name: str) -> bool:
    """Whether any event's name begins so."""
    return bool(name) and any(known.startswith(name) for known in FIELDS)


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
            shown = ShownEvent(self.id, event.at, event.name, event.scope, event.unit, event.fields)
            self._encoded = b"id: %d\ndata: %b\n\n" % (self.id, msgspec.json.encode(shown))
        return self._encoded


class Feed:
    """The newest events, and all who read them.

        async for chunk in feed.read(after=17, wanted=Wanted(names=("unit.",))): ...

    Chunks are whole lines of `text/event-stream`. `close` ends all streams at once.
    """

    def __init__(self, store: Store, tail: Tail, clock: Clock) -> None:
        self.readers = 0
        self._store = store
        self._clock = clock
        self._frames: list[Frame] = []
        self._from = self._last = tail.last
        self._joined: dict[tuple[int, Wanted], tuple[bytes, int]] = {}
        self._bell = asyncio.Event()
        self._replaying = asyncio.Lock()
        self._is_closed = False
        self._beat: TimerHandle | None = None
        tail.follow(self.take)

    def take(self, events: Sequence[StoredEvent]) -> None:
        """New events, in order, from the tail."""
        self._frames += map(Frame, events)
        self._last = events[-1].id
        if len(self._frames) > 2 * KEPT_FRAMES:  # now and then, not at every event
            self._from = self._frames[-KEPT_FRAMES - 1].id
            del self._frames[:-KEPT_FRAMES]
        self._joined.clear()
        self._ring()

    def close(self) -> None:
        """End every stream, now; a new one ends where it begins."""
        self._is_closed = True
        if self._beat is not None:
            self._beat.cancel()
        self._ring()

    async def read(self, *, after: int | None, wanted: Wanted) -> AsyncGenerator[bytes, None]:
        """What the reader gets from that id on, for ever; without one, from now on."""
        place = self._last if after is None else after
        heard_at = self._clock.now()
        self._enter()
        try:
            yield b"retry: %d\n%b" % (RETRY_MILLISECONDS, _told_place(place))
            if self._is_from_elsewhere(place):
                chunk, place = self._gap(place)
                yield chunk
            while not self._is_closed:
                chunk = b""
                if place < self._from:
                    chunk, place = await self._replayed(place, wanted)
                elif place < self._last:
                    chunk, place = self._recent(place, wanted)
                else:
                    await self._bell.wait()
                if not chunk and self._clock.now() - heard_at >= SILENT_SECONDS:
                    chunk = HEARTBEAT + _told_place(place)
                if chunk:
                    heard_at = self._clock.now()
                    yield chunk
        except StoreError as error:
            log.warning("a reader of events is sent away, to come back where it was: %s", error)
        finally:
            self.readers -= 1

    # -- what was and what is new --------------------------------------------------------------

    async def _replayed(self, place: int, wanted: Wanted) -> tuple[bytes, int]:
        """A page from the store and the place after it; one page at a time, whoever asks: the engine has to go on."""
        async with self._replaying:
            oldest = self._oldest()
            if oldest > place + 1:
                return self._gap(place)
            page = self._store.events(after=place, limit=REPLAY_PAGE, unit=wanted.unit)
            reached = [stored.id for stored in page[-1:]]
            if len(page) < REPLAY_PAGE:  # that is all there is, and it may be more than the tail has read
                reached.append(self._last)
            await asyncio.sleep(0)
        return b"".join(Frame(stored).encoded() for stored in page if wanted.accepts(stored.event)), max(reached)

    def _recent(self, place: int, wanted: Wanted) -> tuple[bytes, int]:
        """Some of the newest events, put together once for all readers that are here."""
        joined = self._joined.get((place, wanted))
        if joined is None:
            first = bisect_right(self._frames, place, key=lambda frame: frame.id)
            frames = self._frames[first : first + CHUNK_FRAMES]
            chunk = b"".join(frame.encoded() for frame in frames if wanted.accepts(frame.event))
            if len(self._joined) >= KEPT_CHUNKS:
                self._joined.clear()
            joined = self._joined[place, wanted] = chunk, frames[-1].id
        return joined

    def _gap(self, place: int) -> tuple[bytes, int]:
        oldest = self._oldest()
        return b"event: gap\ndata: %b\n\n" % msgspec.json.encode(Gap(place, oldest)), oldest - 1

    def _oldest(self) -> int:
        """The id of the first event that is kept, or will be."""
        first = self._store.events(limit=1)
        return first[0].id if first else self._last + 1

    def _is_from_elsewhere(self, place: int) -> bool:
        """Whether this store has not come so far: the reader knows another one, which was removed or restored."""
        if place <= self._last:
            return False
        return not any(stored.id == place for stored in self._store.events(after=place - 1, limit=1))

    # -- waking ----------------------------------------------------------------------------------

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    def _enter(self) -> None:
        self.readers += 1
        if self._beat is None:
            self._beat_again()

    def _beat_again(self) -> None:
        """As long as there are readers, let them look from time to time whether it is long since they heard."""
        self._beat = None
        if self.readers:
            self._ring()
            self._beat = self._clock.call_at(self._clock.now() + BEAT_SECONDS, self._beat_again)


def _told_place(place: int) -> bytes:
    """An id without data: nothing is shown for it, but it is where a reader goes on that comes back."""
    return b"id: %d\n\n" % place
