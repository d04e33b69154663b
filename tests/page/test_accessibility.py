"""Accessibility: keyboard alone, narrow screens, dark mode, and names for screen readers."""

import pytest
from playwright.async_api import Browser, Page, expect
from tests.daemon import Daemon
from tests.page.conftest import PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, page_address

from paceline.core.signals import BillingStop, PlatformLimit

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "a-name-without-any-place-to-break-it-that-goes-on-and-on-and-on-and-on"


@pytest.mark.parametrize("width", [360, 820, 1280, 2560])
async def test_nothing_is_wider_than_the_screen(daemon: Daemon, page: Page, width: int) -> None:
    daemon.add(LONG, f"echo {LONG}; {WAIT_FOR_FILE}", LONG, f"{LONG}-2", max_sessions=1)
    daemon.engine.limiter.report("anthropic/max-1", BillingStop(detail=LONG * 3))
    daemon.engine.limiter.report("anthropic/max-1/opus-4-6", PlatformLimit(limit=3))
    await page.set_viewport_size({"width": width, "height": 800})
    await page.goto(page_address(daemon))
    await expect(page.locator("[data-figure='running']").first).to_have_text("1")
    await expect(page.locator("#units .link").first).to_be_visible()

    assert await overflowing(page) == []
    await page.evaluate("document.querySelector('#connection span').textContent = 'reconnecting'")
    assert await overflowing(page) == []
    await page.locator("#units .link").first.click()
    await expect(page.get_by_role("tabpanel")).to_contain_text(LONG)
    assert await overflowing(page) == []


async def overflowing(page: Page) -> list[str]:
    """Return the elements that extend beyond the right edge of the window."""
    found: list[str] = await page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            const sticksOut = (node) => node.getBoundingClientRect().right > width + 1;
            const isClipped = (node) => {
                for (let at = node.parentElement; at !== document.body; at = at.parentElement) {
                    if (getComputedStyle(at).overflowX !== "visible" && !sticksOut(at)) return true;
                }
                return false;
            };
            const out = [...document.querySelectorAll("body *")].filter((node) => sticksOut(node) && !isClipped(node));
            const names = out.map((node) => `${node.tagName}.${node.className}`);
            return document.documentElement.scrollWidth > width ? ["the page", ...names] : names;
        }"""
    )
    return found


async def test_everything_works_by_keyboard(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", "c", max_sessions=1)
    await page.goto(page_address(daemon))
    await expect(page.locator("#units .link").first).to_be_visible()

    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Skip to campaigns")).to_be_focused()
    await _tab_to(page, "Pause engine")
    await _tab_to(page, "Pool: concurrent sessions")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-figure='pool.use']")).to_have_text("1 of 5 running")
    await _tab_to(page, "Cancel docs")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Keep it")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Cancel docs")).to_be_focused()
    await _tab_to(page, "docs/a")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="docs/b")).to_be_visible()
    await _tab_to(page, "Transcript")
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("tab", name="Answer")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="docs/b").first).to_be_focused()


async def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the named control has the focus, and check that the focus is visible."""
    for _ in range(80):
        focused = await page.evaluate(
            "() => [document.activeElement.ariaLabel || document.activeElement.textContent.trim(), "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        if focused[0] == name:
            assert focused[1] != "none"
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reached {name!r}")


async def test_the_page_has_landmarks_and_every_control_has_a_name(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a")
    await page.goto(page_address(daemon))
    await expect(page.locator("#units .link").first).to_be_visible()

    for name in ("Engine", "Campaigns", "Capacity", "Timeline", "Units", "Events"):
        await expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    await expect(page.get_by_role("main")).to_be_visible()
    nameless = await page.evaluate(
        """() => [...document.querySelectorAll("button, input, select")]
            .filter((node) => !node.closest("[hidden], dialog:not([open])"))
            .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length))
            .map((node) => node.outerHTML)"""
    )
    assert nameless == []


async def test_every_name_begins_with_what_is_seen_and_every_target_is_large_enough(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a")
    daemon.add("fails", "exit 1", "x", max_attempts=1)
    daemon.engine.limiter.report("anthropic/max-1", BillingStop(detail="the login has expired"))
    await daemon.until(lambda: daemon.counts("fails").quarantined == 1)
    await page.goto(page_address(daemon))
    await expect(page.get_by_role("button", name="Retry 1 failed unit of fails")).to_be_visible()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Paceline")
    assert await page.evaluate(MISMATCHES) == []
    assert await page.evaluate(SMALL_TARGETS) == []
    await page.locator("#units .link").first.click()
    await expect(page.locator("#unit .unit-actions button:visible").first).to_be_visible()
    assert await page.evaluate(MISMATCHES) == []
    assert await page.evaluate(SMALL_TARGETS) == []


MISMATCHES = """() => [...document.querySelectorAll("button[aria-label], a[aria-label]")]
    .filter((node) => node.getClientRects().length && node.innerText.trim())
    .filter((node) => !node.ariaLabel.toLowerCase().includes(node.textContent.trim().toLowerCase()))
    .map((node) => `${node.ariaLabel}: ${node.textContent}`)"""
SMALL_TARGETS = """() => [...document.querySelectorAll("button, select, input:not([type=checkbox], [type=radio])")]
    .filter((node) => node.getClientRects().length && !node.closest(".unit-row, .event, p")) // rows keep them apart
    .filter((node) => node.getBoundingClientRect().height < 24 || node.getBoundingClientRect().width < 24)
    .map((node) => node.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_has_enough_contrast_in_light_and_dark(
    browser: Browser, daemon: Daemon, monitor: PageMonitor, scheme: str
) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b", max_sessions=1)
    daemon.add("fails", "exit 1", "x", max_attempts=1)
    daemon.engine.limiter.report("anthropic/max-1", BillingStop(detail="the login has expired"))
    context = await browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = await context.new_page()
    monitor.follow(page)
    await page.goto(page_address(daemon))
    await expect(page.locator("[data-figure='quarantined']").first).to_have_text("1")

    faint = await page.evaluate(CONTRAST)
    await context.close()

    assert faint == []
    assert monitor.complaints == []


CONTRAST = """() => {
    const parse = (text) => {
        const parts = text.match(/[\\d.]+/g).map(Number);
        const scale = text.startsWith("color(srgb") ? 255 : 1;
        return [...parts.slice(0, 3).map((part) => part * scale), parts[3] ?? 1];
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
        for (; node; node = node.parentElement) {
            const colour = parse(getComputedStyle(node).backgroundColor);
            if (colour[3] > 0.8) return colour;
        }
        return [255, 255, 255, 1];
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
        const hasText = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
        if (!hasText || !node.getClientRects().length || node.closest(".skip, .unseen, noscript, option")) continue;
        const [one, other] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        const name = `${node.className || node.tagName} ${node.textContent.trim().slice(0, 30)}`;
        if (ratio < 4.5) found.push(`${name} ${ratio.toFixed(2)}`);
    }
    return found;
}"""
