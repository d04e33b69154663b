"""`limit`: a live limit is kept until it is reset."""

from tests.cli.conftest import Workspace


def test_a_limit_set_live_is_kept_by_the_next_engine_and_can_be_given_back(workspace: Workspace) -> None:
    workspace.run("pool", 2)
    workspace.run("limit", "campaign:docs", 1, code=2)
    workspace.run("run", workspace.plan("true", "a"))

    kept = {row["scope"]: row for row in workspace.run_json("limits")["limits"]}
    workspace.run("limit", "sessions", "default")
    given_back = {row["scope"]: row for row in workspace.run_json("limits")["limits"]}

    assert (kept["sessions"]["effective"], kept["sessions"]["source"]) == (2, "live")
    assert (given_back["sessions"]["effective"], given_back["sessions"]["source"]) == (4, "shipped")


def test_a_campaigns_own_limit_is_kept_with_the_campaign(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    workspace.run("limit", "campaign:docs", 3)

    assert workspace.run_json("list")["campaigns"][0]["max_sessions"] == 3
