"""Controls of the page: changes take effect in the engine, and destructive actions ask first."""

import pytest
from playwright.async_api import Page, expect
from tests.daemon import Daemon
from tests.page.conftest import MakeDaemon, PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, page_address, status_of

from paceline.core.signals import BillingStop, RateLimited
from paceline.engine.command_log import person

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = """
[pool]
sessions = 8
[limits]
"anthropic/max-1" = 8
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
"""


async def test_the_pool_is_changed_by_typing_a_number_and_enter(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon("[pool]\nsessions = 1\n")
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", "c", "d")
    await page.goto(page_address(daemon))
    pool = page.get_by_label("Pool: concurrent sessions", exact=True)
    await expect(pool).to_have_value("1")
    await expect(page.locator("[data-figure='running']").first).to_have_text("1")

    await pool.fill("3")
    await pool.press("Enter")

    await expect(page.locator("[data-figure='pool.use']")).to_have_text("3 of 3 running")
    await expect(pool).to_have_value("3")
    assert status_of(daemon, "sessions").limit == 3
    assert len(daemon.store.running_units()) == 3


async def test_the_pool_is_changed_with_its_buttons(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon("[pool]\nsessions = 2\n")
    await page.goto(page_address(daemon))
    await expect(page.get_by_label("Pool: concurrent sessions", exact=True)).to_have_value("2")

    await page.get_by_role("button", name="One more: Pool").click()
    await page.get_by_role("button", name="One more: Pool").click()
    await page.get_by_role("button", name="Apply: Pool").click()

    await daemon.until(lambda: status_of(daemon, "sessions").limit == 4)
    await expect(page.get_by_role("button", name="Apply: Pool")).to_be_hidden()


async def test_updates_do_not_overwrite_typed_input(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon("[pool]\nsessions = 2\n")
    await page.goto(page_address(daemon))
    pool = page.get_by_label("Pool: concurrent sessions", exact=True)
    await expect(pool).to_have_value("2")
    await pool.fill("17")

    daemon.add("docs", "true", "a", "b")
    await expect(page.locator("[data-figure='done']").first).to_have_text("2")

    await expect(pool).to_have_value("17")
    await expect(pool).to_be_focused()
    await pool.press("Escape")
    await expect(pool).to_have_value("2")


async def test_a_limit_that_was_reduced_after_a_429_is_restored(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.add("docs", WAIT_FOR_FILE, *"abcdefghi", accounts=("max-1",), model="sonnet-4-5")
    await page.goto(page_address(daemon))
    scope = page.locator("[data-scope='anthropic/max-1']")
    await expect(scope.locator("[data-figure='in_flight']")).to_have_text("8/8")
    daemon.engine.limiter.report("anthropic/max-1", RateLimited(retry_after=1, cause="concurrency"))
    await expect(scope.get_by_text("auto-reduced to 7 from 8 after a 429")).to_be_visible()
    await expect(scope.locator("[data-figure='in_flight']")).to_have_text("8/7")

    await scope.get_by_role("button", name="Restore anthropic/max-1").click()

    await expect(scope.get_by_text("auto-reduced")).to_be_hidden()
    await expect(scope.locator("[data-figure='in_flight']")).to_have_text("8/8")
    assert (status_of(daemon, "anthropic/max-1").limit, status_of(daemon, "anthropic/max-1").adaptive) == (8, None)


async def test_a_held_account_shows_the_reason_and_is_restored(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    daemon.engine.limiter.report("anthropic/max-1", BillingStop(detail="the login has expired"))
    scope = page.locator("[data-scope='anthropic/max-1']")
    await expect(scope.get_by_text("the login has expired")).to_be_visible()

    await scope.get_by_role("button", name="Restore anthropic/max-1").click()

    await expect(scope.get_by_text("the login has expired")).to_be_hidden()
    assert status_of(daemon, "anthropic/max-1").held is None


async def test_limits_and_cooldowns_are_edited_in_place(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    limit = page.get_by_label("Limit of anthropic/max-1", exact=True)
    cooldown = page.get_by_label("Cooldown of anthropic/max-1 in milliseconds", exact=True)
    await expect(limit).to_have_value("8")

    await limit.fill("5")
    await limit.press("Enter")
    await daemon.until(lambda: status_of(daemon, "anthropic/max-1").limit == 5)
    await cooldown.fill("750")
    await cooldown.press("Enter")
    await daemon.until(lambda: status_of(daemon, "anthropic/max-1").cooldown == 0.75)

    await limit.fill("0")
    await expect(limit).to_have_attribute("aria-invalid", "true")
    await limit.press("Enter")
    await limit.press("Escape")
    await expect(limit).to_have_value("5")
    assert status_of(daemon, "anthropic/max-1").limit == 5


async def test_a_limit_is_removed_only_after_a_question(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    limit = page.get_by_label("Limit of anthropic/max-1", exact=True)
    await expect(limit).to_have_value("8")

    await limit.fill("")
    await limit.press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    await expect(limit).to_have_value("8")
    assert status_of(daemon, "anthropic/max-1").limit == 8

    await limit.fill("")
    await limit.press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Remove the limit").click()
    await expect(limit).to_have_value("")
    await daemon.until(lambda: status_of(daemon, "anthropic/max-1").limit is None)


async def test_the_engine_is_paused_and_resumed(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", max_sessions=1)
    await page.goto(page_address(daemon))
    await expect(page.locator("#engine-state")).to_contain_text("running")

    await page.get_by_role("button", name="Pause engine").click()
    await expect(page.locator("#engine-state")).to_contain_text("paused")
    assert [campaign.state for campaign in daemon.store.campaigns()] == ["paused"]

    await page.get_by_role("button", name="Resume engine").click()
    await expect(page.locator("#engine-state")).to_contain_text("running")
    assert [campaign.state for campaign in daemon.store.campaigns()] == ["active"]


async def test_a_campaign_is_paused_resumed_and_its_failed_units_retried(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", "test -e repaired", "a", "b", max_attempts=1)
    daemon.add("other", WAIT_FOR_FILE, "z")
    await page.goto(page_address(daemon))
    card = page.locator("[data-campaign='docs']")
    await expect(card.locator("[data-figure='quarantined']")).to_have_text("2")
    (daemon.home.path.parent / "repaired").touch()

    await card.get_by_role("button", name="Retry 2 failed units of docs").click()

    await expect(card.locator("[data-figure='done']")).to_have_text("2")
    assert daemon.counts("docs").done == 2
    other = page.locator("[data-campaign='other']")
    await other.get_by_role("button", name="Pause other").click()
    await expect(other.get_by_text("paused")).to_be_visible()
    await other.get_by_role("button", name="Resume other").click()
    await expect(other.get_by_text("active", exact=True)).to_be_visible()


async def test_a_campaign_is_cancelled_only_after_a_question(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", max_sessions=1)
    await page.goto(page_address(daemon))
    cancel = page.get_by_role("button", name="Cancel docs")
    await cancel.click()
    dialog = page.get_by_role("dialog", name="Cancel docs?")
    await expect(dialog).to_contain_text("2 units that are not done will not run")
    await expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()

    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    assert [campaign.state for campaign in daemon.store.campaigns()] == ["active"]

    await cancel.click()
    await dialog.get_by_role("button", name="Cancel the campaign").click()
    await expect(page.locator("[data-campaign='docs']").get_by_text("cancelled", exact=True).first).to_be_visible()
    assert daemon.counts("docs").cancelled == 2
    await expect(page.locator("#engine-state")).to_contain_text("running")  # there is nothing to resume
    await expect(page.locator("#engine .tile.done .note")).to_have_text("of 0")
    await expect(page.locator("[data-campaign='docs'] [data-figure='eta']")).to_have_text("")


async def test_a_refused_action_shows_the_message_of_the_server(
    daemon: Daemon, page: Page, monitor: PageMonitor
) -> None:
    monitor.may_fail = "/pause"
    daemon.add("docs", WAIT_FOR_FILE, "a")
    await page.goto(page_address(daemon))
    pause = page.get_by_role("button", name="Pause docs")
    await expect(pause).to_be_visible()
    await page.route(
        "**/pause",
        lambda route: route.fulfill(
            status=409, json={"error": "conflict", "detail": "docs is cancelled and cannot be paused"}
        ),
    )

    await pause.click()

    await expect(page.get_by_role("alert").filter(has_text="docs is cancelled and cannot be paused")).to_be_visible()


async def test_a_tab_without_the_printed_address_reads_and_cannot_change(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon("[pool]\nsessions = 2\n")
    await page.goto(page_address(daemon))
    await expect(page.get_by_label("Pool: concurrent sessions", exact=True)).to_have_value("2")
    assert "csrf" not in page.url

    other = await page.context.new_page()
    await other.goto(daemon.url)
    pool = other.get_by_label("Pool: concurrent sessions", exact=True)
    await expect(pool).to_have_value("2")

    await expect(pool).to_be_disabled()
    await expect(other.get_by_text("read-only")).to_be_visible()


async def test_the_events_say_who_changed_what(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a")
    await page.goto(page_address(daemon))
    await expect(page.locator("#events .event").first).to_be_visible()

    await daemon.ask("POST", "/v1/campaigns/docs/pause")

    paused = page.locator("#events .event").filter(has_text="command pause")
    await expect(paused.locator(".subject")).to_have_text("docs")
    await expect(paused.locator(".detail")).to_have_text(f"by {person()} (token)")


async def test_a_pause_and_the_use_of_a_rate_are_shown_and_restore_ends_the_pause(
    make_daemon: MakeDaemon, page: Page
) -> None:
    daemon = await make_daemon(ACCOUNT + "rpm = 60\n")
    daemon.engine.limiter.report("anthropic/max-1", RateLimited(retry_after=500.0, cause="tokens"))
    await page.goto(page_address(daemon))
    row = page.locator("[data-scope='anthropic/max-1']")
    await expect(row.locator(".rates")).to_have_text("0 of 60 requests/min")
    await expect(row.locator(".paused")).to_contain_text("paused after a refusal (tokens)")

    await row.locator(".paused").get_by_role("button", name="Restore").click()

    await daemon.until(lambda: not status_of(daemon, "anthropic/max-1").paused)
    await expect(row.locator(".paused")).to_be_hidden()
