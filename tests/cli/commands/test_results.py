"""`results`, `show` and `summary`: what units did and what it cost. Unknown is never shown as 0."""

import csv
import io
import json
import time
from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Workspace

from paceline.daemon.home import open_home
from paceline.store import CheckRound, Cost, Tokens, UnitResult
from paceline.testing.store_steps import ended

DONE = UnitResult(
    agent="claude",
    model="claude-opus-4-6",
    host="box",
    turns=3,
    tokens=Tokens(input=1000, output=200, cache_read=30, cache_write=4),
    cost=Cost(imputed=1.25),
    answer="All <b>done</b> | and \x1b[2Jtested.",
    branch="paceline/docs/a",
    files_changed=2,
    lines_added=10,
    lines_removed=3,
    checks=(CheckRound(exit_code=2, seconds=4.0, tail="1 failed"), CheckRound(exit_code=0, seconds=5.0, tail="ok")),
    waited_seconds=5.0,
    ran_seconds=65.0,
)


def finish(results: dict[str, tuple[str, UnitResult]]) -> None:
    """Let the units end in plan order, each with its ending and result."""
    now = time.time()
    with open_home() as home:
        units = home.store.claim_units(
            "docs", "max-1", len(results), attempt_ids=list(results), lease_until=now + 60, now=now
        )
        records = []
        for unit, (ending, result) in zip(units, results.values(), strict=True):
            how = ended(unit, ending)  # type: ignore[arg-type]
            records.append(msgspec.structs.replace(how, result=result))
        home.store.record_outcomes(records, now=now)


@pytest.fixture
def night(workspace: Workspace) -> Workspace:
    workspace.run("add", workspace.plan("true", "a", "b", "c"))
    unknown = UnitResult(agent="codex", tokens=Tokens(input=7), ran_seconds=3.0)
    finish({"a": ("succeeded", DONE), "b": ("unverified", unknown)})
    return workspace


def test_a_table_has_a_row_for_each_unit(night: Workspace) -> None:
    lines = night.run("results", "docs").stdout.splitlines()

    assert lines[0].split() == ["unit", "state", "model", "turns", "tokens", "cost", "files", "checks", "worked"]
    assert lines[1].split() == [
        *("docs/a", "done", "claude-opus-4-6", "3", "1,234", "$1.25", "imputed", "2", "passed", "(2)", "65", "s"),
    ]
    assert lines[2].split() == ["docs/b", "unverified", "–", "–", "7", "unknown", "–", "–", "3", "s"]
    assert lines[3].split() == ["docs/c", "todo", *("–" for _ in range(7))]


def test_csv_has_a_column_for_each_kind_of_token_and_leaves_the_unknown_empty(night: Workspace) -> None:
    rows = list(csv.DictReader(io.StringIO(night.run("results", "docs", "--csv").stdout)))

    assert [row["id"] for row in rows] == ["docs/a", "docs/b", "docs/c"]
    first = {name: rows[0][name] for name in ("tokens_input", "tokens_cache_write", "cost_imputed", "cost_billed")}
    assert first == {"tokens_input": "1000", "tokens_cache_write": "4", "cost_imputed": "1.25", "cost_billed": ""}
    assert (rows[1]["cost_billed"], rows[1]["cost_imputed"], rows[2]["tokens_input"]) == ("", "", "")


def test_no_text_becomes_a_formula_in_a_spreadsheet(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    finish({"a": ("succeeded", UnitResult(model="=HYPERLINK(0)"))})

    (row,) = csv.DictReader(io.StringIO(workspace.run("results", "docs", "--csv").stdout))

    assert row["model"] == "'=HYPERLINK(0)"


def test_json_lines_have_the_answer_and_json_is_one_document(night: Workspace) -> None:
    lines = [json.loads(line) for line in night.run("results", "docs", "--jsonl").stdout.splitlines()]
    document = night.run_json("results", "docs")

    assert [line["answer"] for line in lines] == ["All <b>done</b> | and \ufffd[2Jtested.", None, None]
    assert lines[1]["cost"] == {"billed": None, "imputed": None}
    assert lines[2]["tokens"] is None
    assert document == {
        "campaign": "docs",
        "results": [{name: value for name, value in line.items() if name != "answer"} for line in lines],
    }
    assert "choose one of" in night.run("results", "docs", "--csv", "--jsonl", code=2).stderr


def test_a_campaign_without_units_has_no_results(workspace: Workspace) -> None:
    assert "there is no campaign" in workspace.run("results", "docs", code=2).stderr


def test_show_has_the_answer_the_checks_and_the_cost(night: Workspace) -> None:
    shown = night.run("show", "a").stdout

    for text in (
        "docs/a is done",
        "claude claude-opus-4-6",
        "1,234 (1,000 input, 200 output, 30 cache read, 4 cache write)",
        "$1.25 imputed",
        "worked 65 s, waited 5 s",
        "2 files, +10 −3 lines",
        "Check 1: failed (exit code 2) after 4 s",
        "1 failed",
        "Check 2: passed after 5 s",
        "All <b>done</b>",
    ):
        assert text in shown
    assert "\x1b" not in shown
    assert "unknown" in night.run("show", "b").stdout


def test_show_as_json_is_the_unit(night: Workspace) -> None:
    unit = night.run_json("show", "docs/a")

    assert (unit["cost"], unit["turns"], unit["phase"]) == ({"billed": None, "imputed": 1.25}, 3, None)
    assert [check["tail"] for check in unit["checks"]] == ["1 failed", "ok"]
    assert unit["answer"].startswith("All <b>done</b>")


def test_the_summary_is_markdown_that_names_what_needs_you(night: Workspace) -> None:
    text = night.run("summary", "docs").stdout

    assert text.startswith("# docs: 1 of 3 done, 1 needs you, 1 waiting\n")
    assert "- **Cost**: $1.25 imputed, without 1 unit whose cost is unknown" in text
    assert (
        "## Needs you\n\n| unit | state | why |\n| --- | --- | --- |\n| docs/b | unverified | it unverified |" in text
    )
    assert "`paceline accept UNIT`" in text
    assert "## Most expensive units" in text
    assert night.run_json("summary", "docs")["totals"]["cost"] == {"billed": None, "imputed": 1.25}


def test_the_summary_page_needs_nothing_else_and_no_text_becomes_markup(workspace: Workspace, tmp_path: Path) -> None:
    workspace.run("add", workspace.plan("true", "<script>alert(1)<", "b"))
    finish({"a": ("unverified", DONE)})
    file = tmp_path / "night.html"

    workspace.run("summary", "docs", "--html", file)

    page = file.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "docs/&lt;script&gt;alert(1)&lt;" in page
    assert not {"<script", "http://", "https://", "src=", "@import", "url("} & {
        part for part in ("<script", "http://", "https://", "src=", "@import", "url(") if part in page
    }
    refused = workspace.run("summary", "docs", "--html", tmp_path / "none" / "night.html", code=2).stderr
    assert "cannot write" in refused
