"""`units`: the fields of the contract, filters, and harmless text."""

import pytest
from tests.cli.conftest import Workspace, park

UNIT_FIELDS = {
    "id", "campaign", "state", "attempts", "tries", "parks", "resume_at", "reason", "account", "session_id",
    "started_at", "ended_at", "exit_code", "parked", "denials", "warnings",
    *("phase", "agent", "model", "host", "turns", "tokens", "cost", "answer", "workspace", "branch", "base", "commit"),
    *("files_changed", "lines_added", "lines_removed", "checks", "waited_seconds", "parked_seconds", "ran_seconds"),
    *("context_tokens", "lost_tokens", "lost_tokens_estimated"),
}  # fmt: skip


def test_a_unit_has_exactly_the_fields_of_the_contract(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("true", "a"))

    (unit,) = workspace.run_json("units", "docs")["units"]

    assert set(unit) == UNIT_FIELDS
    assert (unit["id"], unit["state"], unit["account"], unit["exit_code"]) == ("docs/a", "done", None, 0)


def test_units_are_chosen_by_state_and_number(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b", "c"))
    park()

    def ids(*options: str) -> list[str]:
        return [unit["id"] for unit in workspace.run_json("units", "docs", *options)["units"]]

    assert ids("--state", "parked") == ["docs/a"]
    assert ids("--state", "waiting") == ["docs/b", "docs/c"]
    assert ids("--state", "todo", "--limit", "2") == ["docs/a", "docs/b"]
    assert "2 of 3 units" in workspace.run("units", "docs", "--limit", 2).stdout


def test_hostile_text_in_a_reason_cannot_steer_the_terminal(workspace: Workspace) -> None:
    workspace.run(
        "run", workspace.plan(r"printf '\033]0;owned\007\033[2Jbad'; exit 1", "a", head="max_attempts = 1"), code=1
    )

    for command in (["units", "docs"], ["why", "a"], ["events"], ["list"]):
        shown = workspace.run(*command).stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown


@pytest.mark.parametrize(
    ("word", "hint"), [("failed", "; did you mean quarantined?"), ("runing", "; did you mean running?"), ("?", ".")]
)
def test_a_word_that_is_no_state_is_refused_with_the_one_that_was_meant(
    workspace: Workspace, word: str, hint: str
) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    refused = workspace.run("units", "docs", "--state", word, code=2)

    said = " ".join(refused.stderr.replace("│", "").split())
    states = "waiting, parked, todo, running, done, unverified, quarantined, held, cancelled"
    assert f"{word!r} is not a state of units{hint} The states are {states}." in said
