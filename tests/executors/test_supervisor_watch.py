"""A supervisor that is stopped or stuck loses its session at the limits that it should have kept."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.executors.conftest import Sandbox, is_gone, until

from paceline.executors.interface import Handle
from paceline.executors.proc_table import stat_fields
from paceline.executors.process import CHECK_SECONDS, SLACK_SECONDS, ProcessExecutor, SupervisorWatch
from paceline.executors.spool import SessionStatus


class LaterClock:
    """The monotonic clock, which can be set ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead

    def ended_until(self, ahead: float, executor: ProcessExecutor) -> list[Handle]:
        """Set the clock ahead as a running engine sees it, pass by pass, and return what ended meanwhile."""
        ended: list[Handle] = []
        while self.ahead < ahead:
            self.ahead = min(ahead, self.ahead + CHECK_SECONDS)
            ended += executor.take_ended()
        return ended


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


def session(*, monotonic_at: float, timeout: float | None, stall: float | None, grace: float) -> SessionStatus:
    """Returns the status of a session that is supervised by this process."""
    return SessionStatus(
        phase="running",
        boot_id="",
        supervisor_pid=os.getpid(),
        monotonic_at=monotonic_at,
        timeout=timeout,
        stall=stall,
        grace=grace,
    )


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

    assert clock.ended_until(500.0, late) == []
    [handle] = clock.ended_until(606.0 + CHECK_SECONDS + SLACK_SECONDS, late)

    state = handle.state()
    assert (state.phase, state.cause, state.signal) == ("ended", "timed_out", signal.SIGKILL)
    until(lambda: all(is_gone(pid) for pid in pids))


def test_a_stopped_supervisor_without_a_time_out_has_stalled(
    late: ProcessExecutor, clock: LaterClock, sandbox: Sandbox
) -> None:
    stopped_supervisor(late, sandbox, stall=600, grace=5)

    assert late.take_ended() == []  # it is seen to be stopped
    assert clock.ended_until(500.0, late) == []
    [handle] = clock.ended_until(606.0 + CHECK_SECONDS, late)

    assert (handle.state().phase, handle.state().cause) == ("ended", "stalled")


def test_an_engine_that_adopts_the_session_knows_its_limits(
    late: ProcessExecutor, clock: LaterClock, sandbox: Sandbox
) -> None:
    stopped_supervisor(late, sandbox, timeout=600, grace=5)
    other = ProcessExecutor(str(sandbox.spool), monotonic=clock)
    adopted = other.adopt("a1")
    assert adopted is not None

    assert clock.ended_until(606.0 + CHECK_SECONDS + SLACK_SECONDS, other) == [adopted]
    assert adopted.state().cause == "timed_out"
    other.close()
    late.take_ended()


def test_a_supervisor_that_goes_on_in_time_keeps_its_session() -> None:
    """Stopped for a while, by a person with a debugger, and then continued."""
    watch, limits = SupervisorWatch(), session(monotonic_at=0.0, timeout=None, stall=60.0, grace=10.0)

    verdicts = [watch.verdict(limits, now) for now in (0.0, 100.0, 100.0 + CHECK_SECONDS, 1e9)]

    assert verdicts == [None, None, None, None]


def test_an_engine_that_was_frozen_with_its_sessions_ends_none_of_them(
    late: ProcessExecutor, clock: LaterClock, sandbox: Sandbox
) -> None:
    stopped_supervisor(late, sandbox, timeout=60, stall=60, grace=5)
    assert late.take_ended() == []

    clock.ahead = 1000.0  # one long step: nobody made a pass meanwhile
    ended = late.take_ended()

    assert ended == []


def test_a_supervisor_that_was_frozen_is_judged_by_the_limits_that_it_has_noted_since() -> None:
    watch = SupervisorWatch()
    before = session(monotonic_at=0.0, timeout=60.0, stall=None, grace=10.0)
    after = session(monotonic_at=1000.0, timeout=60.0, stall=None, grace=10.0)

    first = watch.verdict(before, 1010.0)
    later = [watch.verdict(after, now) for now in (1010.0 + SLACK_SECONDS, 1071.0, 1072.0 + SLACK_SECONDS)]

    assert (first, later) == (None, [None, None, "timed_out"])
