"""The reading of all sessions: nothing that one of them does stops the others."""

import asyncio
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.log_capture import Logged

from paceline.agents import load_agent
from paceline.clock import SystemClock
from paceline.core import GovernorSettings
from paceline.core.gates.reopening import first_look
from paceline.core.unit_lifecycle import Counters
from paceline.core.values.session_output import Channel
from paceline.engine.engine import TURNS_BETWEEN, Engine
from paceline.engine.settings import EngineSettings
from paceline.executors.interface import Handle, Launch, SessionState
from paceline.executors.process import ProcessExecutor
from paceline.simulation.agent_transcripts import answer, init, rejected
from paceline.simulation.executor import Run, ScriptedExecutor
from paceline.store import Campaign, SqliteStore, UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

MEGABYTE = 1 << 20


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What the engine logs in this test."""
    handler = Logged()
    logging.getLogger("paceline.engine").addHandler(handler)
    yield handler.lines
    logging.getLogger("paceline.engine").removeHandler(handler)


# -- talkative sessions --------------------------------------------------------------------------------


async def test_a_session_that_is_behind_delays_neither_the_end_of_another_nor_its_own() -> None:
    def script(launch: Launch) -> Run:
        noisy = launch.env["PACELINE_UNIT"] == "night/u0"
        return Run(stdout="building\n" * (2 * MEGABYTE) if noisy else "", seconds=1.0)

    async with EngineHarness(script, pool=4, heartbeat=300.0) as harness:
        harness.add("night", 4)
        await harness.run(1.0)

        assert harness.store.counts() == {"night": UnitCounts(done=4)}
        ended = {unit.id: unit.ended_at for unit in harness.store.units().units}
        assert ended == {f"night/u{n}": NOW + 1.0 for n in range(4)}


class Endless(ScriptedExecutor):
    """An executor whose session of u0 prints faster than anybody can read."""

    def __init__(self, harness: EngineHarness, seconds: float = math.inf) -> None:
        super().__init__(self._run, harness.clock)
        self._seconds = seconds
        self.turns: list[str] = []
        """`piece` for every piece that was read, `loop` for every turn of the loop after one."""

    def _run(self, launch: Launch) -> Run:
        return Run(seconds=self._seconds if launch.env["PACELINE_UNIT"].endswith("/u0") else 0.0)

    def start(self, launch: Launch) -> Handle:
        handle = super().start(launch)
        return EndlessHandle(handle, self.turns) if launch.env["PACELINE_UNIT"].endswith("/u0") else handle


class EndlessHandle:
    """A session that always has more output."""

    channels: tuple[Channel, ...] = ("stdout",)

    def __init__(self, handle: Handle, turns: list[str]) -> None:
        self.attempt_id = handle.attempt_id
        self.state = handle.state
        self._turns = turns

    def read_new(self, channel: Channel) -> bytes:
        self._turns.append("piece")
        asyncio.get_running_loop().call_soon(self._turns.append, "loop")
        return b"y\n" * 1000

    def written_at(self, channel: Channel) -> float | None:
        return None


async def test_a_unit_that_prints_without_end_freezes_nobody_and_a_stop_is_heard() -> None:
    harness = EngineHarness(pool=2)
    harness.executor = executor = Endless(harness)
    harness.engine = harness.new_engine()
    harness.add("night", 6)

    running = asyncio.create_task(harness.engine.run())
    for _ in range(500):
        await asyncio.sleep(0)
    harness.engine.stop()
    await running

    assert harness.states() == {"night/u0": "running"} | {f"night/u{n}": "done" for n in range(1, 6)}
    read, turns = executor.turns.count("piece"), executor.turns
    assert read > 10
    assert turns == ["piece", "loop"] * read


@pytest.mark.parametrize("seconds", [math.inf, 0.0])
async def test_between_two_pieces_of_output_others_have_several_turns_of_the_loop(seconds: float) -> None:
    """Whether the session still runs or is over: an answer of the API takes a few turns, and each would wait longer."""
    harness = EngineHarness(pool=2)
    harness.executor = executor = Endless(harness, seconds)
    harness.engine = harness.new_engine()
    harness.add("night", 2)

    running = asyncio.create_task(harness.engine.run())
    turns: list[int] = []
    for _ in range(200):
        await asyncio.sleep(0)
        turns.append(executor.turns.count("piece"))
    harness.engine.stop()
    await running

    per_piece = Counter(turns[turns.index(1) : turns.index(turns[-1])])
    assert set(per_piece) == set(range(1, turns[-1]))
    assert min(per_piece.values()) >= TURNS_BETWEEN


async def _longest_wait(is_over: Callable[[], bool]) -> float:
    """Return how long the loop let a task wait for its turn at most, until it is over."""
    longest, began = 0.0, time.perf_counter()
    while not is_over():
        await asyncio.sleep(0)
        longest, began = max(longest, time.perf_counter() - began), time.perf_counter()
    return longest


async def test_real_units_of_one_second_end_beside_one_that_prints_without_end(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    specs = [UnitSpec(id="noisy", prompt="yes", cwd=str(tmp_path))]
    specs += [UnitSpec(id=f"quiet{n}", prompt="sleep 1", cwd=str(tmp_path)) for n in range(5)]
    store.add_campaign(Campaign(name="night", command=("sh", "-c", "{prompt}")), specs, update=False, now=time.time())
    engine = Engine(
        EngineSettings(governor=GovernorSettings(limits={"sessions": 6}), heartbeat=0.2),
        store=store,
        executor=ProcessExecutor(str(tmp_path / "spool")),
        clock=SystemClock(),
        agents=load_agent,
        environ={"PATH": os.environ["PATH"]},
        owner="engine1",
    )
    running = asyncio.create_task(engine.run())
    async with asyncio.timeout(60.0):
        longest = await _longest_wait(lambda: store.counts()["night"].done == 5)

    (noisy,) = engine.live_sessions()
    noisy_handle = noisy.handle
    engine.stop()
    await asyncio.wait_for(running, 60.0)
    executor = ProcessExecutor(str(tmp_path / "spool"))
    handle = executor.adopt(noisy_handle.attempt_id)
    assert handle is not None
    executor.kill(handle)
    executor.close()
    store.close()
    assert noisy.unit.id == "night/noisy"
    assert longest < 1.0, f"the loop stood still for {longest:.2f} s"


async def test_an_adopted_session_is_caught_up_in_pieces_and_its_closed_window_counts() -> None:
    prose = answer(text="building " * 1000) * 60
    said = init() + answer() + prose + rejected(NOW + 1200.0)
    async with EngineHarness(lambda _: Run(stdout=said, seconds=HOUR), heartbeat=300.0) as harness:
        harness.add_claude("night", 1)
        harness.engine.start()
        list(harness.engine.make_pass())
        harness.engine.close()
        harness.engine = harness.new_engine()

        await harness.run(1.0)

        assert harness.unit("night/u0").resume_at == first_look(NOW + 1200.0)


# -- errors of one session ------------------------------------------------------------------------------


class Broken(ScriptedExecutor):
    """An executor that fails for the unit u0, as long as it is told to."""

    fails: str = ""

    def start(self, launch: Launch) -> Handle:
        if self.fails == "start" and launch.env["PACELINE_UNIT"].endswith("/u0"):
            raise RuntimeError("boom")
        handle = super().start(launch)
        return BrokenHandle(handle, self) if launch.env["PACELINE_UNIT"].endswith("/u0") else handle

    def archive(self, handle: Handle) -> None:
        if self.fails == "archive" and isinstance(handle, BrokenHandle):
            raise FileNotFoundError("spool/.settled")
        super().archive(handle)


class BrokenHandle:
    """A handle that fails at one of its verbs."""

    channels: tuple[Channel, ...] = ("stdout", "stderr")

    def __init__(self, handle: Handle, executor: Broken) -> None:
        self.attempt_id = handle.attempt_id
        self._handle = handle
        self._executor = executor

    def state(self) -> SessionState:
        if self._executor.fails == "state":
            raise RuntimeError("boom")
        return self._handle.state()

    def read_new(self, channel: Channel) -> bytes:
        if self._executor.fails == "read":
            raise OSError("boom")
        return self._handle.read_new(channel)

    def written_at(self, channel: Channel) -> float | None:
        return self._handle.written_at(channel)


def broken_harness(fails: str) -> tuple[EngineHarness, Broken]:
    harness = EngineHarness(pool=2, heartbeat=1.0)
    harness.executor = executor = Broken(lambda _: Run(seconds=10.0), harness.clock)
    executor.fails = fails
    harness.engine = harness.new_engine()
    return harness, executor


@pytest.mark.parametrize(("fails", "step"), [("read", "read"), ("state", "conclude"), ("archive", "archive")])
async def test_an_error_of_one_session_is_logged_once_and_the_others_continue(
    fails: str, step: str, logged: list[str]
) -> None:
    harness, executor = broken_harness(fails)
    async with harness:
        harness.add("night", 6)
        await harness.run(20.0)

        assert harness.store.counts()["night"].done >= 2
        assert [line.partition(";")[0] for line in logged] == [f"cannot {step} session engine2-1"]

        executor.fails = ""
        await harness.run(300.0)
        assert harness.store.counts() == {"night": UnitCounts(done=6)}
        assert harness.failures() == 0
        assert (harness.scope("sessions").in_flight, harness.executor.unarchived()) == (0, [])


async def test_a_session_whose_output_cannot_be_read_gives_its_slot_back_and_is_not_charged() -> None:
    harness, _ = broken_harness("read")
    async with harness:
        harness.add("night", 3)
        await harness.run(30.0)

        assert harness.unit("night/u0").counters == Counters(attempts=2, losses=1)
        assert [event.fields["reason"] for event in harness.events("unit.requeued")] == [
            "its output could not be read (OSError: boom)"
        ]


async def test_a_session_that_cannot_be_started_for_an_unknown_reason_stops_nobody() -> None:
    harness, _ = broken_harness("start")
    async with harness:
        harness.add("night", 3)
        await harness.run(30.0)

        assert harness.states() == {"night/u0": "todo", "night/u1": "done", "night/u2": "done"}
        assert (harness.unit("night/u0").reason, harness.failures()) == (
            "could not be started (RuntimeError: boom)",
            0,
        )


def test_an_archive_that_a_person_removed_is_made_again(tmp_path: Path) -> None:
    executor = ProcessExecutor(str(tmp_path / "spool"))
    folder = executor.spool.create("a1")
    (tmp_path / "spool" / ".settled").rmdir()

    executor.spool.archive("a1")

    assert (os.path.exists(folder), executor.spool.folder("a1")) == (False, str(tmp_path / "spool/.settled/a1"))
    executor.close()
