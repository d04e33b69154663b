"""`keys`: created once, listed without their text, revoked."""

import contextlib
import time

from tests.cli.conftest import Workspace

from paceline.store import SpendRow, SqliteStore

SETTINGS = """
[accounts.work]
provider = "openai"
kind = "metered"
key_env = "WORK_KEY"
"""


def test_a_key_is_printed_once_listed_without_its_text_and_revoked(workspace: Workspace) -> None:
    (workspace.folder / "paceline.toml").write_text(SETTINGS)

    text = workspace.run("keys", "create", "team", "--pool", "work", "--models", "gpt-5, opus-*").stdout.strip()
    other = workspace.run_json("keys", "create", "b", "--parallel", "2", "--rpm", "60", "--budget", "$5/day")
    listed = workspace.run("keys", "list").stdout
    entries = workspace.run_json("keys", "list")["keys"]
    revoked = workspace.run("keys", "revoke", "team").stdout

    assert text.startswith("pk-paceline-")
    assert other["key"].startswith("pk-paceline-")
    assert not any(secret in listed for secret in (text, other["key"]))
    assert [(each["name"], each["pool"], each["models"]) for each in entries] == [
        ("team", "work", ["gpt-5", "opus-*"]),
        ("b", None, []),
    ]
    assert {name: other[name] for name in ("name", "parallel", "rpm", "weight", "budget")} == {
        "name": "b",
        "parallel": 2,
        "rpm": 60,
        "weight": 1.0,
        "budget": "$5/day",
    }
    assert revoked == "revoked team: gateways refuse it within a second; calls that run finish\n"
    assert [each["name"] for each in workspace.run_json("keys", "list")["keys"]] == ["b"]
    assert text not in (workspace.home / "paceline.db").read_bytes().decode("latin-1")


def test_the_limit_of_a_key_is_seen_in_limits_without_a_daemon(workspace: Workspace) -> None:
    workspace.run("keys", "create", "team", "--parallel", "3")

    assert "key:team" in workspace.run("limits").stdout


def test_wrong_use_names_the_value_and_the_fix(workspace: Workspace) -> None:
    (workspace.folder / "paceline.toml").write_text(SETTINGS)
    workspace.run("keys", "create", "team")

    assert "there is a key 'team' already" in workspace.run("keys", "create", "team", code=2).stderr
    assert "It has: work" in workspace.run("keys", "create", "b", "--pool", "wrok", code=2).stderr
    assert "there is no key 'taem'" in workspace.run("keys", "revoke", "taem", code=2).stderr
    assert [each["name"] for each in workspace.run_json("keys", "list")["keys"]] == ["team"]


def test_keys_and_status_show_what_is_spent_of_a_budget_and_that_it_is_reached(workspace: Workspace) -> None:
    workspace.run("keys", "create", "team", "--budget", "$5/day")
    workspace.run("keys", "create", "rich", "--budget", "$500")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    with contextlib.closing(SqliteStore(workspace.home / "paceline.db")) as store:
        for key in (each.key for each in store.client_keys()):
            row = SpendRow(day=today, key=key.name, key_created_at=key.created_at, account="w", model="m", billed=5.25)
            store.add_spend([row])

    listed = " ".join(workspace.run("keys", "list").stdout.split())
    entries = {each["name"]: each for each in workspace.run_json("keys", "list")["keys"]}
    status = workspace.run("status").stdout

    assert "$5.25 of $500" in listed
    assert [(entries[name]["spent"], entries[name]["is_reached"]) for name in ("team", "rich")] == [
        (5.25, True),
        (5.25, False),
    ]
    (line,) = [each for each in status.splitlines() if each.startswith("key:")]
    assert line.startswith("key:team       its budget: $5.25 of $5/day, reached; continues ")
