"""Wrong names and values of commands are refused with a suggestion."""

import pytest
from tests.cli.conftest import Workspace


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["why", "docs/aa"], 'did you mean "docs/a'),
        (["why", "nothing-like-it"], "paceline units CAMPAIGN"),
        (["units", "dcos"], 'did you mean "docs"?'),
        (["pause", "dosc"], 'did you mean "docs"?'),
        (["pause"], "--all"),
        (["resume", "docs", "--all"], "--all"),
        (["cancel", "zzz"], "there are: docs, more"),
        (["why", "same"], "docs/same, more/same"),
        (["pool", "0"], "0"),
        (["pool", "many"], "whole number"),
        (["limit", "anthropic", "1.5"], "1.5"),
        (["limit", "a//b", "1"], "a//b"),
        (["limit", "campaign:dosc", "1"], 'did you mean "docs"?'),
        (["cooldown", "anthropic", "soon"], "soon"),
        (["cooldown", "sessions", "1s"], "has no cooldown"),
        (["restore", "antropic"], "anthropic"),
        (["units", "docs", "--state", "sleeping"], "sleeping"),
    ],
)
def test_wrong_names_and_values_exit_with_2_and_a_suggestion(workspace: Workspace, wrong: list[str], said: str) -> None:
    workspace.run("add", workspace.plan("true", "a1", "same"))
    workspace.run("add", workspace.plan("true", "x", "same", name="more"))

    assert said in workspace.run(*wrong, code=2).stderr
