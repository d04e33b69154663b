"""What a supervisor does by itself: it ends its agent without a lease, and it counts only the time in which it ran."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.executors.conftest import Sandbox, ended, until

from paceline.clock import seconds_since_boot
from paceline.executors import supervisor
from paceline.executors.proc_table import boot_id
from paceline.executors.process import ProcessExecutor
from paceline.executors.supervisor import LEASE_OVER, RunningTime

SHORT_SECONDS = 4.0
"""A lease in which an agent starts also on a busy machine."""


def write_lease(file: Path, seconds: float) -> float:
    """Let the lease end that many seconds from now. Returns when that is."""
    deadline = seconds_since_boot() + seconds
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{deadline}\n{boot_id()}\n")
    fresh.rename(file)
    return deadline


@pytest.fixture
def lease_file(tmp_path: Path) -> Path:
    return tmp_path / "lease"


@pytest.fixture
def leased(sandbox: Sandbox, lease_file: Path) -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(str(sandbox.spool), lease_file=str(lease_file))
    yield executor
    executor.close()


async def test_an_agent_is_ended_when_the_lease_of_its_host_runs_out(
    leased: ProcessExecutor, sandbox: Sandbox, lease_file: Path
) -> None:
    write_lease(lease_file, SHORT_SECONDS)
    handle = leased.start(sandbox.shell("a1", "sleep 1000"))

    state = await ended(leased, handle)

    assert (state.phase, state.cause, state.message) == ("ended", "terminated", LEASE_OVER)


async def test_an_agent_outlives_a_lease_that_is_renewed(
    leased: ProcessExecutor, sandbox: Sandbox, lease_file: Path
) -> None:
    first = write_lease(lease_file, SHORT_SECONDS)
    handle = leased.start(sandbox.shell("a1", "sleep 1000"))
    write_lease(lease_file, 1000.0)

    until(lambda: seconds_since_boot() > first + 0.2)

    assert handle.state().phase == "running"
    leased.kill(handle)


async def test_a_lease_that_cannot_be_read_ends_when_the_agent_had_to_start_at_the_latest(
    leased: ProcessExecutor, sandbox: Sandbox
) -> None:
    launch = sandbox.launch("a1", "sleep", "1000", start_by=seconds_since_boot() + SHORT_SECONDS)
    handle = leased.start(launch)

    state = await ended(leased, handle)

    assert (state.phase, state.cause, state.message) == ("ended", "terminated", LEASE_OVER)


async def test_without_a_lease_nobody_ends_an_agent(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    gate = sandbox.fifo("gate")
    handle = executor.start(sandbox.shell("a1", f"read line < {gate}"))
    gate.write_line()

    state = await ended(executor, handle)

    assert (state.phase, state.cause, state.message) == ("ended", "exit", "")


FROZEN_SECONDS = 1000.0
JUMPING_CLOCK = f"""\
import os, time
real_time = time.monotonic
time.monotonic = lambda: real_time() + (os.path.exists("frozen") and {FROZEN_SECONDS})
"""


async def test_the_time_in_which_a_supervisor_could_not_run_uses_up_no_time_out(
    executor: ProcessExecutor, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "BOOTSTRAP", JUMPING_CLOCK + supervisor.BOOTSTRAP)
    gate = sandbox.fifo("gate")
    handle = executor.start(sandbox.shell("a1", f"read line < {gate}", timeout=600.0, stall=600.0))
    status = Path(handle.folder) / "status.json"
    until(status.exists)
    before = msgspec.json.decode(status.read_bytes())["monotonic_at"]

    (Path(handle.folder) / "frozen").touch()
    until(lambda: msgspec.json.decode(status.read_bytes())["monotonic_at"] > before)
    gate.write_line()
    state = await ended(executor, handle)

    assert (state.phase, state.cause, state.message) == ("ended", "exit", "")


# -- Time in which a process could not run does not count --


class SetClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_a_tick_of_a_freeze_counts_and_all_of_the_time_that_was_used() -> None:
    clock = SetClock()
    running = RunningTime(1.0, clock)
    seen = []

    for step in (0.5, 1.0, 2.0, 125.0, 1.0):
        clock.now += step
        seen.append(running())

    assert (seen, running.frozen_seconds) == ([100.5, 101.5, 103.5, 104.5, 105.5], 124.0)
