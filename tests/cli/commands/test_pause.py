"""`pause` and `resume`."""

from tests.cli.conftest import Workspace


def test_pause_and_resume_all(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "x", name="more"))

    assert workspace.run_json("pause", "--all")["campaigns"] == ["docs", "more"]
    assert workspace.run_json("resume", "docs")["campaigns"] == ["docs"]
    assert workspace.run_json("resume", "--all")["campaigns"] == ["more"]
