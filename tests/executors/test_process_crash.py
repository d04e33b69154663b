"""Whatever is killed, nothing runs twice, nothing runs on unseen, and the next engine knows at once what is what."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.executors.conftest import Fifo, Yard, ended, is_gone, read_all, until, write_status
from tests.executors.killed_engine import POINTS

from paceline.executors.interface import SessionState
from paceline.executors.proc_table import start_ticks
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import is_locked

ENGINE = Path(__file__).with_name("killed_engine.py")


def run_engine(yard: Yard, point: str, *attempts: str, gates: dict[str, Fifo] | None = None) -> None:
    """Runs an engine to its death; opens the gates once its sessions run."""
    arguments = [str(yard.spool), str(yard.work), point, *attempts]
    with subprocess.Popen([sys.executable, str(ENGINE), *arguments], stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        if gates:
            assert engine.stdout.readline() == b"running\n"
            for gate in gates.values():
                gate.tell("late")
        assert engine.wait(timeout=30) == -signal.SIGKILL


def runs(yard: Yard) -> list[str]:
    path = yard.work / "runs"
    return sorted(path.read_text().split()) if path.exists() else []


@pytest.mark.parametrize("point", [point for point in POINTS if point in ("spawned", "started", "running")])
async def test_live_sessions_are_adopted_at_once_and_run_once(point: str, yard: Yard) -> None:
    attempts = ["a1"] if point == "spawned" else ["a1", "a2", "a3"]
    gates = {attempt: yard.fifo(f"gate-{attempt}") for attempt in attempts}
    run_engine(yard, point, *attempts)

    executor = ProcessExecutor(str(yard.spool))
    handles = {attempt: executor.adopt(attempt) for attempt in attempts}
    for attempt, handle in handles.items():
        assert handle is not None
        assert handle.state().phase == "running"
        gates[attempt].tell(f"to {attempt}")
        state = await ended(executor, handle)
        assert (state.phase, state.exit_code, state.cause) == ("ended", 7, "exit")
        assert read_all(handle) == f"begun\nto {attempt}\n".encode()
    executor.close()

    assert runs(yard) == attempts


async def test_sessions_that_ended_while_nobody_looked_are_collected(yard: Yard) -> None:
    gates = {attempt: yard.fifo(f"gate-{attempt}") for attempt in ("a1", "a2")}
    run_engine(yard, "running", "a1", "a2")
    for gate in gates.values():
        gate.tell("alone")
    until(lambda: not is_locked(str(yard.spool / "a1")) and not is_locked(str(yard.spool / "a2")))

    executor = ProcessExecutor(str(yard.spool))
    for attempt in gates:
        handle = executor.adopt(attempt)
        assert handle is not None
        assert (handle.state().phase, handle.state().exit_code) == ("ended", 7)
        assert read_all(handle) == b"begun\nalone\n"
    executor.close()

    assert runs(yard) == ["a1", "a2"]


async def test_an_engine_that_died_after_the_end_finds_the_end_again(yard: Yard) -> None:
    run_engine(yard, "ended", "a1", gates={"a1": yard.fifo("gate-a1")})

    executor = ProcessExecutor(str(yard.spool))
    handle = executor.adopt("a1")
    assert handle is not None
    assert handle.state().exit_code == 7
    assert executor.sweep(keep=["a1"]) == []
    executor.archive(handle)
    assert executor.spool.unarchived() == []
    executor.close()


async def test_a_settled_attempt_is_no_work_for_the_next_engine_and_keeps_its_output(yard: Yard) -> None:
    run_engine(yard, "settled", "a1", gates={"a1": yard.fifo("gate-a1")})

    executor = ProcessExecutor(str(yard.spool))
    assert executor.spool.unarchived() == []
    handle = executor.adopt("a1")
    assert handle is not None
    assert read_all(handle) == b"begun\nlate\n"
    executor.close()


async def test_an_engine_that_died_before_the_supervisor_began_has_run_nothing(yard: Yard) -> None:
    run_engine(yard, "locked", "a1")

    executor = ProcessExecutor(str(yard.spool))
    handle = executor.adopt("a1")
    assert handle is not None
    assert handle.state().phase == "lost"
    assert runs(yard) == []
    assert executor.adopt("never") is None
    executor.close()


# --- the supervisor is killed --------------------------------------------------------------------------------


async def lose_supervisor(executor: ProcessExecutor, yard: Yard, script: str) -> tuple[SessionState, list[int]]:
    """A session whose script tells its pids, and whose supervisor is then killed."""
    ready = yard.fifo("ready")
    handle = executor.start(yard.shell("a1", script.replace("READY", str(ready))))
    supervisor, *pids = map(int, ready.hear().split())
    os.kill(supervisor, signal.SIGKILL)
    return await ended(executor, handle), pids


async def test_the_agent_dies_with_its_supervisor(executor: ProcessExecutor, yard: Yard) -> None:
    state, pids = await lose_supervisor(
        executor, yard, "trap '' TERM HUP; echo $PPID $$ > READY; while :; do sleep 9; done"
    )

    assert state.phase == "lost"
    assert state.message == "its supervisor was killed"
    until(lambda: all(is_gone(pid) for pid in pids))


async def test_what_the_agent_had_started_is_killed_as_well(executor: ProcessExecutor, yard: Yard) -> None:
    """Two children in the agent's group, one with a bare environment, and a daemon that has left the group."""
    script = "env -i sleep 1000 & a=$!; sleep 1000 & b=$!; setsid sleep 1000 & echo $PPID $$ $a $b $! > READY; wait"
    state, pids = await lose_supervisor(executor, yard, script)

    assert state.phase == "lost"
    assert len(pids) == 4
    until(lambda: all(is_gone(pid) for pid in pids))


