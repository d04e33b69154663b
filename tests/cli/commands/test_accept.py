"""`accept UNIT`: a person takes a unit as done whose check did not pass."""

import time

from tests.cli.conftest import Workspace

from paceline.daemon.home import open_home
from paceline.testing.store_steps import ended


def leave_unverified(account: str = "") -> None:
    """Let the first unit that waits end well, with a check that never passed."""
    now = time.time()
    with open_home() as home:
        (unit,) = home.store.claim_units("docs", account, 1, attempt_ids=["t"], lease_until=now + 60, now=now)
        home.store.record_outcomes([ended(unit, "unverified")], now=now)


def test_an_accepted_unit_is_done_and_its_event_says_so(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    leave_unverified()
    assert [unit["id"] for unit in workspace.run_json("units", "docs", "--state", "unverified")["units"]] == ["docs/a"]
    assert workspace.run_json("status")["units"]["unverified"] == 1
    assert "paceline accept docs/a" in workspace.run("why", "a").stdout

    answer = workspace.run_json("accept", "a")

    assert answer == {"ok": True, "unit": "docs/a", "accepted": 1, "engine": "stopped"}
    with open_home() as home:
        done = [stored.event for stored in home.store.events(unit="docs/a")]
        assert [(event.name, event.fields["reason"]) for event in done] == [
            ("unit.done", "accepted by a person; its check did not pass")
        ]
        assert home.store.counts()["docs"].done == 1
    assert workspace.run_json("accept", "docs/a")["accepted"] == 0


def test_only_an_unverified_unit_is_accepted(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    refused = workspace.run("accept", "docs/a", code=2).stderr

    assert "docs/a is todo: only an unverified unit" in refused


def test_a_delivery_that_did_not_run_is_named(workspace: Workspace) -> None:
    head = 'check = ["true"]\ndeliver = ["git", "push"]\n[campaign.workspace]\nkind = "copy"\n'
    workspace.run("add", workspace.plan("true", "a", head=head))
    leave_unverified()

    answer = workspace.run_json("accept", "docs/a")

    assert answer["warning"] == "the delivery of the plan did not run: git push"
