"""Only processes that provably belong to a session are taken for its leftovers."""

import os
import signal
import subprocess

import pytest
from tests.executors.conftest import Fifo, Sandbox, ended, is_gone, until, write_status

from paceline.executors.orphans import find_leftovers
from paceline.executors.proc_table import boot_id
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import read_session_status


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
