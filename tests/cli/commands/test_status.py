"""`status`: the engine, the pool and the next resume."""

import os
import signal
import time

import pytest
from tests.cli.conftest import Workspace, finish, park, read_until
from tests.executors.conftest import until
from tests.executors.small_disk import SmallDisk, small_disk

from paceline.daemon.home import open_home
from paceline.store.interface import Phase


def test_the_status_tells_the_next_resume(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))
    park(until=time.time() + 7200)

    status = workspace.run_json("status")

    assert status["pool"] == {"sessions": 4, "running": 0, "waiting": 1, "parked": 1}
    assert status["next_resume_at"] == pytest.approx(time.time() + 7200, abs=60)
    assert "next resume" in workspace.run("status").stdout


def test_the_status_counts_the_sessions_of_exec(workspace: Workspace) -> None:
    held = workspace.start("exec", "--", "sh", "-c", "echo runs; exec sleep 60")
    try:
        read_until(held, "runs")
        shown = workspace.run("status").stdout
        pool = workspace.run_json("status")["pool"]
    finally:
        held.kill()
        held.wait()

    assert pool == {"sessions": 4, "running": 1, "waiting": 0, "parked": 0}
    assert "1 of 4 sessions running" in shown


@pytest.mark.parametrize(("phase", "running"), [("working", 2), ("checking", 1), ("delivering", 1)])
def test_a_unit_whose_agent_has_ended_is_no_session(workspace: Workspace, phase: Phase, running: int) -> None:
    workspace.run("add", workspace.plan("true", "a", "b", "c"))
    now = time.time()
    with open_home() as home:
        unit, _ = home.store.claim_units("docs", "", 2, attempt_ids=["1", "2"], lease_until=now + 60, now=now)
        home.store.save_progress(unit.id, unit.fence, phase=phase, result=None)

    assert workspace.run_json("status")["pool"] == {"sessions": 4, "running": running, "waiting": 1, "parked": 0}


def test_a_full_disk_is_in_the_status_and_in_why(workspace: Workspace) -> None:
    with small_disk(workspace.home, may_mount=True) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("no file system can be mounted here")
        workspace.run("add", workspace.plan("true", "a"))
        with open_home():  # as an engine has it
            disk.fill()
            status, why = workspace.run("status").stdout, workspace.run("why", "docs/a").stdout

    full = f"the disk of {workspace.home} is full"
    assert (full in " ".join(status.split()), full in " ".join(why.split())) == (True, True)


def test_a_read_only_disk_is_named(workspace: Workspace) -> None:
    with small_disk(workspace.home, may_mount=True) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("no file system can be mounted here")
        workspace.run("add", workspace.plan("true", "a"))
        disk.set_read_only()
        failed = workspace.run("status", code=1)

    said = " ".join(failed.output.split())
    assert f"{workspace.home} cannot be changed: Read-only file system; make it writable" in said


def test_an_engine_that_stands_still_is_named_by_status_why_and_doctor(workspace: Workspace) -> None:
    engine = workspace.start(
        "run", workspace.plan("while [ ! -e go ]; do sleep 0.05; done", "a", "b", head="max_sessions = 1")
    )
    read_until(engine, "started docs/a")
    os.kill(engine.pid, signal.SIGSTOP)
    with open_home() as home:
        until(lambda: home.trouble is not None)
    stopped = [workspace.run(*command).stdout for command in (("status",), ("why", "docs/a"), ("why", "docs/b"))]
    stopped.append(workspace.run("doctor", code=1).stdout)
    os.kill(engine.pid, signal.SIGCONT)
    (workspace.folder / "go").touch()
    finish(engine)
    workspace.run("add", workspace.plan("true", "c", name="other"))

    said = f"process {engine.pid} of the engine is stopped or frozen; `kill -CONT {engine.pid}` continues one"
    assert [said in " ".join(text.split()) for text in stopped] == [True] * 4
    assert "stopped or frozen" not in workspace.run("why", "other/c").stdout
