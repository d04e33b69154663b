"""Passes that are late, fail, or compete with another engine."""

import contextlib
from collections.abc import Iterator

import pytest
from tests.engine.test_engine import Failing

from paceline.core.unit_lifecycle import Counters
from paceline.errors import EngineBusy, StoreUnreachable
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import SqliteStore, UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

MINUTE = 60.0


def works(_: Launch) -> Run:
    return Run(stdout=init() + answer(), later=((MINUTE, done()),), seconds=MINUTE)


async def test_lesson_33_a_laptop_that_slept_wakes_to_work() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + rejected(NOW + 2 * HOUR), exit_code=1)) as harness:
        harness.add_claude("night", 2)
        await harness.run(60.0)
        harness.executor.script = works

        harness.clock.step(9 * HOUR)
        await harness.run(0.0)
        await harness.run(300.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2)}


async def test_lesson_35_a_busy_or_sleeping_engine_kills_no_healthy_work() -> None:
    async with EngineHarness(lambda _: Run(seconds=5 * HOUR)) as harness:
        harness.add("night", 3)
        await harness.run(10.0)

        harness.clock.step(2 * HOUR)  # every lease has run out, and nobody could renew
        await harness.run(0.0)
        await harness.run(HOUR)

        assert harness.executor.stopped == []
        assert [harness.unit(f"night/u{n}").counters for n in range(3)] == [Counters(attempts=1)] * 3


async def test_lesson_39_a_write_whose_answer_was_lost_is_not_done_twice() -> None:
    for nth in range(1, 40):
        store = Failing(nth, is_stored=True)
        async with EngineHarness(store=store, pool=1, heartbeat=60.0) as harness:
            harness.add("night", 1)
            await harness.run(0.0)
            store.is_armed = True
            await harness.run(300.0)
            store.is_armed = False

            assert (nth, harness.states(), harness.launched()) == (nth, {"night/u0": "done"}, ["night/u0"])
            assert len(harness.events("unit.done")) >= 1


class Answerless(SqliteStore):
    """Once armed, the answer to the n-th commit is lost: it is stored, and the engine is not told."""

    def __init__(self, nth: int) -> None:
        super().__init__(":memory:")
        self.is_armed = False
        self.left = nth
        self._depth = 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        self._depth += 1
        try:
            with super().together():
                yield
        finally:
            self._depth -= 1
        self.left -= self.is_armed and not self._depth
        if self.is_armed and not self._depth and self.left == 0:
            raise StoreUnreachable("no answer")


async def test_lesson_39_an_event_whose_commit_had_no_answer_is_stored_once() -> None:
    def script(launch: Launch) -> Run:
        started.append(launch.attempt_id)
        refused = Run(stderr="Error: 429 Too Many Requests, retry-after: 20\n", exit_code=1, seconds=5.0)
        return refused if len(started) % 2 else Run(seconds=30.0)

    for nth in range(1, 100):
        store, started = Answerless(nth), list[str]()
        async with EngineHarness(script, store=store, pool=2, heartbeat=1.0) as harness:
            harness.add("night", 4)
            await harness.run(0.0)
            store.is_armed = True
            await harness.run(400.0)
            store.is_armed = False

            assert (nth, set(harness.states().values())) == (nth, {"done"})
            events = [each.event for each in store.events()]
            assert len({(each.name, each.at, each.scope, each.unit) for each in events}) == len(events), nth
        if store.left > 0:
            return
    raise AssertionError("the night never ended")


async def test_lesson_41_two_engines_never_share_a_limit_by_halves() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=2) as harness:
        harness.add("night", 10)
        await harness.run(1.0)

        with pytest.raises(EngineBusy):
            await harness.new_engine().run()

        assert len(harness.executor.live()) == 2


async def test_lesson_41_a_store_that_goes_away_lets_nobody_in_and_nothing_hang() -> None:
    class Gone(SqliteStore):
        is_gone = False

        def claimable(self) -> dict[tuple[str, str | None], int]:
            if self.is_gone:
                raise OSError("the disk is gone")
            return super().claimable()

    store = Gone.in_memory()
    async with EngineHarness(store=store, pool=1) as harness:
        harness.add("night", 3)
        await harness.run(1.0)
        store.is_gone = True
        await harness.run(HOUR)
        assert len(harness.launched()) == 1

        store.is_gone = False
        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=3)}
