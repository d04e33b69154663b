"""The lease of a host: a supervisor ends its agent by itself once nobody has renewed it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.executors.conftest import Sandbox, ended, until

from paceline.clock import seconds_since_boot
from paceline.executors.proc_table import boot_id
from paceline.executors.process import ProcessExecutor
from paceline.executors.supervisor import LEASE_OVER

SHORT_SECONDS = 2.0
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
