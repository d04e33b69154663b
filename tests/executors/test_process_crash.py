"""Whatever is killed, nothing runs twice, nothing runs on unseen, and the next engine knows at once what is what."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.executors.conftest import DEADLINE_SECONDS, Fifo, Sandbox, ended, is_gone, read_all, until, write_status
from tests.executors.killed_engine import POINTS

from paceline.executors.interface import SessionState
from paceline.executors.proc_table import boot_id, start_ticks
from paceline.executors.process import ProcessExecutor, find_leftovers
from paceline.executors.spool import is_locked, read_session_status

ENGINE = Path(__file__).with_name("killed_engine.py")


def run_engine(sandbox: Sandbox, point: str, *attempts: str, gates: dict[str, Fifo] | None = None) -> None:
    """Runs an engine to its death; opens the gates once its sessions run."""
    arguments = [str(sandbox.spool), str(sandbox.work), point, *attempts]
    with subprocess.Popen([sys.executable, str(ENGINE), *arguments], stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        if gates:
            assert engine.stdout.readline() == b"running\n"
            for gate in gates.values():
                gate.write_line("late")
        assert engine.wait(timeout=DEADLINE_SECONDS) == -signal.SIGKILL


def runs(sandbox: Sandbox) -> list[str]:
    path = sandbox.work / "runs"
    return sorted(path.read_text().split()) if path.exists() else []


@pytest.mark.parametrize("point", [point for point in POINTS if point in ("spawned", "started", "running")])
async def test_live_sessions_are_adopted_at_once_and_run_once(point: str, sandbox: Sandbox) -> None:
    attempts = ["a1"] if point == "spawned" else ["a1", "a2", "a3"]
    gates = {attempt: sandbox.fifo(f"gate-{attempt}") for attempt in attempts}
    run_engine(sandbox, point, *attempts)

    executor = ProcessExecutor(str(sandbox.spool))
    handles = {attempt: executor.adopt(attempt) for attempt in attempts}
    for attempt, handle in handles.items():
        assert handle is not None
        assert handle.state().phase == "running"
        gates[attempt].write_line(f"to {attempt}")
        state = await ended(executor, handle)
        assert (state.phase, state.exit_code, state.cause) == ("ended", 7, "exit")
        assert read_all(handle) == f"begun\nto {attempt}\n".encode()
    executor.close()

    assert runs(sandbox) == attempts


async def test_sessions_that_ended_while_nobody_looked_are_collected(sandbox: Sandbox) -> None:
    gates = {attempt: sandbox.fifo(f"gate-{attempt}") for attempt in ("a1", "a2")}
    run_engine(sandbox, "running", "a1", "a2")
    for gate in gates.values():
        gate.write_line("alone")
    until(lambda: not is_locked(str(sandbox.spool / "a1")) and not is_locked(str(sandbox.spool / "a2")))

    executor = ProcessExecutor(str(sandbox.spool))
    for attempt in gates:
        handle = executor.adopt(attempt)
        assert handle is not None
        assert (handle.state().phase, handle.state().exit_code) == ("ended", 7)
        assert read_all(handle) == b"begun\nalone\n"
    executor.close()

    assert runs(sandbox) == ["a1", "a2"]


async def test_an_engine_that_died_after_the_end_finds_the_end_again(sandbox: Sandbox) -> None:
    run_engine(sandbox, "ended", "a1", gates={"a1": sandbox.fifo("gate-a1")})

    executor = ProcessExecutor(str(sandbox.spool))
    handle = executor.adopt("a1")
    assert handle is not None
    assert handle.state().exit_code == 7
    assert executor.sweep(keep=["a1"]) == {}
    executor.archive(handle)
    assert executor.spool.unarchived() == []
    executor.close()


async def test_a_settled_attempt_is_no_work_for_the_next_engine_and_keeps_its_output(sandbox: Sandbox) -> None:
    run_engine(sandbox, "settled", "a1", gates={"a1": sandbox.fifo("gate-a1")})

    executor = ProcessExecutor(str(sandbox.spool))
    assert executor.spool.unarchived() == []
    handle = executor.adopt("a1")
    assert handle is not None
    assert read_all(handle) == b"begun\nlate\n"
    executor.close()


async def test_an_engine_that_died_before_the_supervisor_began_has_run_nothing(sandbox: Sandbox) -> None:
    run_engine(sandbox, "locked", "a1")

    executor = ProcessExecutor(str(sandbox.spool))
    handle = executor.adopt("a1")
    assert handle is not None
    assert handle.state().phase == "lost"
    assert runs(sandbox) == []
    assert executor.adopt("never") is None
    executor.close()


# --- the supervisor is killed --------------------------------------------------------------------------------


async def lose_supervisor(executor: ProcessExecutor, sandbox: Sandbox, script: str) -> tuple[SessionState, list[int]]:
    """A session whose script prints its pids, and whose supervisor is then killed."""
    ready = sandbox.fifo("ready")
    handle = executor.start(sandbox.shell("a1", script.replace("READY", str(ready))))
    supervisor, *pids = map(int, ready.read_line().split())
    until(lambda: handle.state().pid is not None)
    os.kill(supervisor, signal.SIGKILL)
    return await ended(executor, handle), pids


async def test_the_agent_dies_with_its_supervisor(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    state, pids = await lose_supervisor(
        executor, sandbox, "trap '' TERM HUP; echo $PPID $$ > READY; while :; do sleep 9; done"
    )

    assert state.phase == "lost"
    assert state.message == "its supervisor was killed"
    until(lambda: all(is_gone(pid) for pid in pids))


async def test_what_the_agent_had_started_is_killed_as_well(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    """Two children in the agent's group, one with a bare environment, and a daemon that has left the group."""
    script = "env -i sleep 1000 & a=$!; sleep 1000 & b=$!; setsid sleep 1000 & echo $PPID $$ $a $b $! > READY; wait"
    state, pids = await lose_supervisor(executor, sandbox, script)

    assert state.phase == "lost"
    assert len(pids) == 4
    until(lambda: all(is_gone(pid) for pid in pids))


