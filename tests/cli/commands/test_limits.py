"""`limits`: every limit with its source."""

import pytest
from tests.cli.conftest import Workspace

from paceline.core.signals import BillingStop
from paceline.daemon.home import open_home
from paceline.engine.capacity.governor_state import save_governor


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


def test_in_a_pipe_a_long_state_is_one_whole_line_and_a_key_is_named_as_the_source(workspace: Workspace) -> None:
    workspace.run("keys", "create", "docs", "--parallel", "2")
    detail = "the card was declined, " * 12 + "and that is all"
    with open_home() as home:
        governor = home.offline_state(0.0).governor
        governor.report("anthropic/max-1", BillingStop(detail=detail), now=0.0)
        save_governor(home.store, governor)

    lines = workspace.run("limits").stdout.splitlines()

    (held,) = [line for line in lines if line.startswith("anthropic/max-1 ")]
    assert "the card was declined, and that is all (`paceline restore anthropic/max-1` once it is fixed)" in held
    (key,) = [line for line in lines if line.startswith("key:docs ")]
    assert key.split()[1:4] == ["2", "2", "key"]


def test_a_limit_in_the_settings_of_an_account_that_is_not_configured_says_so(workspace: Workspace) -> None:
    account = '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\n'
    limits = '[limits]\n"anthropic/max-9" = 3\n"anthropic/max-1" = 2\n"anthropic/*/opus-*" = 4\n"openai/default" = 1\n'
    workspace.write("paceline.toml", account + limits)

    rows = {row["scope"]: row["state"] for row in workspace.run_json("limits")["limits"]}
    noted = [each for each in workspace.run_json("doctor", code=1)["findings"] if each["what"] == "limits"]

    warning = "no configured account is anthropic/max-9: only programs that name this scope themselves use it"
    assert [scope for scope, state in rows.items() if state] == ["anthropic/max-9"]
    assert rows["anthropic/max-9"] == warning
    fix = "correct 'anthropic/max-9' in [limits], or configure the account"
    assert noted == [{"what": "limits", "verdict": "note", "detail": warning, "mend": fix}]
