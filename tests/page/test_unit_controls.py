"""Units are found, read attempt by attempt, and controlled on the page, with the keyboard too."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect
from tests.daemon import Daemon
from tests.page.conftest import MakeDaemon, PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, finish_units, page_address

from paceline.testing.store_steps import claim, ended, record

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROWS = "#units .unit-row:not(.blank) .link"


async def test_a_missing_log_is_said_in_its_place_and_hides_nothing_else(
    daemon: Daemon, page: Page, monitor: PageMonitor
) -> None:
    monitor.may_fail = "/log"
    daemon.add("docs", "true", "a", state="paused")
    (unit,) = claim(daemon.store, campaign="docs", account="")
    record(daemon.store, [ended(unit, "unverified")])
    await page.goto(page_address(daemon))

    await page.get_by_role("button", name="docs/a", exact=True).first.click()
    panel = page.get_by_role("dialog", name="docs/a")

    await expect(panel.locator(".badge")).to_have_text("unverified")
    await expect(panel.locator("[data-fact='Attempts'] dd")).to_have_text("1")
    await expect(panel.get_by_role("tabpanel")).to_contain_text(
        "docs/a has no output: its session never began, or the output has been removed"
    )
    await expect(panel.locator(".banner")).to_be_hidden()
    await panel.get_by_role("tab", name="Prompt").click()
    await expect(panel.locator(".text")).to_have_text("do a")


async def test_units_are_searched_by_id_and_reason_and_ordered_and_a_reload_keeps_it(
    daemon: Daemon, page: Page
) -> None:
    daemon.add("docs", "echo boom >&2; exit 3", "bad", max_attempts=1)
    daemon.add("many", "true", "a1", "b1", "a2", state="paused")
    await daemon.until(lambda: daemon.counts("docs").quarantined == 1)
    await page.goto(page_address(daemon))
    rows, search = page.locator(ROWS), page.locator("#unit-search")
    await expect(rows).to_have_text(["docs/bad", "many/a1", "many/b1", "many/a2"])

    await search.fill("A")
    await expect(rows).to_have_text(["docs/bad", "many/a1", "many/b1", "many/a2"])
    await search.fill("ny/A")
    await expect(rows).to_have_text(["many/a1", "many/a2"])
    await expect(page.locator(".unit-foot")).to_have_text("2 units found")
    await page.reload()
    await expect(search).to_have_value("ny/A")
    await expect(rows).to_have_text(["many/a1", "many/a2"])
    await search.fill("boom")
    await expect(rows).to_have_text(["docs/bad"])
    await search.fill("nothing like it")
    await expect(page.locator("#units")).to_contain_text("No unit matches")
    await search.fill("")
    await expect(rows).to_have_count(4)


async def test_stopped_units_come_first_and_the_order_of_the_plans_can_be_chosen(daemon: Daemon, page: Page) -> None:
    daemon.add("first", "true", "a", "b")
    daemon.add("second", "exit 3", "c", max_attempts=1)
    await daemon.until(lambda: daemon.counts("second").quarantined == 1 and daemon.counts("first").done == 2)
    await page.goto(page_address(daemon))
    rows = page.locator(ROWS)
    await expect(rows).to_have_text(["second/c", "first/a", "first/b"])

    await page.get_by_label("Order", exact=True).select_option("plan")

    await expect(rows).to_have_text(["first/a", "first/b", "second/c"])
    await expect(page).to_have_url(re.compile("order=plan"))


async def test_a_unit_is_retried_stopped_and_cancelled_in_its_panel(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", max_sessions=1)
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    await page.goto(page_address(daemon))
    await page.get_by_role("button", name="docs/b", exact=True).first.click()
    panel = page.get_by_role("dialog", name="docs/b")
    actions = panel.locator(".unit-actions button:visible")
    await expect(actions).to_have_text(["Stop", "Cancel"])

    await panel.get_by_role("button", name="Stop").click()
    await daemon.until(lambda: daemon.unit("docs/b").state == "held")
    await expect(actions).to_have_text(["Retry", "Cancel"])
    await panel.get_by_role("button", name="Retry").click()
    await daemon.until(lambda: daemon.unit("docs/b").state == "todo")
    await expect(actions).to_have_text(["Stop", "Cancel"])
    await panel.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Keep it").click()
    assert daemon.unit("docs/b").state == "todo"
    await panel.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel the unit").click()
    await daemon.until(lambda: daemon.unit("docs/b").state == "cancelled")
    await expect(actions).to_have_text(["Retry"])
    await expect(panel).not_to_contain_text("paceline retry")


async def test_a_unit_of_a_paused_campaign_offers_to_resume_it(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", "true", "a", state="paused")
    await page.goto(page_address(daemon))
    await page.get_by_role("button", name="docs/a", exact=True).first.click()
    panel = page.get_by_role("dialog", name="docs/a")

    await panel.get_by_role("button", name="Resume docs").click()

    await daemon.until(lambda: daemon.counts("docs").done == 1)
    await expect(panel.locator(".badge")).to_have_text("done")


async def test_each_attempt_shows_its_own_output_which_can_be_saved(daemon: Daemon, page: Page) -> None:
    script = "echo x >> tries; echo this is $(wc -l < tries); [ $(wc -l < tries) -gt 1 ]"
    daemon.add("docs", script, "a", max_attempts=1)
    await daemon.until(lambda: daemon.counts("docs").quarantined == 1)
    await daemon.ask("POST", "/v1/units/docs/a/retry")
    await daemon.until(lambda: daemon.counts("docs").done == 1)
    await page.goto(page_address(daemon))
    await page.get_by_role("button", name="docs/a", exact=True).first.click()
    panel = page.get_by_role("dialog", name="docs/a")
    attempts = panel.locator(".attempts button")
    await expect(attempts).to_have_text([re.compile(r"^1: .*, quarantined after"), re.compile(r"^2: .*, done after")])
    await expect(panel.locator(".text")).to_have_text("this is 2")

    await attempts.first.click()
    await expect(panel.locator(".text")).to_have_text("this is 1")
    await panel.get_by_role("switch", name="Raw").check()
    await expect(panel.locator(".text")).to_have_text("this is 1")
    async with page.expect_download() as saved:
        await panel.get_by_role("button", name="Download").click()

    download = await saved.value
    assert download.suggested_filename == "docs-a.stdout.txt"
    assert _text_of(await download.path()) == "this is 1\n"


def _text_of(path: Path) -> str:
    return path.read_text()


async def test_what_follows_the_output_stops_when_the_reader_scrolls_up(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", f"seq 1 500; {WAIT_FOR_FILE}; echo the end", "a")
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    await page.goto(page_address(daemon))
    await page.get_by_role("button", name="docs/a", exact=True).first.click()
    panel = page.get_by_role("dialog", name="docs/a")
    await panel.get_by_role("switch", name="Raw").check()
    await expect(panel.locator(".text")).to_contain_text("500")
    follow = panel.get_by_label("Follow")
    await expect(follow).to_be_checked()

    await panel.locator(".text").evaluate("node => { node.scrollTop = 0; }")
    await expect(follow).not_to_be_checked()
    await follow.check()

    left = "node => node.scrollHeight - node.scrollTop - node.clientHeight"
    assert await panel.locator(".text").evaluate(left) < 24


SAYS = {"type": "assistant", "session_id": "s", "message": {"content": [{"type": "text", "text": "Hello."}]}}
USES = {
    "type": "assistant",
    "session_id": "s",
    "message": {"content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]},
}


async def test_a_transcript_is_readable_and_a_switch_shows_what_was_printed(
    make_daemon: MakeDaemon, page: Page
) -> None:
    printed = "".join(f"{json.dumps(event)}\n" for event in (SAYS, USES))
    script = f"cat <<'END'\n{printed}END\n{WAIT_FOR_FILE.format(id='a')}; echo '{json.dumps(SAYS)}'"
    start = json.dumps(["sh", "-c", script, "{prompt}"])
    daemon = await make_daemon(f'[agents.mine]\nprovider = "claude-code"\nstream = "json"\nstart = {start}\n')
    daemon.add("docs", "", "a", agent="mine", max_attempts=1)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(page_address(daemon))
    await page.get_by_role("button", name="docs/a", exact=True).first.click()
    panel = page.get_by_role("dialog", name="docs/a")
    text = panel.locator(".text")
    raw = panel.get_by_role("switch", name="Raw")

    await expect(text.locator("b")).to_have_text(["said", "tool"])
    transcript = "said    Hello.\ntool    Bash ls\n"
    assert await text.text_content() == transcript
    assert await _copied(panel) == transcript
    assert await _downloaded(page, panel) == ("docs-a.transcript.txt", transcript)

    await raw.check()
    await expect(text).to_contain_text('"type": "assistant"')
    assert await text.text_content() == printed
    assert await _copied(panel) == printed
    assert await _downloaded(page, panel) == ("docs-a.stdout.txt", printed)
    await expect(panel.get_by_label("Follow")).to_be_checked()
    finish_units(daemon, "a")
    await expect(text).to_have_text(f"{printed}{json.dumps(SAYS)}\n")

    await raw.uncheck()
    await expect(text.locator("b")).to_have_text(["said", "tool", "said"])


ENDS = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "duration_ms": 5, "num_turns": 1}


async def test_a_notice_of_a_transcript_is_a_word_in_its_line(make_daemon: MakeDaemon, page: Page) -> None:
    printed = "".join(f"{json.dumps(event)}\n" for event in (SAYS, ENDS))
    start = json.dumps(["sh", "-c", f"cat <<'END'\n{printed}END", "{prompt}"])
    daemon = await make_daemon(f'[agents.mine]\nprovider = "claude-code"\nstream = "json"\nstart = {start}\n')
    daemon.add("docs", "", "a", agent="mine", max_attempts=1)
    await page.goto(page_address(daemon))
    await page.get_by_role("button", name="docs/a", exact=True).first.click()
    labels = page.get_by_role("dialog", name="docs/a").locator(".text b")

    await expect(labels.nth(1)).to_have_text("notice")
    style = "node => [getComputedStyle(node).display, getComputedStyle(node).borderTopWidth]"
    assert await labels.nth(1).evaluate(style) == await labels.nth(0).evaluate(style)


async def _copied(panel: Locator) -> str:
    await panel.page.evaluate("navigator.clipboard.writeText('')")
    await panel.get_by_role("button", name="Copy").click()
    await panel.page.locator(".toast", has_text="Copied.").get_by_role("button", name="Dismiss").click()
    text: str = await panel.page.evaluate("navigator.clipboard.readText()")
    return text


async def _downloaded(page: Page, panel: Locator) -> tuple[str, str]:
    async with page.expect_download() as saved:
        await panel.get_by_role("button", name="Download").click()
    download = await saved.value
    return download.suggested_filename, _text_of(await download.path())


async def test_the_table_is_one_tab_stop_with_headers_and_whole_names(daemon: Daemon, page: Page) -> None:
    names = [f"a-long-name-of-a-unit-{number:03d}" for number in range(100)]
    daemon.add("docs", "true", *names, state="paused")
    await page.goto(page_address(daemon))
    table = page.get_by_role("table", name="Units")
    first = table.get_by_role("button", name=f"docs/{names[0]}", exact=True)
    await expect(first).to_be_visible()
    await expect(table.get_by_role("columnheader")).to_have_text(["Unit", "State", "When", "Why"])  # no account
    await expect(table.locator("[tabindex='0']")).to_have_count(1)

    await first.focus()
    for _ in range(40):
        await page.keyboard.press("ArrowDown")
    await expect(table.get_by_role("button", name=f"docs/{names[40]}", exact=True)).to_be_focused()
    await expect(table.locator("[tabindex='0']")).to_have_count(1)
    shown = await table.locator(".unit-row:not(.blank) .link").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert shown == sorted(shown)
    await page.keyboard.press("Tab")
    assert not await page.evaluate("document.querySelector('.unit-table').contains(document.activeElement)")
    await page.keyboard.press("Shift+Tab")
    await expect(table.get_by_role("button", name=f"docs/{names[40]}", exact=True)).to_be_focused()


async def test_keys_search_and_go_to_sections_but_not_while_typing(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", "true", "a", state="paused")
    await page.goto(page_address(daemon))
    await expect(page.locator(ROWS)).to_have_text(["docs/a"])

    await page.keyboard.press("/")
    await expect(page.locator("#unit-search")).to_be_focused()
    await page.keyboard.type("g?u/")
    await expect(page.locator("#unit-search")).to_have_value("g?u/")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    await page.locator("#unit-search").fill("")
    await expect(page.locator(ROWS)).to_have_text(["docs/a"])
    await page.locator("#unit-search").blur()
    await page.keyboard.press("g")
    await page.keyboard.press("u")
    await expect(page.get_by_role("button", name="docs/a", exact=True)).to_be_focused()
    await page.keyboard.press("g")
    await page.keyboard.press("c")
    await expect(page.locator("#campaigns")).to_be_focused()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("search the units")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


async def test_priority_and_sessions_of_a_campaign_are_changed_on_its_card(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", "true", "a", state="paused")
    await page.goto(page_address(daemon))
    priority = page.get_by_label("Priority of docs", exact=True)

    await page.get_by_role("button", name="Edit docs").click()
    await priority.fill("-2")
    await priority.press("Enter")
    await expect(page.locator("[data-campaign='docs'] [data-figure='priority']")).to_have_text("priority -2")
    sessions = page.get_by_label("Sessions of docs at once", exact=True)
    await sessions.fill("3")
    await sessions.press("Enter")
    await daemon.until(lambda: daemon.store.campaigns()[0].max_sessions == 3)
    await expect(sessions).to_have_value("3")
    await sessions.fill("0")
    await expect(page.locator("[data-campaign='docs'] .field-problem:visible")).to_contain_text("a whole number from 1")

    assert (daemon.store.campaigns()[0].priority, daemon.store.campaigns()[0].max_sessions) == (-2, 3)
