"""`list`: campaigns and their counts."""

from tests.cli.conftest import Workspace, park


def test_an_empty_home_tells_where_to_begin(workspace: Workspace) -> None:
    assert "paceline run PLAN" in workspace.run("list").stdout
    assert workspace.run_json("list") == {"campaigns": []}
    assert workspace.run_json("status")["engine"]["state"] == "stopped"


def test_the_list_counts_units_by_what_they_do(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b", "c"))
    park()

    (campaign,) = workspace.run_json("list")["campaigns"]
    row = workspace.run("list").stdout.splitlines()[1].split()

    assert (campaign["units"]["todo"], campaign["units"]["parked"]) == (3, 1)
    assert row == ["docs", "active", "0", "command", "0/3", "0", "2", "1", "0"]
