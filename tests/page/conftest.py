"""Fixtures: a real browser on the page of a real daemon.

Every test fails if the console shows an error or a request goes to another server.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Protocol
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect
from tests.daemon import Daemon, RunDaemon
from tests.daemon import run_daemon as run_daemon

PATIENCE_MILLISECONDS = 60_000
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first draws no windows, and needs half the time of the others."""
expect.set_options(timeout=PATIENCE_MILLISECONDS)  # generous, for a busy machine


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start one browser for all tests of this worker."""
    async with async_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


class MakeDaemon(Protocol):
    async def __call__(self, toml: str = "") -> Daemon: ...


@pytest_asyncio.fixture(loop_scope="session")
async def make_daemon(run_daemon: RunDaemon) -> AsyncIterator[MakeDaemon]:
    """Return a function that starts a daemon, which runs until the page is closed."""
    async with AsyncExitStack() as stack:

        async def make(toml: str = "") -> Daemon:
            return await stack.enter_async_context(run_daemon(toml))

        yield make


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(make_daemon: MakeDaemon) -> Daemon:
    return await make_daemon()


class PageMonitor:
    """Record of what a page must not do: console errors, dialogs, requests to other servers."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.origins: set[str] = set()
        self.dialogs: list[str] = []
        self.may_fail: str | None = None
        """Part of the addresses that may fail in this test; the browser logs an error for each."""

    def follow(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.origins.add(urlsplit(request.url).netloc))
        page.on("dialog", lambda dialog: self.dialogs.append(dialog.message))

    def _on_console(self, message: ConsoleMessage) -> None:
        is_expected = self.may_fail is not None and self.may_fail in message.location["url"]
        if message.type in ("error", "warning") and not is_expected:
            self.complaints.append(message.text)


@pytest.fixture
def monitor() -> PageMonitor:
    return PageMonitor()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, make_daemon: MakeDaemon) -> AsyncIterator[BrowserContext]:
    """Open a browser context and close it before the daemon stops, because requests to a stopped server fail."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, monitor: PageMonitor) -> AsyncIterator[Page]:
    """Open a blank page, and check what the monitor recorded when the test is over."""
    page = await context.new_page()
    monitor.follow(page)
    yield page
    at = urlsplit(page.url).netloc
    await page.close()
    assert (monitor.complaints, monitor.dialogs, monitor.origins - {at}) == ([], [], set())
