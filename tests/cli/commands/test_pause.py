"""`pause` and `resume`."""

from tests.cli.conftest import Workspace

from paceline.daemon.home import open_home
from paceline.testing.store_steps import claim


def test_pause_and_resume_all(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "x", name="more"))

    assert workspace.run_json("pause", "--all")["campaigns"] == ["docs", "more"]
    assert workspace.run_json("resume", "docs")["campaigns"] == ["docs"]
    assert workspace.run_json("resume", "--all")["campaigns"] == ["more"]


def test_a_unit_is_paused_and_resumed(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))

    assert workspace.run_json("pause", "docs/a")["units"] == ["docs/a"]
    assert workspace.run_json("pause", "a", "docs/b")["units"] == ["docs/b"]
    assert workspace.run_json("status")["units"]["held"] == 2
    assert "paused by a person" in workspace.run("why", "a").stdout

    assert workspace.run_json("resume", "a")["units"] == ["docs/a"]
    assert workspace.run_json("resume", "a")["units"] == []
    workspace.run("cancel", "docs/a")
    assert "paceline retry docs/a" in workspace.run("resume", "docs/a", code=2).stderr


def test_a_unit_that_runs_is_paused_only_at_a_turn(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))
    with open_home() as home:
        claim(home.store, campaign="docs", account="")

    refused = workspace.run("pause", "docs/a", code=2).stderr
    assert "only a unit that waits can be paused" in refused
    assert "--at-turn" in refused
    assert workspace.run_json("pause", "docs/a", "--at-turn")["units"] == ["docs/a"]
    with open_home() as home:
        (order,) = [each.event for each in home.store.events(limit=1000) if each.event.name == "control.end_at_turn"]
    assert (order.fields["unit"], order.fields["is_held"]) == ("docs/a", True)


def test_what_is_said_of_a_pause_is_about_what_was_paused(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))
    with open_home() as home:
        claim(home.store, campaign="docs", account="")

    assert workspace.run("pause", "docs/b").stdout.startswith("paused docs/b: held until `paceline resume`\nNo engine")
    assert workspace.run("pause", "docs").stdout.startswith(
        "paused docs: running sessions finish; nothing new of it starts\n"
    )
    assert workspace.run("pause", "docs", "--at-turn").stdout.startswith(
        "docs/a: its session ends at its next turn; nothing else had to be paused\n"
    )
