"""Output of agents and names of plans stay text: they create no element, no request and no dialog."""

import time
import unicodedata

import pytest
from playwright.async_api import Page, expect
from tests.daemon import Daemon
from tests.page.daemon import page_address

from paceline.core.signals import BillingStop
from paceline.engine import command_log as control
from paceline.store import Campaign, UnitSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

ATTACKS = (
    "<script>window.hacked = 1; alert(1)</script>",
    "<img src=x onerror='window.hacked = 1; fetch(`//evil.test/`)'>",
    "<svg/onload=window.hacked=1>",
    "\"'><iframe src='javascript:window.hacked=1'></iframe>",
    "<style>body { display: none }</style>",
    "<a href='javascript:window.hacked=1' id='attack'>click</a>",
)
ALL = " ".join(ATTACKS)
BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
SHORT = "<img src=x onerror=window.hacked=1>"
PRINTS_AND_FAILS = "cat attack.txt; cat attack.txt >&2; exit 3"


async def test_attacks_in_names_prompts_output_and_reasons_stay_text(daemon: Daemon, page: Page) -> None:
    folder = daemon.home.path.parent
    (folder / "attack.txt").write_text(ALL + "\n\x1b]8;;http://evil.test\x07link\x1b]8;;\x07\x1b[2J\n")
    campaign, unit = f"docs {SHORT}", f"a {SHORT}"
    fails = Campaign(name=campaign, command=("sh", "-c", PRINTS_AND_FAILS), max_attempts=1)
    daemon.store.add_campaign(fails, [UnitSpec(id=unit, prompt=ALL, cwd=str(folder))], update=False, now=time.time())
    control.send(daemon.store, "campaigns", now=time.time())
    daemon.engine.limiter.report("anthropic/max-1", BillingStop(detail=ALL))
    await page.goto(page_address(daemon))
    elements = await _count_elements(page)

    await expect(page.locator("#campaigns h3").filter(has_text=campaign)).to_be_visible()
    await expect(page.locator("#capacity").get_by_text(ATTACKS[0])).to_be_visible()
    row = page.locator("#units .unit-row").filter(has_text="quarantined")
    await expect(row.get_by_role("button")).to_have_text(f"{campaign}/{unit}")
    await row.get_by_role("button").click()
    panel = page.get_by_role("dialog", name=f"{campaign}/{unit}")
    for tab in ("Transcript", "Raw", "Errors", "Prompt"):
        await panel.get_by_role("switch" if tab == "Raw" else "tab", name=tab).click()
        for attack in ATTACKS:
            await expect(panel.get_by_role("tabpanel")).to_contain_text(attack)
    await panel.get_by_role("tab", name="History").click()
    await panel.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name=f"Cancel {campaign}").click()
    await page.keyboard.press("Escape")
    await expect(page.locator("#events .event").filter(has_text=unit).first).to_be_visible()

    assert await page.evaluate("window.hacked") is None
    assert await page.locator("#attack, img[src='x'], iframe, [onerror], [onload]").count() == 0
    assert await _count_elements(page) == elements


async def test_characters_that_change_the_reading_order_are_escaped(daemon: Daemon, page: Page) -> None:
    """Otherwise the id of one unit can look like that of another."""
    campaign, unit = "docs\u2067x", "a\u202egpj.exe\u2069\u200f"
    shown = r"docs\u2067x/a\u202egpj.exe\u2069\u200f"
    waits = Campaign(name=campaign, command=("sleep", "60"), max_sessions=1)
    folder = str(daemon.home.path.parent)
    daemon.store.add_campaign(waits, [UnitSpec(id=unit, prompt=unit, cwd=folder)], update=False, now=time.time())
    control.send(daemon.store, "campaigns", now=time.time())
    await page.goto(page_address(daemon))

    await expect(page.locator("#campaigns h3").first).to_have_text(r"docs\u2067x")
    await expect(page.get_by_label("Campaign", exact=True).locator("option")).to_have_text(
        ["All campaigns", r"docs\u2067x"]
    )
    await expect(page.get_by_role("button", name=r"Cancel docs\u2067x", exact=True)).to_be_visible()
    await page.get_by_role("button", name=shown).first.click()
    panel = page.get_by_role("dialog", name=shown)
    await panel.get_by_role("tab", name="Prompt").click()
    await expect(panel.locator(".text")).to_have_text(r"a\u202egpj.exe\u2069\u200f")
    await page.keyboard.press("Escape")
    await page.get_by_label("Campaign", exact=True).select_option(campaign)
    await expect(page.locator("#units .unit-row:not(.blank) .link")).to_have_text([shown])

    text = await page.evaluate("document.body.innerText")
    assert [
        each for each in text if unicodedata.bidirectional(each) in BIDI_CONTROLS or each in "\u061c\u200e\u200f"
    ] == []


async def test_the_policy_forbids_frames_and_other_scripts(daemon: Daemon, page: Page) -> None:
    answer = await page.goto(page_address(daemon))

    assert answer is not None
    policy = await answer.header_value("content-security-policy") or ""
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert (rules["default-src"], rules["script-src"], rules["style-src"]) == ("'none'", "'self'", "'self'")
    assert rules["frame-ancestors"] == "'none'"


async def test_a_time_outside_the_calendar_is_shown_as_never(daemon: Daemon, page: Page) -> None:
    await page.goto(page_address(daemon))
    ask = "import('/assets/format.js').then(f => [f.clockTime, f.clockSeconds, f.fullTime].map(format => format(1e18)))"

    assert await page.evaluate(ask) == ["never", "never", "never"]


async def _count_elements(page: Page) -> tuple[int, int, int]:
    """Count the elements of the kinds that could do harm."""
    kinds = ("script", "style, link", "img, iframe, object, embed, base, meta")
    first, second, third = [await page.locator(kind).count() for kind in kinds]
    return first, second, third
