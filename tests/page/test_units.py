"""The table of units, which needs few elements however long it is, and the panel of one unit."""

import re
import time

import msgspec
import pytest
from playwright.async_api import Page, expect
from tests.daemon import Daemon
from tests.page.conftest import MakeDaemon, PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, finish_units, page_address

from paceline.store import Campaign, CheckRound, Cost, Tokens, UnitResult, UnitSpec
from paceline.testing.store_steps import claim, ended, record

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANY = 100_000
MOST_ROWS = 60


async def test_a_hundred_thousand_units_scroll_with_few_elements(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon("")
    paused = Campaign(name="many", command=("true",), state="paused")
    specs = [UnitSpec(id=f"u{number:06d}") for number in range(MANY)]
    daemon.store.add_campaign(paused, specs, update=False, now=time.time())
    await page.goto(page_address(daemon))
    await expect(page.locator(".unit-foot")).to_have_text(re.compile(r"1–\d+ of 100,000 units"))
    before = await page.evaluate("document.querySelectorAll('*').length")

    for number in (99, 450, 1_250, 2_990):
        await _scroll_to(page, number)
        row = page.locator(".unit-row").filter(has_text=f"many/u{number:06d}")
        await expect(row).to_be_visible()
        assert await page.locator(".unit-row").count() <= MOST_ROWS
    await _scroll_to(page, 0)
    await expect(page.locator(".unit-row").filter(has_text="many/u000000")).to_be_visible()

    assert await page.evaluate("document.querySelectorAll('*').length") - before < 200


async def _scroll_to(page: Page, number: int) -> None:
    """Scroll as a user does: to the end of the known rows, again and again, until the row is there."""
    while True:
        reached = await page.evaluate(
            """number => {
                const view = document.querySelector(".unit-view"), rows = document.querySelector(".unit-rows");
                const height = document.querySelector(".unit-row").offsetHeight;
                view.scrollTop = Math.min(number * height, rows.offsetHeight);
                return rows.offsetHeight >= (number + 1) * height;
            }""",
            number,
        )
        if reached:
            return
        await page.evaluate("new Promise(requestAnimationFrame)")


async def test_a_waiting_unit_says_why_it_waits(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", max_sessions=1)
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    await page.goto(page_address(daemon))
    why = page.locator("[data-unit='docs/b'] .why")
    await expect(why).to_have_text("campaign:docs at its limit (1/1)")

    await page.get_by_role("button", name="Pause docs").click()

    await expect(why).to_have_text("the campaign docs is paused")


async def test_the_name_of_a_unit_is_whole_on_a_small_screen(daemon: Daemon, page: Page) -> None:
    name = "src/payments/reconcile.py"
    daemon.add("typing", WAIT_FOR_FILE, name)

    await page.goto(page_address(daemon))

    link = page.locator(f"[data-unit='typing/{name}'] .link")
    await expect(link).to_have_text(f"typing/{name}")
    assert page.viewport_size == {"width": 1280, "height": 900}
    widths = "[...node.children].filter((part) => part.scrollWidth > part.clientWidth).length"
    assert await link.evaluate(f"node => {widths}") == 0


async def test_units_are_filtered_by_campaign_and_state_and_a_reload_keeps_it(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", max_sessions=1)
    daemon.add("other", "true", "x", "y")
    await daemon.until(lambda: daemon.counts("other").done == 2)  # those that run come first
    await page.goto(page_address(daemon))
    rows = page.locator("#units .unit-row:not(.blank) .link")
    await expect(rows).to_have_text(["docs/a", "docs/b", "other/x", "other/y"])

    await page.get_by_label("Campaign", exact=True).select_option("docs")
    await expect(rows).to_have_text(["docs/a", "docs/b"])
    assert await page.locator("#units .unit-foot").text_content() == "1–2 of 2 units"
    await page.get_by_label("State", exact=True).select_option("waiting")
    await expect(rows).to_have_text(["docs/b"])
    await page.reload()
    await expect(rows).to_have_text(["docs/b"])

    finish_units(daemon, "a")
    await expect(page.locator("#units")).to_contain_text("No unit matches")
    await page.get_by_label("State", exact=True).select_option("running")
    await expect(rows).to_have_text(["docs/b"])


async def test_a_unit_opens_with_reason_output_and_prompt_and_a_reload_keeps_it_open(
    daemon: Daemon, page: Page
) -> None:
    daemon.add("docs", f"echo out-of-{{id}}; echo err-of-{{id}} >&2; {WAIT_FOR_FILE}", "a", "b", max_sessions=1)
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    await page.goto(page_address(daemon))

    await page.get_by_role("button", name="docs/a").first.click()
    panel = page.get_by_role("dialog", name="docs/a")
    await expect(panel).to_contain_text("its session runs")
    await expect(panel.get_by_role("tabpanel")).to_contain_text("out-of-a")
    await panel.get_by_role("tab", name="Errors").click()
    await expect(panel.get_by_role("tabpanel")).to_contain_text("err-of-a")
    await panel.get_by_role("tab", name="Prompt").click()
    await expect(panel.locator(".text")).to_have_text("do a")
    await expect(panel.locator("[data-fact='Attempts'] dd")).to_have_text("1")

    await page.reload()
    await expect(panel).to_be_visible()
    finish_units(daemon, "a")
    await expect(panel.locator(".badge")).to_have_text("done")
    await expect(panel.locator("[data-fact='Exit code'] dd")).to_have_text("0")
    await page.keyboard.press("Escape")
    await expect(panel).to_be_hidden()
    await expect(page).not_to_have_url(re.compile("unit="))  # the address follows a moment later


async def test_a_unit_shows_its_answer_its_checks_and_its_cost_also_without_its_output(
    daemon: Daemon, page: Page, monitor: PageMonitor
) -> None:
    monitor.may_fail = "/log"
    daemon.add("docs", "true", "a", "b", state="paused")
    first, second = claim(daemon.store, 2, campaign="docs", account="")
    known = UnitResult(
        agent="claude",
        model="claude-opus-4-6",
        turns=3,
        tokens=Tokens(input=1200, output=30, cache_read=4),
        cost=Cost(imputed=1.5),
        answer="<b>All done.</b>",
        files_changed=2,
        lines_added=10,
        lines_removed=3,
        checks=(CheckRound(exit_code=2, seconds=4.0, tail="<i>1 failed</i>"),),
    )
    unknown = UnitResult(agent="codex", tokens=Tokens(input=5))
    unverified = msgspec.structs.replace(ended(first, "unverified"), result=known)
    record(daemon.store, [unverified, msgspec.structs.replace(ended(second, "succeeded"), result=unknown)])
    await page.goto(page_address(daemon))

    await page.get_by_role("button", name="docs/a").first.click()
    panel = page.get_by_role("dialog", name="docs/a")
    await expect(panel.locator("[data-fact='Cost'] dd")).to_have_text("$1.50 imputed")
    await expect(panel.locator("[data-fact='Tokens'] dd")).to_contain_text("30 output, 4 cache read")
    await expect(panel.locator("[data-fact='Change'] dd")).to_have_text("2 files, +10 −3 lines")
    await panel.get_by_role("tab", name="Answer").click()
    await expect(panel.get_by_role("tabpanel").get_by_text("<b>All done.</b>")).to_be_visible()
    await panel.get_by_role("tab", name="Checks").click()
    await expect(panel.get_by_role("tabpanel")).to_contain_text("Check 1: failed (exit code 2)")
    await expect(panel.get_by_role("tabpanel")).to_contain_text("<i>1 failed</i>")
    await page.keyboard.press("Escape")

    await page.get_by_role("button", name="docs/b").first.click()
    panel = page.get_by_role("dialog", name="docs/b")
    await expect(panel.locator("[data-fact='Cost'] dd")).to_have_text("unknown")
    await panel.get_by_role("tab", name="Checks").click()
    await expect(panel.get_by_role("tabpanel").get_by_text("No check has run.")).to_be_visible()


async def test_a_waiting_unit_shows_why_it_waits(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", max_sessions=1)
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    await page.goto(f"{page_address(daemon)}")
    await page.get_by_role("button", name="docs/b").first.click()

    await expect(page.get_by_role("dialog", name="docs/b")).to_contain_text("campaign:docs at its limit (1/1)")


async def test_an_unknown_unit_shows_an_error(daemon: Daemon, page: Page, monitor: PageMonitor) -> None:
    monitor.may_fail = "/v1/units/"
    await page.goto(page_address(daemon))
    await page.goto(f"{daemon.url}/#unit=docs%2Fgone")

    await expect(page.get_by_role("dialog", name="docs/gone")).to_contain_text("there is no unit 'docs/gone'")
