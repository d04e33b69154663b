"""The change of a unit on the page: read when it is opened, coloured by the kind of line, cut, and always text."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.daemon import Daemon
from tests.page.conftest import PageMonitor
from tests.page.daemon import page_address
from tests.page.test_accessibility import CONTRAST
from tests.workspaces.conftest import TestRepository
from tests.workspaces.finished_units import Files, new_repository, run_units

from paceline.store import SqliteStore

pytestmark = pytest.mark.asyncio(loop_scope="session")

ATTACK = "<img src=x onerror='window.hacked = 1'>"


async def run(daemon: Daemon, works: dict[str, Files]) -> None:
    folder = daemon.home.path.parent
    repository = new_repository(folder / "project")
    await asyncio.to_thread(run_beside_the_engine, repository, daemon.home.path, works)


def run_beside_the_engine(repository: TestRepository, home: Path, works: dict[str, Files]) -> None:
    with closing(SqliteStore(home / "paceline.db")) as store:  # the daemon's own connection serves one thread at a time
        run_units(store, repository, home, works)


async def open_diff(page: Page, unit: str) -> None:
    await page.get_by_role("button", name=unit).first.click()
    await page.get_by_role("dialog", name=unit).get_by_role("tab", name="Diff").click()


async def kinds(page: Page) -> list[tuple[str, str]]:
    blocks = await page.locator(".diff span").all()
    return [(await block.get_attribute("class") or "", await block.inner_text()) for block in blocks]


async def test_the_change_of_a_unit_is_coloured_by_line_and_stays_text(
    daemon: Daemon, page: Page, monitor: PageMonitor
) -> None:
    monitor.may_fail = "/log"
    await run(daemon, {"a": {"kept.txt": f"-- kept\n{ATTACK}\n"}, "b": {"kept.txt": "-- kept\n"}, "none": {}})
    await page.goto(page_address(daemon))

    await open_diff(page, "docs/a")
    panel = page.get_by_role("tabpanel")
    await expect(panel.locator(".added")).to_have_text(f"+-- kept\n+{ATTACK}")
    shown = await kinds(page)
    await page.keyboard.press("Escape")
    await open_diff(page, "docs/none")
    await expect(panel).to_contain_text("It changed nothing.")

    assert [kind for kind, _ in shown] == ["file", "hunk", "removed", "added"]
    assert shown[0] == ("file", "diff --git a/kept.txt b/kept.txt\n--- a/kept.txt\n+++ b/kept.txt")
    assert shown[1:3] == [("hunk", "@@ -1 +1,2 @@"), ("removed", "-kept")]
    assert await page.evaluate("window.hacked") is None
    assert await page.locator(".diff span").count() == 0


async def test_a_long_change_is_cut_and_the_page_says_so(daemon: Daemon, page: Page, monitor: PageMonitor) -> None:
    monitor.may_fail = "/log"
    await run(daemon, {"a": {"long.txt": "line\n" * 60_000}})
    await page.goto(page_address(daemon))

    await open_diff(page, "docs/a")
    note = page.get_by_text("Only the first 5,000 lines are shown; paceline diff docs/a prints everything.")
    await expect(note).to_be_visible()

    assert sum(len(text.splitlines()) for _, text in await kinds(page)) == 4_999  # without the names of objects


async def test_a_unit_without_a_workspace_and_one_whose_repository_is_gone_say_so(
    daemon: Daemon, page: Page, monitor: PageMonitor
) -> None:
    monitor.may_fail = "/v1/units/"
    daemon.add("plain", "true", "a")
    await daemon.until(lambda: daemon.counts("plain").done == 1)
    await run(daemon, {"a": {"kept.txt": "new\n"}})
    (daemon.home.path.parent / "project").rename(daemon.home.path.parent / "gone")
    await page.goto(page_address(daemon))

    await open_diff(page, "plain/a")
    await expect(page.get_by_role("tabpanel")).to_contain_text("It has no workspace: it worked in its folder itself.")
    await page.keyboard.press("Escape")
    await open_diff(page, "docs/a")
    await expect(page.get_by_role("tabpanel").locator(".diff-pane .note")).to_contain_text("there is no such folder")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
async def test_a_change_can_be_read_in_light_and_dark_wide_and_narrow(
    browser: Browser, daemon: Daemon, monitor: PageMonitor, scheme: str, width: int
) -> None:
    monitor.may_fail = "/log"
    code = "def answer() -> int:\n    return 42\n" + "x" * 300 + "\n"
    await run(daemon, {"a": {"kept.txt": code, "other.py": "new\n"}})
    context = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light", viewport={"width": width, "height": 900}
    )
    page = await context.new_page()
    monitor.follow(page)
    await page.goto(page_address(daemon))
    await open_diff(page, "docs/a")
    await expect(page.locator(".diff .added").first).to_be_visible()

    faint = await page.evaluate(CONTRAST)
    is_wider = await page.evaluate(
        "() => [document.documentElement, document.querySelector('dialog[open]'), document.querySelector('.diff')]"
        ".some((node) => node.scrollWidth > node.clientWidth)"
    )
    await context.close()

    assert faint == []
    assert not is_wider
    assert monitor.complaints == []
