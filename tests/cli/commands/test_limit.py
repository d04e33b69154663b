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


ACCOUNT = '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\n'


def test_a_scope_that_is_spelled_almost_like_a_known_one_is_set_with_a_warning(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNT)

    misspelt = workspace.run_json("limit", "anthropic/max1", 2)
    known = workspace.run_json("limit", "anthropic/max-1/opus-4-6", 2)
    other = workspace.run_json("limit", "umans", 2)
    model = workspace.run_json("limit", "anthropic/max1/opus-4-6", 2)
    shown = workspace.run("cooldown", "anthropic/max1", "1s").stdout

    warning = 'nothing that is configured uses anthropic/max1; did you mean "anthropic/max-1"?'
    assert misspelt == {"ok": True, "scope": "anthropic/max1", "limit": 2, "warning": warning, "engine": "stopped"}
    assert "warning" not in known
    assert "warning" not in other
    assert model["warning"].endswith('did you mean "anthropic/max-1"?')
    assert f"Warning: {warning}" in shown


def test_a_limit_of_an_account_that_is_not_configured_is_set_with_a_warning(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNT)

    unknown = workspace.run_json("limit", "anthropic/elsewhere-9/opus-4-6", 3)
    fine = [workspace.run_json("limit", scope, 3) for scope in ("openai/default", "anthropic/*/opus-*", "anthropic")]

    assert unknown["warning"] == (
        "no configured account is anthropic/elsewhere-9: only programs that name this scope themselves use it"
    )
    assert ["warning" in each for each in fine] == [False, False, False]


def test_a_default_login_that_is_configured_has_one_limit_whatever_it_is_called(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNT)

    limit = workspace.run_json("limit", "anthropic/default", 2)
    model = workspace.run_json("limit", "anthropic/default/opus-4-6", 1)
    cooldown = workspace.run_json("cooldown", "anthropic/default", "2s")
    restored = workspace.run_json("restore", "anthropic/default")
    rows = {row["scope"]: row["effective"] for row in workspace.run_json("limits")["limits"]}
    reset = workspace.run_json("limit", "anthropic/default", "default")

    assert [each["scope"] for each in (limit, model, cooldown, restored, reset)] == [
        "anthropic/max-1",
        "anthropic/max-1/opus-4-6",
        "anthropic/max-1",
        "anthropic/max-1",
        "anthropic/max-1",
    ]
    assert rows["anthropic/max-1"] == 2
    assert "anthropic/default" not in rows
