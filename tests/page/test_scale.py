"""The page stays live and readable with many tabs, many models and many sessions."""

import re
import time

import pytest
from playwright.async_api import BrowserContext, Page, Request, expect
from tests.page.conftest import PATIENCE_MILLISECONDS, MakeDaemon, PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, page_address, status_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABS = 9
"""More than the six connections that a browser opens to one server."""
GATEWAY = """
[accounts.work-key]
provider = "openai"
kind = "metered"
base_url = "http://127.0.0.1:9"
"""


async def test_nine_tabs_stay_live(make_daemon: MakeDaemon, context: BrowserContext, monitor: PageMonitor) -> None:
    daemon = await make_daemon("[pool]\nsessions = 3\n")
    tabs = [await context.new_page() for _ in range(TABS)]
    for tab in tabs:
        monitor.follow(tab)
        await tab.goto(page_address(daemon))
    for tab in tabs:
        await expect(tab.locator("#connection")).to_have_text("live")

    pool = tabs[0].get_by_label("Pool: concurrent sessions", exact=True)
    await pool.fill("7")
    await pool.press("Enter")

    for tab in tabs:
        await expect(tab.locator("[data-figure='pool.use']")).to_have_text("0 of 7 running")
    for tab in tabs:
        await tab.close()
    assert monitor.complaints == []


async def test_a_tab_that_joins_later_gets_the_events_before_it(
    make_daemon: MakeDaemon, context: BrowserContext, page: Page
) -> None:
    daemon = await make_daemon()
    await page.goto(page_address(daemon))
    await expect(page.locator("#connection")).to_have_text("live")
    daemon.add("docs", "true", "a")
    done = page.locator("#events .event").filter(has_text="done")
    await expect(done.first).to_contain_text("docs/a")

    late = await context.new_page()
    await late.goto(page_address(daemon))

    await expect(late.locator("#events .event").filter(has_text="done").first).to_contain_text("docs/a")
    await late.close()


async def test_a_server_that_does_not_answer_is_not_called_live(
    make_daemon: MakeDaemon, page: Page, monitor: PageMonitor
) -> None:
    daemon = await make_daemon()
    await page.goto(page_address(daemon))
    await expect(page.locator("#connection")).to_have_text("live")
    monitor.may_fail = "/v1/overview"

    held: list[object] = []
    await page.route("**/v1/overview", lambda route: held.append(route))  # it never answers

    await expect(page.locator("#connection")).to_have_text("reconnecting")
    await page.unroute("**/v1/overview")
    await expect(page.locator("#connection")).to_have_text("live")


