"""The stream of events: replay, live, filters, gaps, heartbeats, and readers that do not keep up."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import pytest
from tests.api.event_source import EventSource, Message

from paceline.api import event_stream as sse
from paceline.api.event_stream import EventFilter, EventStream, EventTail
from paceline.errors import StoreBusy
from paceline.events import Event
from paceline.store import SqliteStore, StoredEvent
from paceline.testing import VirtualClock

NOW = 1_794_705_600.0
ALL = EventFilter()


class CountingStore(SqliteStore):
    """Knows how often events were read from it, and can be out of reach."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.readings = 0
        self.is_busy = False

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        self.readings += 1
        if self.is_busy:
            raise StoreBusy("another process is writing")
        return super().events(after=after, limit=limit, unit=unit)


class Reader:
    """One connection: reads as fast as data arrives, unless it is held."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self.source = EventSource()
        self.bytes = 0
        self._chunks = chunks
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                self.bytes += len(chunk)
                self.source.feed(chunk)
                await self._may_read.wait()

    def hold(self) -> None:
        self._may_read.clear()

    def go_on(self) -> None:
        self._may_read.set()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Stream:
    """A store that is written to, its tail and its feed, in virtual time."""

    def __init__(self, stored: int = 0) -> None:
        self.clock = VirtualClock(NOW)
        self.store = CountingStore()
        self.written = 0
        self.write(stored)
        self._listeners: list[Callable[[], None]] = []
        self.tail = EventTail(self.store, self._listen, self.clock)
        self.feed = EventStream(self.store, self.tail, self.clock)
        self.readers: list[Reader] = []
        self._running = asyncio.create_task(self.tail.run())

    def _listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def write(self, count: int, name: str = "unit.done") -> None:
        """Append without a word, as another process does."""
        numbers = range(self.written + 1, self.written + count + 1)
        self.store.append_events([Event(name, NOW, None, f"night/u{number}", {"n": number}) for number in numbers])
        self.written += count

    async def tell(self, count: int, name: str = "unit.done") -> None:
        """Append as the engine does, and let it be read."""
        self.write(count, name)
        for listener in self._listeners:
            listener()
        await self.clock.advance(0.2)

    async def reader(self, after: int | None = None, wanted: EventFilter = ALL) -> Reader:
        reader = Reader(self.feed.read(after=after, wanted=wanted))
        self.readers.append(reader)
        await self.clock.advance(0.0)
        return reader

    async def __aenter__(self) -> "Stream":
        await self.clock.advance(0.2)
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self.readers:
            await reader.leave()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        assert (self.feed.readers, self._listeners) == (0, [])


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


async def test_an_event_arrives_whole_with_its_id() -> None:
    async with Stream() as stream:
        reader = await stream.reader()
        event = Event(
            "unit.parked", NOW, "anthropic/max-1", "night/a", {"reason": 'line 1\nline "2"', "resume_at": None}
        )

        stream.store.append_events([event])
        await stream.clock.advance(2.0)

        assert reader.source.retry == 2000
        assert [(message.event, message.id, message.value) for message in reader.source.messages] == [
            (
                "message",
                "1",
                {
                    "id": 1,
                    "at": NOW,
                    "name": "unit.parked",
                    "scope": "anthropic/max-1",
                    "unit": "night/a",
                    "fields": {"reason": 'line 1\nline "2"', "resume_at": None},
                },
            )
        ]


async def test_without_a_place_a_reader_gets_what_comes_and_nothing_older() -> None:
    async with Stream(stored=50) as stream:
        reader = await stream.reader()

        await stream.tell(2)

        assert reader.source.ids == [51, 52]


async def test_a_reader_that_heard_nothing_yet_knows_where_to_go_on() -> None:
    async with Stream(stored=50) as stream:
        reader = await stream.reader()
        await reader.leave()
        await stream.tell(3)

        again = await stream.reader(after=int(reader.source.last_event_id))

        assert again.source.ids == [51, 52, 53]


@pytest.mark.parametrize("after", [0, 1, 199, 200, 399, 997, 1000])
async def test_replay_and_live_make_one_stream_without_gap_or_repeat(after: int) -> None:
    async with Stream(stored=1000) as stream:
        reader = await stream.reader(after=after)

        await stream.tell(5)

        assert reader.source.ids == numbers(after + 1, 1005)


async def test_events_that_the_tail_has_not_read_yet_come_once() -> None:
    async with Stream(stored=10) as stream:
        stream.write(10)  # without a notification

        reader = await stream.reader(after=3)
        assert reader.source.ids == numbers(4, 20)

        await stream.tell(1)
        assert reader.source.ids == numbers(4, 21)


async def test_events_of_other_processes_are_found_within_a_second() -> None:
    async with Stream() as stream:
        reader = await stream.reader()

        stream.write(3)
        await stream.clock.advance(1.2)

        assert reader.source.ids == [1, 2, 3]


async def test_reconnecting_after_every_event_loses_and_repeats_none() -> None:
    async with Stream(stored=30) as stream:
        heard: list[int] = []
        place = 0
        while place < 60:
            reader = await stream.reader(after=place)
            heard += reader.source.ids
            place = int(reader.source.last_event_id)
            await reader.leave()
            await stream.tell(7)

        assert heard == numbers(1, heard[-1])


async def test_new_events_are_read_once_for_all_readers() -> None:
    async with Stream() as stream:
        readers = [await stream.reader() for _ in range(50)]
        before = stream.store.readings

        await stream.tell(20)

        assert [reader.source.ids for reader in readers] == [numbers(1, 20)] * 50
        assert stream.store.readings - before == 2  # the events, and that there are no more


async def test_readers_that_come_back_at_many_places_leave_nothing_behind() -> None:
    async with Stream() as stream:
        await stream.tell(300)
        for place in range(300):
            reader = await stream.reader(after=place)
            assert reader.source.ids == numbers(place + 1, 300)
            await reader.leave()

        assert len(stream.feed._chunks) <= sse.KEPT_CHUNKS


async def test_a_slow_reader_goes_back_to_the_store_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEPT_FRAMES", 100)
    async with Stream() as stream:
        slow, quick = await stream.reader(), await stream.reader()
        await stream.tell(1)
        slow.hold()
        for _ in range(20):
            await stream.tell(50)
        assert quick.source.ids == numbers(1, 1001)
        assert len(stream.feed._frames) <= 200

        slow.go_on()
        await stream.clock.advance(0.0)
        assert slow.source.ids == numbers(1, 1001)

        await stream.tell(2)
        assert slow.source.ids == numbers(1, 1003)


async def test_a_reader_that_reads_nothing_is_given_one_chunk_and_waits() -> None:
    async with Stream() as stream:
        reader = await stream.reader()
        reader.hold()
        for _ in range(40):
            await stream.tell(500)

        assert reader.bytes < 64 * 1024


async def test_a_reader_whose_place_is_not_kept_any_more_gets_a_gap_and_then_the_oldest() -> None:
    async with Stream(stored=1000) as stream:
        stream.store.trim_events(keep=100)

        reader = await stream.reader(after=17)

        assert reader.source.messages[0] == Message("gap", '{"after":17,"oldest":901}', "17")
        assert reader.source.ids == numbers(901, 1000)


async def test_a_reader_right_before_the_oldest_has_missed_nothing() -> None:
    async with Stream(stored=1000) as stream:
        stream.store.trim_events(keep=100)

        reader = await stream.reader(after=900)

        assert {message.event for message in reader.source.messages} == {"message"}
        assert reader.source.ids == numbers(901, 1000)


async def test_a_slow_reader_that_is_overtaken_by_trimming_gets_a_gap() -> None:
    async with Stream(stored=1000) as stream:
        reader = Reader(stream.feed.read(after=0, wanted=ALL))
        stream.readers.append(reader)
        reader.hold()
        await stream.clock.advance(0.0)
        stream.store.trim_events(keep=100)

        reader.go_on()
        await stream.clock.advance(0.0)

        gaps = [message.value for message in reader.source.messages if message.event == "gap"]
        assert gaps == [{"after": 0, "oldest": 901}]
        assert reader.source.ids == numbers(901, 1000)


async def test_a_place_in_another_store_is_a_gap_and_read_from_the_oldest() -> None:
    async with Stream(stored=3) as stream:
        reader = await stream.reader(after=70_000)
        await stream.tell(1)

        assert reader.source.messages[0] == Message("gap", '{"after":70000,"oldest":1}', "70000")
        assert reader.source.ids == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EventFilter(unit="night/u7"), [7]),
        (EventFilter(names=("unit.",)), numbers(1, 600)),
        (EventFilter(names=("unit.parked",)), numbers(301, 600)),
        (EventFilter(names=("scope.", "unit.parked")), numbers(301, 600)),
        (EventFilter(unit="night/u7", names=("unit.parked",)), []),
        (EventFilter(unit="night/u307", names=("unit.parked",)), [307]),
        (EventFilter(names=("window.",)), []),
    ],
)
async def test_filters_hold_for_the_past_and_for_what_comes(wanted: EventFilter, expected: list[int]) -> None:
    async with Stream(stored=300) as stream:
        live = await stream.reader(after=0, wanted=wanted)
        await stream.tell(300, name="unit.parked")
        replayed = await stream.reader(after=0, wanted=wanted)

        assert live.source.ids == expected
        assert replayed.source.ids == expected


async def test_a_silent_stream_beats_and_keeps_the_place_of_a_reader_that_wants_little() -> None:
    async with Stream() as stream:
        reader = await stream.reader(wanted=EventFilter(names=("window.",)))

        await stream.tell(8)
        await stream.clock.advance(15.0)

        assert reader.source.comments == ["still here"]
        assert reader.source.messages == []
        assert reader.source.last_event_id == "8"

        await stream.clock.advance(60.0)
        assert 4 <= len(reader.source.comments) - 1 <= 6


async def test_no_beats_are_made_without_readers() -> None:
    async with Stream() as stream:
        reader = await stream.reader()
        await reader.leave()
        await stream.clock.advance(10.0)

        assert stream.feed._beat is None


async def test_closing_ends_every_stream_at_once() -> None:
    async with Stream(stored=5000) as stream:
        waiting, replaying = await stream.reader(), Reader(stream.feed.read(after=0, wanted=ALL))

        stream.feed.close()
        late = await stream.reader(after=0)

        assert [reader.task.done() for reader in (waiting, replaying, late)] == [True] * 3
        assert late.source.ids == []


async def test_while_the_store_is_out_of_reach_the_tail_looks_again_and_replays_are_sent_away() -> None:
    async with Stream(stored=10) as stream:
        live = await stream.reader()
        stream.write(2)
        stream.store.is_busy = True
        replaying = await stream.reader(after=1)
        await stream.clock.advance(5.0)
        assert replaying.task.done()
        assert live.source.ids == []

        stream.store.is_busy = False
        await stream.clock.advance(1.2)

        assert live.source.ids == [11, 12]


async def test_a_follower_that_fails_does_not_cost_the_others_their_events() -> None:
    async with Stream() as stream:

        def fail(_: Sequence[StoredEvent]) -> None:
            raise ZeroDivisionError

        heard: list[int] = []
        stream.tail.subscribe(fail)
        stream.tail.subscribe(lambda events: heard.extend(event.id for event in events))

        await stream.tell(3)

        assert heard == [1, 2, 3]


async def test_catching_up_joins_the_live_stream_without_gap_or_repeat() -> None:
    async with Stream(stored=2600) as stream:
        heard: list[int] = []
        catching_up = asyncio.create_task(
            stream.tail.replay(lambda events: heard.extend(event.id for event in events), after=99)
        )
        await asyncio.sleep(0)
        await stream.tell(300)
        await catching_up
        await stream.tell(1)

        assert heard == numbers(100, 2901)
