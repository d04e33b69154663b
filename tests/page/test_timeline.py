"""The timeline: sessions as bars with marks, and the chart of slots in flight and limit."""

import re
import time

import pytest
from playwright.async_api import Page, expect
from tests.page.conftest import MakeDaemon
from tests.page.daemon import WAIT_FOR_FILE, finish_units, page_address

from paceline.core.signals import QuotaClosed, RateLimited, Unreachable
from paceline.events import Event

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = """
[limits]
"anthropic/max-1" = 2
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
"""
MINUTE = 60.0


async def test_sessions_are_bars_that_open_their_unit(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.add("docs", WAIT_FOR_FILE, "a", state="paused")
    ran_from, ran_to = time.time() - 50 * MINUTE, time.time() - 10 * MINUTE
    daemon.store.append_events(
        [
            Event(
                "unit.started", ran_from, "anthropic/max-1/sonnet-4-5", "docs/a", {"attempt": "x", "session_id": None}
            ),
            Event("unit.done", ran_to, None, "docs/a", {"reason": "done"}),
        ]
    )
    await page.goto(page_address(daemon))
    bars = page.locator("#timeline .session-bars canvas")
    await expect(bars).to_have_attribute("aria-label", re.compile("1 session in the last 5[23] min, 0 429s, 0 closed"))

    await _hover_first_bar(page)
    await expect(page.locator("#timeline .tip")).to_contain_text("docs/a: done after 40 min")
    await page.mouse.down()
    await page.mouse.up()

    await expect(page.get_by_role("dialog", name="docs/a")).to_be_visible()


async def _hover_first_bar(page: Page) -> None:
    """Move the pointer to the middle of the first row, below the name of its account."""
    box = await page.locator("#timeline .session-bars canvas").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 24)


async def test_refusals_and_spent_windows_are_marked(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.add("docs", WAIT_FOR_FILE, "a", accounts=("max-1",), model="sonnet-4-5")
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    daemon.engine.limiter.report("anthropic/max-1", RateLimited(retry_after=30.0))
    daemon.engine.limiter.report("anthropic/max-1", QuotaClosed(window="5h", resets_at=time.time() + 60 * MINUTE))

    await page.goto(page_address(daemon))

    bars = page.locator("#timeline .session-bars canvas")
    await expect(bars).to_have_attribute("aria-label", "1 session in the last 60 s, 1 429, 1 closed window")


async def test_a_provider_that_nobody_reached_is_not_drawn_as_a_refusal(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.engine.limiter.report("anthropic/max-1", Unreachable(detail="connection refused"))

    await page.goto(page_address(daemon))

    await expect(page.locator("#timeline .legend li")).to_have_text(["nobody answered"])
    bars = page.locator("#timeline .session-bars canvas")
    await expect(bars).to_have_attribute("aria-label", "0 sessions in the last 60 s, 0 429s, 0 closed windows")


async def test_the_chart_shows_the_chosen_scope_and_a_reload_keeps_it(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", "c", accounts=("max-1",), model="sonnet-4-5")
    await page.goto(page_address(daemon))
    chart = page.locator("#timeline .chart")
    await expect(chart).to_have_attribute("aria-label", "sessions: 2 in flight, limit 4")

    await page.get_by_label("Scope of the chart").select_option("anthropic/max-1")
    await expect(chart).to_have_attribute("aria-label", "anthropic/max-1: 2 in flight, limit 2")
    await page.get_by_text("24 h", exact=True).click()
    await page.reload()

    await expect(chart).to_have_attribute("aria-label", "anthropic/max-1: 2 in flight, limit 2")
    await expect(page.get_by_role("radio", name="24 h")).to_be_checked()
    finish_units(daemon, "a", "b", "c")
    await expect(chart).to_have_attribute("aria-label", "anthropic/max-1: 0 in flight, limit 2")