@pytest.mark.parametrize("milliseconds", range(0, 60, 4))
async def test_a_supervisor_killed_at_any_moment_leaves_nothing(
    milliseconds: int, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    """From before its Python is up until after the agent has ended."""
    handle = executor.start(sandbox.shell("a1", "echo ran >> runs; setsid sleep 0.02 & wait"))
    kill_at = time.monotonic() + milliseconds / 1000
    until(lambda: time.monotonic() >= kill_at)

    executor.kill(handle)

    assert handle.state().phase in ("lost", "ended")
    until(lambda: sandbox.processes() == [])
    assert runs(sandbox) in ([], ["ran"])


async def test_a_supervisor_that_does_not_answer_can_be_killed(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    ready = sandbox.fifo("ready")
    handle = executor.start(sandbox.shell("a1", f"echo $PPID $$ > {ready}; sleep 1000"))
    supervisor, agent = map(int, ready.read_line().split())
    os.kill(supervisor, signal.SIGSTOP)

    executor.kill(handle)

    assert handle.state().phase == "lost"
    until(lambda: is_gone(agent))
    assert executor.take_ended() == [handle]


# --- what is nobody's ----------------------------------------------------------------------------------------


async def test_live_sessions_that_nobody_knows_are_stopped(sandbox: Sandbox) -> None:
    for attempt in ("known", "unknown"):
        sandbox.fifo(f"gate-{attempt}")
    run_engine(sandbox, "running", "known", "unknown")

    executor = ProcessExecutor(str(sandbox.spool))
    known = executor.adopt("known")
    strays = executor.sweep(keep=["known"])
    assert known is not None
    assert strays == {"unknown": "stopped"}
    until(lambda: executor.take_ended() == [] and "unknown" not in executor.spool.unarchived())
    assert known.state().phase == "running"
    executor.stop(known, grace=1)
    await ended(executor, known)
    executor.close()


async def test_leftovers_of_a_dead_supervisor_are_killed_and_reported(sandbox: Sandbox) -> None:
    ready = sandbox.fifo("ready")
    first = ProcessExecutor(str(sandbox.spool))
    first.start(sandbox.shell("a1", f"setsid sleep 1000 & echo $PPID $! > {ready}; wait"))
    supervisor, daemon = map(int, ready.read_line().split())
    first.close()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: is_gone(supervisor))

    second = ProcessExecutor(str(sandbox.spool))
    strays = second.sweep(keep=[])

    assert strays == {"a1": "killed"}
    assert is_gone(daemon)
    assert second.spool.unarchived() == []
    second.close()


async def test_after_a_reboot_nothing_is_killed_by_an_old_number(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    """The status names a pid of another boot, which now is somebody else's: this test's own."""
    handle = executor.start(sandbox.shell("a1", "true"))
    await ended(executor, handle)
    write_status(
        *(sandbox, "a1"),
        phase="running",
        boot_id="another",
        pid=os.getpid(),
        ticks=start_ticks(os.getpid()),
    )

    again = ProcessExecutor(str(sandbox.spool))
    adopted = again.adopt("a1")
    assert adopted is not None
    assert (adopted.state().phase, adopted.state().message) == ("lost", "the machine was restarted while it ran")
    assert not adopted.has_killed
    again.close()


async def test_a_stored_pid_is_not_trusted_to_be_alive(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    """The lock is free, so it is over, though a process with the supervisor's stored number lives."""
    await ended(executor, executor.start(sandbox.shell("a1", "true")))
    write_status(sandbox, "a1", phase="running", supervisor_pid=os.getpid(), supervisor_ticks=1, pid=None)

    again = ProcessExecutor(str(sandbox.spool))
    adopted = again.adopt("a1")
    assert adopted is not None
    assert adopted.state().phase == "lost"
    again.close()


@pytest.mark.parametrize("text", [b"", b"{", b'{"phase": "ended", "boot', b"\xff\xfe", b"[]", b'{"phase": "odd"}'])
async def test_an_end_that_cannot_be_read_is_not_blamed_on_a_killed_supervisor(
    text: bytes, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    """Both the status and its copy are damaged."""
    await ended(executor, executor.start(sandbox.shell("a1", "echo out")))
    (sandbox.spool / "a1" / "status.json").write_bytes(text)
    (sandbox.spool / "a1" / "lock").write_bytes(text)
    (sandbox.spool / "a1" / "status.tmp").write_bytes(b'{"phase": "ended", "exit_code": 0')

    again = ProcessExecutor(str(sandbox.spool))
    adopted = again.adopt("a1")
    assert adopted is not None
    assert (adopted.state().phase, adopted.state().message) == ("lost", "its final status cannot be read")
    assert read_all(adopted) == b"out\n"
    again.close()


async def test_a_session_can_be_stopped_by_an_engine_that_did_not_start_it(sandbox: Sandbox) -> None:
    sandbox.fifo("gate-a1")
    run_engine(sandbox, "running", "a1")

    executor = ProcessExecutor(str(sandbox.spool))
    handle = executor.adopt("a1")
    assert handle is not None
    executor.stop(handle, grace=5)
    state = await ended(executor, handle)
    executor.close()

    assert (state.cause, state.signal) == ("stopped", signal.SIGTERM)


async def test_two_engines_see_the_same_session(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    gate = sandbox.fifo("gate")
    first = executor.start(sandbox.shell("a1", f"read line < {gate}"))
    other = ProcessExecutor(str(sandbox.spool))
    second = other.adopt("a1")
    assert second is not None

    gate.write_line()

    assert await ended(executor, first) == await ended(other, second)
    other.close()


# -- Only processes that provably belong to a session are taken for its leftovers --


def start_group(script: str, ready: Fifo) -> tuple[int, list[int]]:
    """Start a process group whose leader has exited. Return its number and the pids that the script announces."""
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as leader:
        members = sorted(map(int, ready.read_line().split()))
    return leader.pid, members


@pytest.mark.parametrize("changes", [{"ticks": 1}, {"ticks": 10**12}])
async def test_a_number_that_means_another_process_now_is_left_alone(
    changes: dict[str, int], executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    await ended(executor, executor.start(sandbox.shell("a1", "true")))
    group = os.getpgid(0)
    write_status(sandbox, "a1", **{"phase": "running", "pid": group, **changes})

    assert boot_id() == getattr(read_session_status(str(sandbox.spool / "a1")), "boot_id", None)
    assert find_leftovers(str(sandbox.spool / "a1"), read_session_status(str(sandbox.spool / "a1"))) == []


@pytest.mark.parametrize(("mark", "left"), [("", False), ("env PACELINE_SPOOL={folder} ", True)])
async def test_a_group_without_its_leader_is_left_alone_unless_a_member_carries_the_mark(
    mark: str, left: bool, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    """The number that was the agent's is now that of a group whose leader has exited, as after `nohup make test &`."""
    await ended(executor, executor.start(sandbox.shell("a1", "true")))
    folder, ready = str(sandbox.spool / "a1"), sandbox.fifo("ready")
    script = f"{mark.format(folder=folder)}sleep 1000 & a=$!; sleep 1000 & echo $a $! > {ready}"
    group, members = start_group(script, ready)
    until(lambda: left == any(pid in members for pid in sandbox.processes()))  # `env` has become `sleep`
    write_status(sandbox, "a1", phase="running", pid=group, ticks=1)

    found = find_leftovers(folder, read_session_status(folder))

    os.killpg(group, signal.SIGKILL)
    until(lambda: all(map(is_gone, members)))
    assert sorted(found) == (members if left else [])
