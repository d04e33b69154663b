"""The page says first what needs a person, with one button each, and offers no button that cannot work."""

import contextlib
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from tests.page.conftest import MakeDaemon, PageMonitor
from tests.page.daemon import UpProcess, page_address, status_of

from paceline.clock import SystemClock
from paceline.core.signals import BillingStop
from paceline.engine.store_outage import StoreOutage
from paceline.errors import StoreFull

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = """
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
"""


async def test_stopped_units_are_grouped_by_reason_and_tried_again_together(
    make_daemon: MakeDaemon, page: Page
) -> None:
    daemon = await make_daemon(ACCOUNT)
    (daemon.home.path.parent / "broken").touch()
    script = "if [ -e broken ]; then echo boom >&2; exit 3; fi"
    daemon.add("docs", script, "a", "b", max_attempts=1)
    await daemon.until(lambda: daemon.counts("docs").quarantined == 2)
    await page.goto(page_address(daemon))
    need = page.locator("[data-need='stopped_units']")

    await expect(need).to_have_count(1)
    await expect(need).to_contain_text("2 units of docs are quarantined")
    await expect(need).to_contain_text("boom")
    await expect(page).to_have_title(re.compile(r"^\(1\) "))
    await expect(page.locator("#engine [data-figure='failed']")).to_have_text("2")
    await expect(page.locator("link[rel='icon']")).to_have_attribute("href", re.compile("^data:image/png"))

    (daemon.home.path.parent / "broken").unlink()
    await need.get_by_role("button", name="Retry these").click()

    await daemon.until(lambda: daemon.counts("docs").done == 2)
    await expect(page.locator("#needs")).to_be_hidden()
    await expect(page).to_have_title(re.compile(r"^0 running"))


async def test_a_login_that_has_ended_is_named_with_what_to_do(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(f"{ACCOUNT}expires = 2020-03-01\n")
    await page.goto(page_address(daemon))

    await expect(page.locator("[data-need='expiring_login']")).to_have_text(
        re.compile(
            r"^the login of max-1 has expired get a new login, then change accounts.max-1.expires \(it ended .*\)$",
        )
    )


async def test_a_held_account_is_restored_where_it_is_reported(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    daemon.engine.limiter.report("anthropic/max-1", BillingStop(detail="the card was declined"))
    need = page.locator("[data-need='held_scope']")
    await expect(need).to_contain_text("anthropic/max-1 is held the card was declined")

    await need.get_by_role("button", name="Restore").click()

    await daemon.until(lambda: status_of(daemon, "anthropic/max-1").held is None)
    await expect(page.locator("#needs")).to_be_hidden()


async def test_a_full_disk_blocks_the_engine_in_sight(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon()
    await page.goto(page_address(daemon))
    await expect(page.locator("#engine-state")).to_contain_text("running")
    outage = StoreOutage(SystemClock())
    outage.note_in(daemon.home.path)

    outage.begin(StoreFull("no disk space left"))

    await expect(page.locator("#engine-state")).to_contain_text("blocked")
    await expect(page.locator("#engine .trouble")).to_have_text("nothing starts: no disk space left")
    await expect(page.locator("[data-need='store_outage']")).to_contain_text("no disk space left")
    outage.end()
    await expect(page.locator("#engine .trouble")).to_be_hidden()
    await expect(page.locator("#engine-state")).to_contain_text("running")


async def test_pausing_the_engine_does_not_pause_what_is_finished(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon()
    daemon.add("over", "true", "a")
    daemon.add("docs", "sleep 60", "b")
    await daemon.until(lambda: daemon.counts("over").done == 1 and daemon.counts("docs").running == 1)
    await page.goto(page_address(daemon))

    await page.get_by_role("button", name="Pause engine").click()

    await expect(page.locator("#engine-state")).to_contain_text("paused")
    await expect(page.locator("[data-campaign='docs'] .badge")).to_have_text("paused")
    await expect(page.locator("[data-campaign='over'] .badge")).to_have_text("finished")


async def test_a_tab_that_may_only_read_offers_no_changes(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.add("docs", "sleep 60", "a")
    await page.goto(f"{daemon.url}/?token={daemon.tokens.read_only}")

    await expect(page.get_by_text("read-only")).to_be_visible()
    await expect(page.get_by_role("button", name="Pause docs")).to_be_disabled()
    await expect(page.get_by_label("Pool: concurrent sessions", exact=True)).to_be_disabled()
    await expect(page.get_by_role("button", name="Pause engine")).to_be_disabled()


async def test_an_outage_leaves_the_figures_in_sight_and_switches_changes_off(
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
        await expect(page).to_have_title("not connected · Paceline")
        await expect(page.locator("#engine-state")).to_be_hidden()
        await expect(page.get_by_label("Pool: concurrent sessions", exact=True)).to_be_disabled()
        notice = await page.locator("#stale").bounding_box()
        strip = await page.locator("#engine").bounding_box()
        assert notice is not None
        assert strip is not None
        assert notice["y"] + notice["height"] <= strip["y"]
        await page.close()


async def test_a_browser_without_a_token_gets_a_field_for_it(
    make_daemon: MakeDaemon, page: Page, monitor: PageMonitor
) -> None:
    daemon = await make_daemon()
    monitor.may_fail = daemon.url
    await page.goto(daemon.url)
    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("That is not the token of this home.")

    await page.get_by_label("Token").fill(daemon.tokens.full)
    await page.get_by_role("button", name="Sign in").click()

    await expect(page.locator("#connection")).to_have_text("live")
    await expect(page.get_by_text("read-only")).to_be_hidden()
