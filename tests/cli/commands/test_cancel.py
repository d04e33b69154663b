"""`cancel`: for good, and running sessions are ended."""

import json
import time

from tests.cli.conftest import Workspace, finish, read_until

WAITING = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done"


def test_cancel_is_for_good(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b")
    workspace.run("add", plan)

    assert workspace.run_json("cancel", "docs")["cancelled"] == 2
    for command in (["resume", "docs"], ["retry", "docs"], ["run", plan], ["add", plan]):
        assert "cancelled" in workspace.run(*command, code=2).stderr


def test_cancel_without_an_engine_ends_what_still_runs(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan(WAITING, "a"))
    read_until(engine, "started docs/a")
    engine.kill()
    finish(engine)
    (status,) = workspace.home.glob("spool/*/status.json")

    assert workspace.run_json("cancel", "docs")["running"] == ["docs/a"]

    deadline = time.monotonic() + 20
    while json.loads(status.read_text())["phase"] == "running":
        assert time.monotonic() < deadline