async def test_the_first_load_fetches_every_part_once(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon()
    daemon.add("docs", "true", *"abcdef")
    await daemon.until(lambda: daemon.counts("docs").done == 6)
    paths: list[str] = []

    def note(request: Request) -> None:
        paths.append(request.url.removeprefix(daemon.url).partition("?")[0])

    page.on("request", note)
    await page.goto(page_address(daemon))
    await expect(page.locator("#connection")).to_have_text("live")
    await expect(page.locator("#events .event").filter(has_text="done")).to_have_count(6)
    async with page.expect_request("**/v1/overview"):
        pass  # the regular one, seconds later: a second fetch after the events would have come before it

    fetched = [path for path in paths if path in ("/v1/overview", "/v1/units", "/v1/timeline")]
    assert sorted(fetched) == ["/v1/overview", "/v1/overview", "/v1/timeline", "/v1/units"]


async def test_idle_models_fold_into_one_row(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(GATEWAY)
    for number in range(300):
        async with daemon.engine.limiter.slot(f"openai/work-key/model-{number}"):
            pass
    await page.goto(page_address(daemon))

    fold = page.get_by_role("button", name="Show 300 idle models of openai/work-key")
    await expect(fold).to_be_visible()
    models = page.locator("[data-scope^='openai/work-key/']")
    await expect(models).to_have_count(0)

    await fold.click()
    await expect(models).to_have_count(300)
    await page.get_by_role("button", name="Hide 300 idle models of openai/work-key").click()
    await expect(models).to_have_count(0)

    async with daemon.engine.limiter.slot("openai/work-key/model-7"):
        await expect(page.locator("[data-scope='openai/work-key/model-7']")).to_be_visible()
        await expect(page.get_by_role("button", name="Show 299 idle models of openai/work-key")).to_be_visible()


async def test_many_sessions_of_an_account_are_drawn_as_their_number(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon("[pool]\nsessions = 20\n")
    daemon.add("docs", WAIT_FOR_FILE, *(f"u{number}" for number in range(20)))
    await daemon.until(lambda: daemon.counts("docs").running == 20)
    await page.goto(page_address(daemon))
    canvas = page.locator("#timeline .session-bars canvas")
    await expect(canvas).to_have_attribute("aria-label", re.compile("^20 sessions"))

    box = await canvas.bounding_box()

    assert box is not None
    assert box["height"] < 150  # 20 rows would take 240 pixels
    await page.locator(".session-bars").hover(position={"x": box["width"] - 30, "y": 60})
    await expect(page.locator(".session-bars .tip")).to_contain_text("sessions at once from")


async def test_a_number_too_large_is_refused_with_a_reason(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon('[limits]\n"openai/work-key" = 4\n' + GATEWAY)
    await page.goto(page_address(daemon))
    limit = page.get_by_label("Limit of openai/work-key", exact=True)
    await expect(limit).to_have_value("4")

    await limit.fill("99999999999")
    await limit.press("Enter")

    await expect(page.get_by_text("a whole number from 1 to 1,000,000, or nothing")).to_be_visible()
    await limit.press("Escape")
    await expect(limit).to_have_value("4")
    assert status_of(daemon, "openai/work-key").limit == 4


async def test_a_limit_far_above_all_use_does_not_flatten_the_chart(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon()
    daemon.add("docs", "sleep 60", "a", "b")
    await daemon.until(lambda: daemon.counts("docs").running == 2)
    for size in (500_000, 6):
        await daemon.ask("PUT", "/v1/pool", {"sessions": size})
    await page.goto(page_address(daemon))
    chart = page.locator("#timeline .chart")

    await expect(chart).to_have_attribute("aria-label", "sessions: 2 in flight, limit 6")
    await expect(chart).to_have_attribute("data-top", "7")
    await daemon.ask("PUT", "/v1/pool", {"sessions": 500_000})
    await expect(chart).to_have_attribute("aria-label", "sessions: 2 in flight, limit 500000")
    await expect(chart).to_have_attribute("data-top", "10")


async def go_back(page: Page) -> None:
    """Press the back button, later than the browser has taken note of a step that the page itself made.

    The page knows of such a step some milliseconds before the part of the browser that has the button. A person is
    slower than that.
    """
    browser = await page.context.new_cdp_session(page)
    give_up_at = time.monotonic() + PATIENCE_MILLISECONDS / 1000
    while True:
        steps = await browser.send("Page.getNavigationHistory")
        if steps["entries"][steps["currentIndex"]]["url"] == await page.evaluate("location.href"):
            break
        assert time.monotonic() < give_up_at, steps
    await browser.detach()
    await page.go_back()


async def choose_state(page: Page, name: str) -> None:
    """Choose with the keyboard: the back button passes over a step that no person made."""
    choice = page.get_by_label("State")
    await choice.focus()
    await page.keyboard.type(name)
    await expect(choice).to_have_value(name)


async def test_the_back_button_closes_the_unit_and_then_undoes_the_filter(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon()
    daemon.add("docs", "true", "a", "b")
    await daemon.until(lambda: daemon.counts("docs").done == 2)
    await page.goto(page_address(daemon))
    await choose_state(page, "done")
    await page.get_by_role("table", name="Units").get_by_role("button").first.click()
    await expect(page.locator("#unit")).to_be_visible()

    await go_back(page)
    await expect(page.locator("#unit")).to_be_hidden()
    await expect(page.get_by_label("State")).to_have_value("done")
    await go_back(page)
    await expect(page.get_by_label("State")).to_have_value("")
    await expect(page.locator("#units [data-unit]")).to_have_count(2)


async def test_a_closed_unit_does_not_come_back_with_the_back_button(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon()
    daemon.add("docs", "true", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 1)
    await page.goto(page_address(daemon))
    await choose_state(page, "done")
    await page.get_by_role("table", name="Units").get_by_role("button").first.click()

    await page.locator("#unit").get_by_role("button", name="Close").click()
    await expect(page.locator("#unit")).to_be_hidden()
    await expect(page).to_have_url(re.compile("#state=done$"))  # the address follows a moment later
    await go_back(page)

    await expect(page.get_by_label("State")).to_have_value("")
    await expect(page.locator("#unit")).to_be_hidden()
