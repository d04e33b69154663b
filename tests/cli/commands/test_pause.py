"""`pause` and `resume`."""

from tests.cli.conftest import Workspace


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
