"""API calls on the page: their figures, what each key costs, and a first start that helps."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from tests.page.conftest import MakeDaemon
from tests.page.daemon import page_address
from tests.page.gateway_home import gateway_home

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = """
[accounts.work-key]
provider = "anthropic"
kind = "metered"
base_url = "http://127.0.0.1:9"
"""


async def test_the_first_start_shows_a_plan_the_accounts_and_the_address_for_clients(
    make_daemon: MakeDaemon, page: Page
) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    first = page.locator("#first-start")

    await expect(first).to_contain_text("Nothing has run here yet")
    await expect(first).to_contain_text('name = "first"')
    await expect(first).to_contain_text("work-key anthropic, metered")
    await expect(first.get_by_role("button", name="Copy the plan").locator(".icon-copy")).to_be_visible()
    await expect(first).to_contain_text(f"export ANTHROPIC_BASE_URL={daemon.url}/gateway/work-key")

    daemon.add("docs", "true", "a")
    await expect(first).to_be_hidden()


async def test_loading_does_not_look_like_an_empty_system(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    held: list[object] = []
    await page.route("**/v1/overview", lambda route: held.append(route))
    await page.goto(page_address(daemon))

    await expect(page.locator("#connection")).to_have_text("connecting")
    for text in ("No campaigns yet", "Nothing has run here yet", "No capacity in use yet"):
        await expect(page.get_by_text(text)).to_be_hidden()
    await page.unroute("**/v1/overview")


async def test_a_user_of_the_gateway_alone_sees_calls_cost_and_keys(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        key = await home.make_key("team-a", rpm=120, parallel=2)
        assert [await home.call(key) for _ in range(3)] == [200, 200, 200]
        await page.goto(home.page)
        calls = page.locator("#calls")

        await expect(page.locator("#engine [data-figure='cost']")).to_have_text("$9.00")
        await expect(page.locator("#engine [data-figure='tokens']")).to_have_text("3M")
        for part in ("#engine .tile.running", "#first-start", "#campaigns", "#units"):
            await expect(page.locator(part)).to_be_hidden()
        assert await page.evaluate("document.querySelector('main .panel').id") == "calls"
        await expect(page.locator(".skip")).to_have_attribute("href", "#calls")
        row = calls.locator("[data-call='team-a']")
        await expect(row.locator("td")).to_have_text(["team-a", "3", "3M", "$9.00", "", "Revoke"], use_inner_text=True)
        await expect(calls.locator(".of-recent tbody tr")).to_have_count(3)
        limited = page.locator("[data-scope='key:team-a'] .rates")
        await expect(limited).to_have_text("3 of 120 requests/min")
        await expect(limited).not_to_have_class(re.compile("tight"))

        await row.get_by_role("button", name="Revoke team-a").click()
        await page.get_by_role("button", name="Revoke the key").click()

        await expect(row.locator("td").first).to_have_text("team-a revoked", use_inner_text=True)
        await expect(page.get_by_role("button", name=re.compile("^Revoke team-a"))).to_be_hidden()
        await expect(page.locator("[data-scope='key:team-a']")).to_have_count(0)
        await expect(calls).to_be_focused()
        assert await home.call(key) == 401
        await page.close()


async def test_the_cost_of_today_says_how_many_calls_it_lacks(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        key = await home.make_key("team-a")
        assert [await home.call(key), await home.call(key, model="nobody")] == [200, 200]
        await page.goto(home.page)

        await expect(page.locator("#engine [data-figure='cost']")).to_have_text("$3.00")
        await expect(page.locator("#engine")).to_contain_text("and 1 unpriced call")
        await page.close()


async def test_keys_that_nobody_has_used_yet_have_their_place(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        await home.make_key("team-a", budget="$5/day")
        await page.goto(home.page)

        await expect(page.locator("#calls [data-call='team-a']")).to_contain_text("$5/day")
        await expect(page.locator("#first-start")).to_be_hidden()
        await page.close()


async def test_a_budget_that_is_reached_is_said_with_the_time_at_which_it_continues(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        key = await home.make_key("team-a", budget="$2/month")
        assert [await home.call(key), await home.call(key)] == [200, 402]
        await page.goto(home.page)

        budget = page.locator("#calls [data-call='team-a'] .budget")
        await expect(budget).to_have_text(
            re.compile(r"^\$3\.00 of \$2/month reached until .*\d\d:\d\d$"), use_inner_text=True
        )
        await expect(page.locator("#events")).to_contain_text("$3.00 of $2/month, continues ")
        need = page.locator("[data-need='reached_budget']")
        await expect(need).to_contain_text("the budget of the key team-a is reached")
        await expect(need).to_contain_text(
            re.compile(r"spent \$3\.00 of \$2/month; its calls are refused until .*\d\d:\d\d")
        )
        await page.close()


async def test_on_a_phone_the_figures_are_whole_and_a_call_takes_two_lines(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        key = await home.make_key("a-team-with-a-rather-long-name", budget="$500/month")
        assert await home.call(key) == 200
        await home.send("PUT", "/concurrency/limits/anthropic%2Fwork-key", {"limit": 150})
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(home.page)
        await expect(page.locator("#calls .of-recent tbody tr")).to_have_count(1)

        assert await page.evaluate(CUT_FIGURES) == []
        tiles = await page.locator("#engine .of-calls").bounding_box()
        last = await page.locator("#engine .of-calls .tile").nth(2).bounding_box()
        assert tiles is not None
        assert last is not None
        assert tiles["width"] > 300
        assert last["x"] + last["width"] > tiles["x"] + tiles["width"] - 2
        assert await page.locator("#calls .of-recent tbody tr").evaluate(LINES) == 2
        flight = await page.locator("[data-scope='anthropic/work-key'] .flight b").bounding_box()
        assert flight is not None
        assert flight["x"] + flight["width"] <= 390 - 14 - 16  # the margins of the page and of the section
        await page.close()


CUT_FIGURES = """() => [...document.querySelectorAll("#engine .tile :is(h3, .value, .note)")]
    .filter((node) => node.getClientRects().length && node.scrollWidth > node.clientWidth)
    .map((node) => node.textContent)"""
LINES = """row => new Set([...row.cells].map((cell) => {
    const box = cell.getBoundingClientRect();
    return Math.round((box.top + box.height / 2) / 8);
})).size"""


async def test_a_refusal_of_a_call_is_on_the_timeline_whose_legend_has_nothing_else(page: Page, tmp_path: Path) -> None:
    async with gateway_home(tmp_path) as home:
        key = await home.make_key("team-a")
        home.refuse_next()
        assert await home.call(key) == 200
        await page.goto(home.page)

        await expect(page.locator("#engine [data-figure='calls-refused']")).to_have_text("1")
        await expect(page.locator("#timeline .session-bars canvas")).to_have_attribute(
            "aria-label", re.compile("0 sessions.*, 1 429,")
        )
        await expect(page.locator("#timeline .legend li")).to_have_text(["429 or overload"])
        await page.close()


POOLS = """
[accounts.dead]
provider = "anthropic"
kind = "metered"
base_url = "http://127.0.0.1:9"
[key_pools.team]
accounts = ["dead", "work-key"]
[key_pools.lonely]
accounts = ["dead"]
"""


async def test_an_account_of_a_pool_that_cannot_be_reached_is_shown_with_what_is_tried_next(
    page: Page, tmp_path: Path
) -> None:
    async with gateway_home(tmp_path, POOLS) as home:
        assert await home.call(await home.make_key("team-a"), address="team") == 200
        await page.goto(home.page)
        line = page.locator("#capacity [data-scope='anthropic/dead'] .banner.failing")
        need = page.locator("[data-need='idle_pool']")

        await expect(line).to_have_text(
            re.compile(
                r"^cannot be reached since \S+: no connection: .*, 1 call; (tried last in the pools |the next call)"
            )
        )
        await expect(page.locator("#capacity [data-scope='anthropic/work-key'] .banner.failing")).to_be_hidden()
        await expect(need).to_contain_text("no account of the pool lonely can serve dead: no connection: ")
        await expect(need).to_contain_text(re.compile(r"since \S+, tried (again at \S+|next)"))
        await page.close()
