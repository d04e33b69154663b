"""`add`: a plan is stored once, and what differs is named."""

from tests.cli.conftest import Workspace


def test_adding_twice_adds_once_and_changed_units_are_named_and_left(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b")

    assert workspace.run_json("add", plan) == {
        "campaign": "docs",
        "added": 2,
        "unchanged": 0,
        "changed": [],
        "updated": [],
    }
    plan.write_text(plan.read_text().replace('"do b"', '"do it better"'))
    again = workspace.run("add", plan)
    updated = workspace.run_json("add", plan, "--update")

    assert "1 differ from the store and were not updated: docs/b" in again.stdout
    assert updated["updated"] == ["docs/b"]


def test_without_an_engine_a_command_says_when_it_takes_effect(workspace: Workspace) -> None:
    added = workspace.run("add", workspace.plan("true", "a"))
    paused = workspace.run("pause", "docs")

    assert "No engine runs now" in added.stdout
    assert "No engine runs now" in paused.stdout
