"""`delete`: a campaign is gone, and its name is free."""

import time

from tests.cli.conftest import Workspace
from tests.cli.terminal import on_terminal

from paceline.daemon.home import open_home


def test_a_deleted_campaign_is_gone_and_its_name_is_free(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b")
    workspace.run("add", plan)
    workspace.run("cancel", "docs")
    refused = workspace.run("add", plan, code=2)

    unsure = workspace.run("delete", "docs", code=2)
    answer = workspace.run_json("delete", "docs", "--yes")

    assert "paceline retry docs" in refused.stderr
    assert "give --yes if you are sure" in unsure.stderr
    nothing = {"removed": 0, "kept": [], "branches": []}
    result = {"campaign": "docs", "outputs": 0, "workspaces": nothing, "left_to_hosts": 0, "engine": "stopped"}
    assert answer == {"ok": True, **result}
    assert workspace.run_json("list") == {"campaigns": []}
    assert workspace.run_json("add", plan)["added"] == 2


def test_a_campaign_with_a_running_unit_is_not_deleted(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    with open_home() as home:
        home.store.claim_units("docs", "", 1, attempt_ids=["x"], lease_until=time.time() + 60, now=time.time())

    refused = workspace.run("delete", "docs", "--yes", code=2)

    assert "units of 'docs' are running: cancel it first" in refused.stderr
    assert len(workspace.run_json("list")["campaigns"]) == 1


def test_deleting_asks_first(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    codes = []
    for answer in (b"n\r", b"y\r"):
        with on_terminal(workspace, "delete", "docs") as terminal:
            terminal.wait_for(lambda text: "Delete docs with all its units" in text)
            terminal.type(answer)
            codes.append(terminal.wait_end())
        codes.append(len(workspace.run_json("list")["campaigns"]))

    assert codes == [1, 1, 0, 0]
