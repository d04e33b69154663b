"""A real browser on the page of a real daemon. In no test may the console complain, or a request go anywhere else."""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Protocol
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect
from tests.api.conftest import Daemon, RunDaemon
from tests.api.conftest import run_daemon as run_daemon

PATIENCE_MILLISECONDS = 15_000
expect.set_options(timeout=PATIENCE_MILLISECONDS)  # on a busy machine everything takes its time


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of this worker."""
    async with async_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


class MakeDaemon(Protocol):
    async def __call__(self, toml: str = "") -> Daemon: ...


@pytest_asyncio.fixture(loop_scope="session")
async def make_daemon(run_daemon: RunDaemon) -> AsyncIterator[MakeDaemon]:
    """A daemon with these settings, until the page is closed."""
    async with AsyncExitStack() as stack:

        async def make(toml: str = "") -> Daemon:
            return await stack.enter_async_context(run_daemon(toml))

        yield make


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(make_daemon: MakeDaemon) -> Daemon:
    return await make_daemon()


class Watch:
    """What a page did that it should not have done."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.origins: set[str] = set()
        self.dialogs: list[str] = []
        self.may_fail: str | None = None
        """Part of the addresses that may answer with an error in this test: the browser tells of each."""

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
def watch() -> Watch:
    return Watch()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, make_daemon: MakeDaemon) -> AsyncIterator[BrowserContext]:
    """Closed before the daemon is: a server that is gone is no fault of the page."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, watch: Watch) -> AsyncIterator[Page]:
    """A blank page that is being watched."""
    page = await context.new_page()
    watch.follow(page)
    yield page
    at = urlsplit(page.url).netloc
    await page.close()
    assert (watch.complaints, watch.dialogs, watch.origins - {at}) == ([], [], set())
