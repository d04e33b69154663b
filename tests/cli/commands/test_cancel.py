"""`cancel`: it asks at a terminal, ends running sessions, and is undone by `retry`."""

import json
import time

from tests.cli.conftest import PATIENCE_SECONDS, Workspace, finish, read_until

from paceline.daemon.home import open_home
from paceline.testing.store_steps import claim

WAITING = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done"


def test_a_cancelled_campaign_takes_nothing_until_it_is_retried(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b")
    workspace.run("add", plan)

    assert workspace.run_json("cancel", "docs")["cancelled"] == 2
    for command in (["resume", "docs"], ["run", plan], ["add", plan]):
        assert "paceline retry docs" in workspace.run(*command, code=2).stderr

    assert workspace.run_json("retry", "docs")["retried"] == 2
    assert workspace.run_json("list")["campaigns"][0]["state"] == "active"
    assert workspace.run_json("status")["units"]["cancelled"] == 0


def test_a_single_unit_is_cancelled_and_retried(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))

    assert workspace.run_json("cancel", "docs/a") == {
        "ok": True, "units": ["docs/a"], "cancelled": 1, "running": [], "engine": "stopped",
    }  # fmt: skip
    assert workspace.run_json("status")["units"]["cancelled"] == 1

    assert workspace.run_json("retry", "a") == {"ok": True, "unit": "docs/a", "retried": 1, "engine": "stopped"}
    assert workspace.run_json("retry", "a")["retried"] == 0


def test_a_name_of_a_campaign_and_a_unit_is_refused(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "more"))
    workspace.run("add", workspace.plan("true", "x", name="more"))

    assert "docs/more" in workspace.run("cancel", "more", code=2).stderr
    assert "there is no campaign 'dosc'" in workspace.run("cancel", "dosc", code=2).stderr
    assert workspace.run_json("status")["units"]["cancelled"] == 0


def test_cancel_without_an_engine_does_not_say_that_it_ends_a_session_elsewhere(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))
    with open_home() as home:
        claim(home.store, campaign="docs", account="#box1")

    said = workspace.run("cancel", "docs").stdout

    assert said.startswith(
        "cancelled docs: 2 units, 1 of them running; 1 session continues on another host until an engine runs, or the "
        "lease of the host ends; to undo it"
    )


def test_cancel_without_an_engine_ends_what_still_runs(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan(WAITING, "a"))
    read_until(engine, "started docs/a")
    engine.kill()
    finish(engine)
    (status,) = workspace.home.glob("spool/*/status.json")

    assert workspace.run_json("cancel", "docs")["running"] == ["docs/a"]

    deadline = time.monotonic() + PATIENCE_SECONDS
    while json.loads(status.read_text())["phase"] == "running":
        assert time.monotonic() < deadline