@pytest.mark.parametrize("milliseconds", range(0, 60, 4))
async def test_a_supervisor_killed_at_any_moment_leaves_nothing(
    milliseconds: int, executor: ProcessExecutor, yard: Yard
) -> None:
    """From before its Python is up until after the agent has ended."""
    handle = executor.start(yard.shell("a1", "echo ran >> runs; setsid sleep 0.02 & wait"))
    kill_at = time.monotonic() + milliseconds / 1000
    until(lambda: time.monotonic() >= kill_at)

    executor.kill(handle)

    assert handle.state().phase in ("lost", "ended")
    until(lambda: yard.processes() == [])
    assert runs(yard) in ([], ["ran"])


async def test_a_supervisor_that_does_not_answer_can_be_killed(executor: ProcessExecutor, yard: Yard) -> None:
    ready = yard.fifo("ready")
    handle = executor.start(yard.shell("a1", f"echo $PPID $$ > {ready}; sleep 1000"))
    supervisor, agent = map(int, ready.hear().split())
    os.kill(supervisor, signal.SIGSTOP)

    executor.kill(handle)

    assert handle.state().phase == "lost"
    until(lambda: is_gone(agent))
    assert executor.take_ended() == [handle]


# --- what is nobody's ----------------------------------------------------------------------------------------


async def test_live_sessions_that_nobody_knows_are_stopped(yard: Yard) -> None:
    for attempt in ("known", "unknown"):
        yard.fifo(f"gate-{attempt}")
    run_engine(yard, "running", "known", "unknown")

    executor = ProcessExecutor(str(yard.spool))
    known = executor.adopt("known")
    strays = executor.sweep(keep=["known"])
    assert known is not None
    assert [(stray.attempt_id, stray.action, len(stray.pids)) for stray in strays] == [("unknown", "stopped", 1)]
    until(lambda: executor.take_ended() == [] and "unknown" not in executor.spool.unarchived())
    assert known.state().phase == "running"
    executor.stop(known, grace=1)
    await ended(executor, known)
    executor.close()


async def test_leftovers_of_a_dead_supervisor_are_killed_and_told(yard: Yard) -> None:
    ready = yard.fifo("ready")
    first = ProcessExecutor(str(yard.spool))
    first.start(yard.shell("a1", f"setsid sleep 1000 & echo $PPID $! > {ready}; wait"))
    supervisor, daemon = map(int, ready.hear().split())
    first.close()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: is_gone(supervisor))

    second = ProcessExecutor(str(yard.spool))
    strays = second.sweep(keep=[])

    assert [(stray.attempt_id, stray.action) for stray in strays] == [("a1", "killed")]
    assert daemon in strays[0].pids  # and the agent, if it was still dying
    assert is_gone(daemon)
    assert second.spool.unarchived() == []
    second.close()


async def test_after_a_reboot_nothing_is_killed_by_an_old_number(executor: ProcessExecutor, yard: Yard) -> None:
    """The status names a pid of another boot, which now is somebody else's: this test's own."""
    handle = executor.start(yard.shell("a1", "true"))
    await ended(executor, handle)
    write_status(
        *(yard, "a1"),
        phase="running",
        boot_id="another",
        pid=os.getpid(),
        ticks=start_ticks(os.getpid()),
    )

    again = ProcessExecutor(str(yard.spool))
    adopted = again.adopt("a1")
    assert adopted is not None
    assert (adopted.state().phase, adopted.state().message) == ("lost", "the machine was restarted while it ran")
    assert adopted.killed == ()
    again.close()


async def test_a_stored_pid_is_not_trusted_to_be_alive(executor: ProcessExecutor, yard: Yard) -> None:
    """The lock is free, so it is over, though a process with the supervisor's stored number lives."""
    await ended(executor, executor.start(yard.shell("a1", "true")))
    write_status(yard, "a1", phase="running", supervisor_pid=os.getpid(), supervisor_ticks=1, pid=None)

    again = ProcessExecutor(str(yard.spool))
    adopted = again.adopt("a1")
    assert adopted is not None
    assert adopted.state().phase == "lost"
    again.close()


@pytest.mark.parametrize("text", [b"", b"{", b'{"phase": "ended", "boot', b"\xff\xfe", b"[]", b'{"phase": "odd"}'])
async def test_a_status_that_cannot_be_read_is_none(text: bytes, executor: ProcessExecutor, yard: Yard) -> None:
    await ended(executor, executor.start(yard.shell("a1", "echo out")))
    (yard.spool / "a1" / "status.json").write_bytes(text)
    (yard.spool / "a1" / "status.tmp").write_bytes(b'{"phase": "ended", "exit_code": 0')

    again = ProcessExecutor(str(yard.spool))
    adopted = again.adopt("a1")
    assert adopted is not None
    assert adopted.state().phase == "lost"
    assert read_all(adopted) == b"out\n"
    again.close()


async def test_a_session_can_be_stopped_by_an_engine_that_did_not_start_it(yard: Yard) -> None:
    yard.fifo("gate-a1")
    run_engine(yard, "running", "a1")

    executor = ProcessExecutor(str(yard.spool))
    handle = executor.adopt("a1")
    assert handle is not None
    executor.stop(handle, grace=5)
    state = await ended(executor, handle)
    executor.close()

    assert (state.cause, state.signal) == ("stopped", signal.SIGTERM)


async def test_two_engines_see_the_same_session(executor: ProcessExecutor, yard: Yard) -> None:
    gate = yard.fifo("gate")
    first = executor.start(yard.shell("a1", f"read line < {gate}"))
    other = ProcessExecutor(str(yard.spool))
    second = other.adopt("a1")
    assert second is not None

    gate.tell()

    assert await ended(executor, first) == await ended(other, second)
    other.close()
