"""A supervisor that is stopped or stuck loses its session at the limits that it should have kept."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.executors.conftest import Sandbox, is_gone, until

from paceline.executors.proc_table import stat_fields
from paceline.executors.process import ProcessExecutor
from paceline.executors.supervisor_watch import CHECK_SECONDS, SLACK_SECONDS, SessionLimits, SupervisorWatch


class LaterClock:
    """The monotonic clock, which can be set ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


@pytest.fixture
def late(sandbox: Sandbox, clock: LaterClock) -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(str(sandbox.spool), monotonic=clock)
    yield executor
    for handle in list(executor._handles.values()):
        executor.kill(handle)
    executor.close()


def stopped_supervisor(executor: ProcessExecutor, sandbox: Sandbox, **limits: float) -> tuple[int, ...]:
    """Starts a session, stops its supervisor by a signal, and returns the pids of its agent and a child."""
    ready = sandbox.fifo("ready")
    executor.start(sandbox.shell("a1", f"sleep 1000 & echo $PPID $$ $! > {ready}; wait", **limits))
    supervisor, *pids = map(int, ready.read_line().split())
    until(lambda: executor._handles["a1"].state().pid is not None)
    os.kill(supervisor, signal.SIGSTOP)
    until(lambda: stat_fields(supervisor)[0] == b"T")
    return tuple(pids)


def test_a_stopped_supervisor_loses_its_slot_after_time_out_and_grace(
    late: ProcessExecutor, clock: LaterClock, sandbox: Sandbox
) -> None:
    pids = stopped_supervisor(late, sandbox, timeout=600, grace=5)

    clock.ahead = 604.0
    assert late.take_ended() == []
    clock.ahead = 606.0 + SLACK_SECONDS
    [handle] = late.take_ended()

    state = handle.state()
    assert (state.phase, state.cause, state.signal) == ("ended", "timed_out", signal.SIGKILL)
    until(lambda: all(is_gone(pid) for pid in pids))


def test_a_stopped_supervisor_without_a_time_out_has_stalled(
    late: ProcessExecutor, clock: LaterClock, sandbox: Sandbox
) -> None:
    stopped_supervisor(late, sandbox, stall=600, grace=5)

    assert late.take_ended() == []  # it is seen to be stopped
    clock.ahead = 590.0
    assert late.take_ended() == []
    clock.ahead = 606.0
    [handle] = late.take_ended()

    assert (handle.state().phase, handle.state().cause) == ("ended", "stalled")


def test_an_engine_that_adopts_the_session_knows_its_limits(
    late: ProcessExecutor, clock: LaterClock, sandbox: Sandbox
) -> None:
    stopped_supervisor(late, sandbox, timeout=600, grace=5)
    other = ProcessExecutor(str(sandbox.spool), monotonic=clock)
    adopted = other.adopt("a1")
    assert adopted is not None

    clock.ahead = 606.0 + SLACK_SECONDS

    assert other.take_ended() == [adopted]
    assert adopted.state().cause == "timed_out"
    other.close()
    late.take_ended()


def test_a_supervisor_that_goes_on_in_time_keeps_its_session() -> None:
    """Stopped for a while, by a person with a debugger, and then continued."""
    watch, limits = SupervisorWatch(), SessionLimits(since=0.0, timeout=None, stall=60.0, grace=10.0)

    verdicts = [watch.verdict(os.getpid(), limits, now) for now in (0.0, 100.0, 100.0 + CHECK_SECONDS, 1e9)]

    assert verdicts == [None, None, None, None]
