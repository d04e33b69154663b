"""`retry UNIT --fresh`: a conversation is given up, and the unit starts again on another account."""

import time

from tests.cli.conftest import Workspace

from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.daemon.home import open_home
from paceline.store import OutcomeRecord


def park_conversation(unit_id: str, account: str) -> None:
    """Park a unit for an hour, with a conversation on the account."""
    now = time.time()
    with open_home() as home:
        (unit,) = home.store.claim_units("docs", account, 1, attempt_ids=["t"], lease_until=now + 60, now=now)
        assert unit.id == unit_id
        outcome = AttemptOutcome(ending="parked", reason="the quota window is spent", resume_at=now + 3600)
        transition = transition_after(unit.counters, outcome, Policy(), now)
        record = OutcomeRecord(
            unit_id=unit.id, fence=unit.fence, transition=transition, account=account, conversation_id="talk"
        )
        home.store.record_outcomes([record], now=now)


def test_a_conversation_is_given_up_and_its_wait_with_it(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    park_conversation("docs/a", "max-1")

    answer = workspace.run_json("retry", "docs/a", "--fresh")

    assert answer == {"ok": True, "unit": "docs/a", "retried": 1, "engine": "stopped"}
    with open_home() as home:
        unit = home.store.unit("docs/a")
        assert unit is not None
        assert (unit.state, unit.conversation_id, unit.resume_at) == ("todo", None, None)
    assert workspace.run_json("retry", "docs/a", "--fresh")["retried"] == 0


def test_only_one_unit_at_a_time_gives_up_its_conversation(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    assert "--fresh is for one unit" in workspace.run("retry", "docs", "--fresh", code=2).stderr
