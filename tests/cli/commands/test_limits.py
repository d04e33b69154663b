"""`limits`: every limit with its source."""

import pytest
from tests.cli.conftest import Workspace


def test_limits_say_where_each_comes_from(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = workspace.write("paceline.toml", '[limits]\n"acme" = 7\n"other" = 3')
    monkeypatch.setenv("PACELINE_POOL", "9")
    workspace.run("add", workspace.plan("true", "a", head="max_sessions = 2"))
    workspace.run("limit", "other", "none")

    rows = {row["scope"]: row for row in workspace.run_json("limits")["limits"]}

    assert (rows["sessions"]["configured"], rows["sessions"]["source"]) == (9, "environment")
    assert (rows["runs"]["configured"], rows["runs"]["source"]) == (50, "shipped")
    assert (rows["acme"]["effective"], rows["acme"]["source"]) == (7, str(file))
    assert (rows["other"]["effective"], rows["other"]["source"]) == (None, "live")
    assert (rows["campaign:docs"]["effective"], rows["campaign:docs"]["source"]) == (2, "plan")
