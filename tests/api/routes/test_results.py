"""`/v1/campaigns/{id}/results` and `/summary`: what units did and what it cost."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.daemon import Daemon

from paceline.store import CheckRound, Cost, Page, Tokens, UnitResult
from paceline.testing.store_steps import claim, ended, record
from paceline.views.campaign_report import PAGE_UNITS

RESULT = UnitResult(
    agent="claude",
    tokens=Tokens(input=3, output=2),
    cost=Cost(billed=0.5),
    answer="Done \x1b[2J.",
    checks=(CheckRound(exit_code=1, seconds=2.0, tail="no"),),
    ran_seconds=9.0,
)


def finish(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a", "b", "c", state="paused")
    (unit,) = claim(daemon.store, campaign="docs", account="")
    record(daemon.store, [msgspec.structs.replace(ended(unit, "unverified"), result=RESULT)])


async def test_results_come_page_by_page(daemon: Daemon) -> None:
    finish(daemon)

    first = await daemon.get("/v1/campaigns/docs/results?limit=2")
    second = await daemon.get(f"/v1/campaigns/docs/results?cursor={first['cursor']}")

    assert [row["id"] for row in first["results"] + second["results"]] == ["docs/a", "docs/b", "docs/c"]
    assert second["cursor"] is None
    row = first["results"][0]
    assert (row["cost"], row["tokens"]["input"]) == ({"billed": 0.5, "imputed": None}, 3)
    assert (row["checks"], row["check_exit_code"], "answer" in row) == (1, 1, False)
    assert first["results"][1]["tokens"] is None
    assert (await daemon.get("/v1/campaigns/none/results", code=404))["error"] == "not_found"
    assert "limit" in (await daemon.get("/v1/campaigns/docs/results?limit=0", code=400))["detail"]


async def test_the_summary_is_the_report_of_the_command_line(daemon: Daemon) -> None:
    finish(daemon)

    report = await daemon.get("/v1/campaigns/docs/summary")

    assert report["totals"]["cost"] == {"billed": 0.5, "imputed": None}
    assert [unit["id"] for unit in report["needs_you"]] == ["docs/a"]
    assert (await daemon.get("/v1/campaigns/none/summary", code=404))["error"] == "not_found"


async def test_the_loop_goes_on_between_the_pages_of_a_summary(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine and its gateway are on the loop: a report on 100,000 units at once held them up for a second."""
    daemon.add("docs", "true", *(f"u{number}" for number in range(5 * PAGE_UNITS)), state="paused")
    turns, limits, read = [0], list[int](), daemon.store.units

    def counted(**asked: Any) -> Page:
        turns.append(0)
        limits.append(asked["limit"])
        return read(**asked)

    async def count() -> None:
        while True:
            turns[-1] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(daemon.store, "units", counted)
    counting = asyncio.ensure_future(count())
    report = await daemon.get("/v1/campaigns/docs/summary")
    counting.cancel()

    assert (report["units"]["todo"], limits[:5]) == (5 * PAGE_UNITS, [PAGE_UNITS] * 5)
    assert (max(limits), 0 in turns[:5]) == (PAGE_UNITS, False)


async def test_a_unit_has_its_answer_and_the_output_of_its_checks_and_lists_do_not(daemon: Daemon) -> None:
    finish(daemon)

    unit = await daemon.get("/v1/units/docs/a")
    in_list = (await daemon.get("/v1/units?limit=1"))["units"][0]

    assert (unit["answer"], unit["checks"][0]["tail"]) == ("Done \ufffd[2J.", "no")
    assert (in_list["answer"], in_list["checks"][0]["tail"], in_list["cost"]["billed"]) == (None, None, 0.5)
