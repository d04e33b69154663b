"""`why`: what holds a unit, and what to do about it."""

import time

import msgspec
import pytest
from tests.cli.conftest import Workspace, finish, park, read_until

from paceline.core import Deferred
from paceline.core.signals import BillingStop
from paceline.daemon.home import open_home
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.journal import WHY_STATE
from paceline.store import Campaign, SpendRow, UnitSpec

WAITING = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done"


def test_why_without_an_engine_says_so_and_what_to_do(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    why = workspace.run_json("why", "a")

    assert (why["state"], why["reason"], why["hint"]) == ("waiting", "no_engine", "paceline run PLAN")


def test_why_of_a_parked_unit_has_its_reason_and_time(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    park(until=time.time() + 600)

    why = workspace.run_json("why", "docs/a")

    assert (why["state"], why["reason"], why["detail"]) == ("parked", "parked", "the quota window is spent")
    assert why["until"] == pytest.approx(time.time() + 600, abs=60)
    assert "until" in workspace.run("why", "docs/a").stdout


def test_why_of_a_paused_campaign_names_the_command_that_goes_on(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("pause", "--all")

    assert workspace.run_json("why", "a")["hint"] == "paceline resume docs"


def test_why_of_a_quarantined_unit_has_its_last_words_and_retry_mends_it(workspace: Workspace) -> None:
    plan = workspace.plan("test -e mended || { echo broken; exit 2; }", "a", head="max_attempts = 1")
    workspace.run("run", plan, code=1)

    why = workspace.run_json("why", "a")
    (workspace.folder / "mended").touch()
    retried = workspace.run_json("retry", "docs")
    workspace.run("run", plan)

    assert why["detail"] == "failed once, the last time with: exit code 2: broken"
    assert "paceline retry docs" in why["hint"]
    assert retried["retried"] == 1


def test_why_of_a_waiting_unit_is_what_the_engine_last_said(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan(WAITING, "a", "b", head="max_sessions = 1"))
    read_until(engine, "waits docs")

    waiting, running = workspace.run_json("why", "b"), workspace.run_json("why", "a")
    (workspace.folder / "go").touch()
    finish(engine)

    assert (waiting["reason"], waiting["scope"]) == ("limit", "campaign:docs")
    assert waiting["detail"] == "campaign:docs at its limit (1/1)"
    assert (running["state"], running["detail"]) == ("running", "its session runs on this machine")


def test_why_of_a_unit_that_a_campaign_does_not_have_names_those_it_has(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))

    said = workspace.run("why", "docs/something-else", code=2).stderr

    assert "there is no unit, account, pool or key 'docs/something-else'; docs has docs/a, docs/b" in said


def test_why_of_a_unit_with_two_held_accounts_says_once_since_when_it_waits(workspace: Workspace) -> None:
    names = ("max-1", "max-2")
    details = [f"{name} is not paid" for name in names]
    with open_home() as home:
        campaign = Campaign(name="docs", command=("true",), accounts=names)
        home.store.add_campaign(campaign, [UnitSpec(id="a", prompt="Do it.")], update=False, now=1.0)
        governor = home.offline_state(0.0).governor
        waits = dict[str, Deferred]()
        for name, detail in zip(names, details, strict=True):
            governor.report(f"anthropic/{name}", BillingStop(detail=detail), now=0.0)
            waits[f"docs {name}"] = Deferred(name, "held", f"anthropic/{name}", detail)
        save_governor(home.store, governor)
        home.store.save_state(WHY_STATE, msgspec.json.encode(waits))

    said = workspace.run("why", "docs/a").stdout

    assert [detail in said for detail in details] == [True, True]
    assert [line.split()[0] for line in said.splitlines()].count("since") == 1


ACCOUNTS = """
[limits]
"anthropic/key-a" = 3
[accounts.key-a]
provider = "anthropic"
kind = "metered"
key_env = "KEY_A"
[accounts.key-b]
provider = "anthropic"
kind = "metered"
key_env = "KEY_B"
[key_pools.team]
accounts = ["key-a", "key-b"]
"""


def test_why_of_an_account_a_pool_or_a_key_says_what_holds_it(workspace: Workspace) -> None:
    (workspace.folder / "paceline.toml").write_text(ACCOUNTS)
    workspace.run("keys", "create", "docs", "--parallel", "2")
    workspace.run("limit", "anthropic/key-a", "--rpm", "60")

    by_name = workspace.run("why", "key-a").stdout
    pool = workspace.run("why", "team").stdout
    key = workspace.run("why", "docs").stdout

    assert by_name == "anthropic/key-a 0 of 60 requests/min\n  now    0 of 3 in flight, 0 waiting\n"
    assert by_name == workspace.run("why", "anthropic/key-a").stdout
    assert [line.split()[0] for line in pool.splitlines() if line.startswith("anthropic")] == [
        "anthropic/key-a",
        "anthropic/key-b",
    ]
    assert key == "key:docs open\n  now    0 of 2 in flight, 0 waiting\n"
    assert [row["scope"] for row in workspace.run_json("why", "key-a")["scopes"]] == ["anthropic/key-a"]
    assert workspace.run("why", "nobody", code=2).stderr == (
        "Error: there is no unit, account, pool or key 'nobody'. Accounts, pools and keys are: key-a, key-b, team, "
        "docs. `paceline units CAMPAIGN` lists units; the id of a call begins with req-\n"
    )
    assert "or key 'taem'; did you mean \"team\"?" in workspace.run("why", "taem", code=2).stderr


def test_why_of_a_key_says_that_its_budget_is_reached(workspace: Workspace) -> None:
    workspace.run("keys", "create", "docs", "--budget", "$1")
    with open_home() as home:
        (key,) = (each.key for each in home.store.client_keys())
        row = SpendRow(day="2026-01-01", key="docs", key_created_at=key.created_at, account="a", model="m", billed=2.0)
        home.store.add_spend([row])

    assert workspace.run("why", "docs").stdout.startswith("key:docs its budget: $2.00 of $1, reached\n")
    assert workspace.run_json("why", "docs")["budgets"]["key:docs"]["is_reached"]
