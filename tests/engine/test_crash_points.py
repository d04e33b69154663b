"""An engine that is killed at every stored transition, before it and after it: nothing lost, done twice or charged.

What "done twice" means. A unit whose result is stored as done is never started again. A session that began is
adopted, not started a second time: while only engines die, every unit runs exactly once. Where the session itself
died unseen (its supervisor killed, the machine restarted), the try is counted as a loss and the unit runs again.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.engine.crash_process import WRITES

from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import SqliteStore, Store
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

ROOT = Path(__file__).parents[2]


class Result(msgspec.Struct):
    """The result of one crash point, as `tests.engine.crash_process` prints it."""

    at: str
    was_killed: bool
    states: list[str]
    attempts: list[int]
    tries: list[int]
    losses: list[int]
    runs: list[int]
    starts: list[int]
    """Events `unit.started` of each unit."""
    ends: list[int]
    """Events `unit.done` of each unit."""
    runs_after_done: int
    left: int
    unarchived: int


def crash_everywhere(folder: Path, disaster: str) -> list[Result]:
    command = [sys.executable, "-m", "tests.engine.crash_process", str(folder), disaster, "1", "1000"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return [msgspec.convert(json.loads(line), Result) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("disaster", ["engine", "supervisors", "reboot"])
def test_real_processes_survive_a_kill_at_every_stored_transition(tmp_path: Path, disaster: str) -> None:
    results = crash_everywhere(tmp_path, disaster)

    assert len(results) > 30
    assert [result.was_killed for result in results] == [True] * (len(results) - 1) + [False]
    for result in results:
        assert (result.at, result.states, result.attempts) == (result.at, ["done"] * 3, [0] * 3)
        assert (result.at, result.tries) == (result.at, [losses + 1 for losses in result.losses])
        assert (result.at, result.starts, result.ends) == (result.at, result.tries, [1] * 3)
        assert (result.at, result.runs_after_done, result.left, result.unarchived) == (result.at, 0, 0, 0)
        if disaster == "engine":
            assert (result.at, result.runs) == (result.at, [1] * 3)
        else:
            assert all(1 <= runs <= tries for runs, tries in zip(result.runs, result.tries, strict=True)), result


# -- the same in virtual time, through a closed window ----------------------------------------------------


class Killed(BaseException):
    """`kill -9`, as seen from inside."""


class Mortal:
    """A store whose n-th write kills the engine; after that it cannot reach it any more."""

    def __init__(self, store: Store, nth: int, *, after: bool) -> None:
        self._store = store
        self._left = nth
        self._after = after
        self.is_dead = False

    def __getattr__(self, name: str) -> object:
        verb = getattr(self._store, name)
        if not callable(verb):
            return verb

        def call(*args: object, **kwargs: object) -> object:
            if self.is_dead:
                raise Killed
            self._left -= name in WRITES
            self.is_dead = self._left == 0 and name in WRITES
            if self.is_dead and not self._after:
                raise Killed
            answer = verb(*args, **kwargs)
            if self.is_dead:
                raise Killed
            return answer

        return call


def quota_script(harness: Callable[[], EngineHarness]) -> Callable[[Launch], Run]:
    """Two units are begun and meet a closed window; from the reset on, all end well."""
    reset = NOW + 1200.0

    def script(launch: Launch) -> Run:
        session = "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]
        begun = init(session) + answer(session)
        if harness().clock.now() < reset:
            return Run(stdout=begun, later=((40.0, rejected(reset, session)),), exit_code=1, seconds=400.0)
        return Run(stdout=begun, later=((60.0, done(session)),), seconds=60.0)

    return script


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_park_survives_a_kill_at_every_stored_transition(after: bool) -> None:
    for nth in range(1, 1000):
        real = SqliteStore.in_memory()
        harness = EngineHarness(quota_script(lambda: harness), pool=2, heartbeat=300.0, lease=9 * HOUR)  # noqa: B023
        harness.store = real
        harness.add_claude("night", 4)
        harness.store = mortal = Mortal(real, nth, after=after)  # type: ignore[assignment]
        harness.engine = harness.new_engine()
        try:
            await harness.run(1800.0)
        except Killed:
            harness.store = real
            harness.start_over()
            await harness.run(1800.0)
            await harness.stop()
        harness.store = real

        where = (nth, "after" if after else "before")
        assert (where, harness.states()) == (where, {f"night/u{n}": "done" for n in range(4)})
        assert (where, harness.failures()) == (where, 0)
        begun = [launch.env["PACELINE_UNIT"] for launch in harness.executor.started if "--resume" not in launch.argv]
        assert (where, sorted(begun)) == (where, [f"night/u{n}" for n in range(4)])  # no conversation is begun twice
        if not mortal.is_dead:
            assert nth > 20
            return
    raise AssertionError("the night never ended")


# -- and through a check that fails first ------------------------------------------------------------------


def checked_script() -> Callable[[Launch], Run]:
    """The check fails until the agent has been told of it."""
    told: set[str] = set()

    def script(launch: Launch) -> Run:
        name = launch.env["PACELINE_UNIT"]
        if "-check" in launch.attempt_id:
            return Run(stdout="1 failed\n", exit_code=0 if name in told else 1, seconds=30.0)
        if "1 failed" in "\n".join((*launch.argv, launch.stdin.decode())):
            told.add(name)
        session = "talk-" + name.rpartition("/")[2]
        return Run(stdout=init(session) + answer(session), later=((60.0, done(session)),), seconds=60.0)

    return script


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_check_and_its_feedback_survive_a_kill_at_every_stored_transition(after: bool) -> None:
    for nth in range(1, 1000):
        real = SqliteStore.in_memory()
        harness = EngineHarness(checked_script(), pool=2, heartbeat=300.0, lease=9 * HOUR)
        harness.store = real
        harness.add_claude("night", 1, check=("make", "test"), check_rounds=1)
        harness.store = mortal = Mortal(real, nth, after=after)  # type: ignore[assignment]
        harness.engine = harness.new_engine()
        try:
            await harness.run(1200.0)
        except Killed:
            harness.store = real
            harness.start_over()
            await harness.run(1200.0)
            await harness.stop()
        harness.store = real

        where = (nth, "after" if after else "before")
        (unit,) = real.running_units() or [harness.unit("night/u0")]
        assert (where, unit.state, harness.failures()) == (where, "done", 0)
        assert (where, [each.exit_code for each in unit.result.checks]) == (where, [1, 0])  # no round is lost
        ran = [launch.attempt_id.rpartition("-")[2] for launch in harness.executor.started]
        assert (where, [each for each in ran if each.startswith("check")]) == (where, ["check1", "check2"])
        assert (where, len(ran), harness.executor.unarchived()) == (where, 4, [])
        if not mortal.is_dead:
            assert nth > 12
            return
    raise AssertionError("the night never ended")
