"""`gateway spend`: what calls cost, from the store where no daemon runs."""

import pytest
from tests.cli.conftest import Workspace

from paceline.cli.wiring import open_home
from paceline.core.values.tokens import Tokens
from paceline.store import SpendRow

TOKENS = Tokens(input=12_400, output=812, cache_read=3_050_000)


def spend(*rows: SpendRow) -> None:
    with open_home() as home:
        home.store.add_spend(rows)


def row(key: str, model: str = "m", **sums: float) -> SpendRow:
    return SpendRow(day="2026-11-16", key=key, account="work", model=model, requests=2, tokens=TOKENS, **sums)  # type: ignore[arg-type]


def test_spend_is_printed_with_what_is_not_known(workspace: Workspace) -> None:
    spend(row("team", billed=1.5), row("team", "dear", unpriced=2), row("", estimated=1, imputed=0.25))

    printed = workspace.run("gateway", "spend", "--since", "2026-11-01").stdout

    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines == [
        "key calls input output cache read cache write cost",
        "team 4 24.8k 1.62k 6.10M 0 $1.50 billed or more",
        "- 2 12.4k 812 3.05M 0 $0.25 imputed",
        "total 6 37.2k 2.44k 9.15M 0 $1.50 billed + $0.25 imputed or more",
        "Since 2026-11-01 (UTC).",
        "Calls without a known cost: 2. Their model has no price ([prices] in paceline.toml), or their answers did not "
        "say their tokens.",
        "Calls with estimated tokens: 1. Their answers did not say all of them.",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--by", "team"), "spend cannot be shown by 'team': use day, key, account or model"),
        (("--since", "last week"), "'last week' is no day: write one as"),
    ],
)
def test_a_question_that_cannot_be_understood_is_refused(
    workspace: Workspace, arguments: tuple[str, str], says: str
) -> None:
    refused = workspace.run("gateway", "spend", *arguments, code=2)

    assert says in refused.stderr.replace("\n", " ")


def test_a_call_that_no_daemon_knows_is_no_unit_either(workspace: Workspace) -> None:
    assert "req-1-1" in workspace.run("why", "req-1-1", code=2).stderr
