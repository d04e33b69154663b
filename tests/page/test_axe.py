"""axe finds nothing that hinders people: in every state of the page, light and dark, on a phone and on a desk."""

import contextlib
import time
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect
from tests.page.conftest import MakeDaemon, PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, UpProcess, page_address
from tests.page.gateway_home import gateway_home

from paceline.core.signals import BillingStop, PlatformLimit, QuotaClosed

pytestmark = pytest.mark.asyncio(loop_scope="session")

COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules of axe that look at colours. All others find the same in light and in dark."""
SCHEMES: dict[Literal["light", "dark"], dict[str, object]] = {
    "light": {"resultTypes": ["violations"]},
    "dark": {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": COLOUR_RULES}},
}
WIDTHS = (390, 1280)
ACCOUNTS = """
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.work-key]
provider = "openai"
kind = "metered"
base_url = "http://127.0.0.1:9"
"""
FAILING_POOL = """
[accounts.dead]
provider = "anthropic"
kind = "metered"
base_url = "http://127.0.0.1:9"
expires = 2020-03-01
[accounts.spent]
provider = "anthropic"
kind = "metered"
base_url = "URL"
key_env = "WORK_KEY"
daily_budget = "$1"
[key_pools.team]
accounts = ["dead", "work-key"]
[key_pools.lonely]
accounts = ["dead"]
"""


async def violations(page: Page, part: str | None = None) -> str:
    """Return what axe reports at both widths, and of the colours also in dark; of a part of the page if it is named."""
    found: list[str] = []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        for scheme, options in SCHEMES.items():
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            results = await Axe().run(page, part, options)
            for each in results.response["violations"]:
                nodes = [f"{node['html'][:200]} {node['failureSummary']}" for node in each["nodes"]]
                found.append(f"{width} {scheme} {each['id']}: {each['help']}\n" + "\n".join(nodes))
    return "\n\n".join(found)


async def test_axe_finds_nothing_on_an_empty_page(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNTS)
    await page.goto(page_address(daemon))
    await expect(page.locator("#first-start")).to_contain_text("work-key")

    assert await violations(page) == ""


async def test_axe_finds_nothing_on_a_busy_page_and_on_its_dialogs(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNTS)
    daemon.add("docs", f"echo working; {WAIT_FOR_FILE}", *(f"u{number}" for number in range(40)), max_sessions=3)
    daemon.add("fails", "echo boom >&2; exit 3", "x", max_attempts=1)
    daemon.add("over", "true", "y")
    limiter = daemon.engine.limiter
    limiter.report("anthropic/max-1", BillingStop(detail="the login has expired"))
    limiter.report("anthropic/max-2", QuotaClosed(window="5h", resets_at=time.time() + 3600))
    limiter.report("openai/work-key", PlatformLimit(limit=3))
    await daemon.until(lambda: daemon.counts("fails").quarantined == 1 and daemon.counts("docs").running == 3)
    await page.goto(page_address(daemon))
    await expect(page.get_by_role("button", name="Retry 1 failed unit of fails")).to_be_visible()
    await expect(page.locator("#timeline .u-wrap")).to_be_visible()
    assert await violations(page) == ""

    await page.get_by_role("button", name="fails/x", exact=True).first.click()
    panel = page.get_by_role("dialog", name="fails/x")
    for tab in await panel.get_by_role("tab").all():
        await tab.click()
        assert await violations(page, "#unit") == ""
    await panel.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Cancel docs").click()
    await expect(page.get_by_role("button", name="Keep it")).to_be_visible()
    assert await violations(page) == ""
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert await violations(page) == ""


async def test_axe_finds_nothing_where_only_the_gateway_is_used(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        key = await home.make_key("team-a", budget="$100/month")
        assert await home.call(key) == 200
        await page.goto(home.page)
        await expect(page.locator("#calls [data-call='team-a']")).to_contain_text("$3.00")

        assert await violations(page) == ""
        await page.close()


async def test_axe_finds_nothing_where_accounts_of_a_pool_fail(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path, FAILING_POOL) as home:
        key = await home.make_key("team-a")
        assert [await home.call(key, address=address) for address in ("team", "spent")] == [200, 200]
        await page.goto(home.page)
        for kind in ("idle_pool", "reached_budget", "expiring_login"):
            await expect(page.locator(f"[data-need='{kind}']").first).to_be_visible()
        await expect(page.locator("#capacity [data-scope='anthropic/dead'] .banner.failing")).to_be_visible()

        assert await violations(page) == ""
        await page.close()


async def test_axe_finds_nothing_on_the_page_that_asks_for_a_token(
    make_daemon: MakeDaemon, page: Page, monitor: PageMonitor
) -> None:
    daemon = await make_daemon()
    monitor.may_fail = daemon.url
    await page.goto(daemon.url)
    assert await violations(page) == ""

    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await violations(page) == ""


async def test_axe_finds_nothing_while_the_server_does_not_answer(
    page: Page, monitor: PageMonitor, tmp_path: Path
) -> None:
    up = UpProcess(tmp_path)
    with contextlib.closing(up):
        up.start()
        await page.goto(up.page)
        await expect(page.locator("#connection")).to_have_text("live")
        monitor.may_fail = "/v1/"
        up.stop()
        await expect(page.locator("#stale")).to_be_visible()

        assert await violations(page) == ""
        await page.close()
