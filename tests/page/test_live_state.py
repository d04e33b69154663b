"""The page shows the state of the store: while units run, park and resume, and after the server was away."""

import contextlib
import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect
from tests.daemon import Daemon
from tests.page.conftest import MakeDaemon, PageMonitor
from tests.page.daemon import WAIT_FOR_FILE, UpProcess, finish_units, page_address, status_of

from paceline.core.signals import Budget, QuotaClosed, RateLimited
from paceline.views.units import phase_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = """
[pool]
sessions = 3
[engine]
heartbeat = "200ms"
[limits]
"anthropic/max-1" = 2
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.max-2]
provider = "anthropic"
kind = "subscription"
"""
SPENT_ONCE = """
if [ ! -e was-{id} ]; then touch was-{id}; echo "usage limit reached, try again in 6 seconds"; exit 1; fi
while [ ! -e go-{id} ]; do sleep 0.05; done
"""
PRIORITIES = {"docs": 3, "tests": 0}
STATES = ("done", "running", "parked", "waiting", "unverified", "quarantined", "held", "cancelled")


async def figure(place: Page | Locator, name: str) -> str:
    return (await place.locator(f"[data-figure='{name}']").first.text_content() or "").strip()


async def strip_figures(page: Page) -> dict[str, str]:
    return {name: await figure(page.locator("#engine"), name) for name in ("running", "waiting", "parked", "done")}


async def card_figures(page: Page, campaign: str) -> dict[str, int]:
    """Return the counts on a card. A count of zero is not shown."""
    shown = page.locator(f"[data-campaign='{campaign}'] .counts [data-figure]")
    pairs = await shown.evaluate_all("nodes => nodes.map(node => [node.dataset.figure, node.textContent])")
    return {name: int(text.replace(",", "")) for name, text in pairs}


def stored_figures(daemon: Daemon, campaign: str) -> dict[str, int]:
    counts = daemon.counts(campaign)
    values = {state: getattr(counts, state) for state in STATES if state != "waiting"}
    values["waiting"] = counts.todo - counts.parked
    return {state: count for state, count in values.items() if count}


async def test_every_number_matches_the_store_while_units_run(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    daemon.add("docs", WAIT_FOR_FILE, *"abcdef", accounts=("max-1",), model="sonnet-4-5", priority=3)
    daemon.add(
        "tests",
        f"{WAIT_FOR_FILE}; test {{id}} != v",
        *"uvwxyz",
        accounts=("max-2",),
        model="sonnet-4-5",
        max_attempts=1,
        max_sessions=1,
    )
    await page.goto(page_address(daemon))

    for released in ("", "a", "uv", "bcd", "wx", "efyz"):
        finish_units(daemon, *released)
        await daemon.until(lambda gone=released: _has_settled(daemon, gone))  # type: ignore[misc]
        running = len(daemon.store.running_units())
        await expect(page.locator("[data-figure='running']").first).to_have_text(str(running))
        await _expect_the_same(daemon, page)


def _has_settled(daemon: Daemon, gone: str) -> bool:
    """Return whether these units have ended and the next ones run: up to two of docs and one of tests."""
    units = {unit.spec.id: unit.state for unit in daemon.store.units().units}
    left = {name: counts.todo + counts.running for name, counts in daemon.store.counts().items()}
    may_run = min(2, left["docs"]) + min(1, left["tests"])
    are_over = all(units[unit] in ("done", "quarantined") for unit in gone)
    return are_over and len(daemon.store.running_units()) == may_run


async def _expect_the_same(daemon: Daemon, page: Page) -> None:
    """Compare the page with the store. Nothing changes until the next file is created, so both must agree."""
    counts = daemon.store.counts().values()
    totals = {
        "running": sum(each.running for each in counts),
        "waiting": sum(each.todo - each.parked for each in counts),
        "parked": sum(each.parked for each in counts),
        "done": sum(each.done for each in counts),
    }
    for name, value in totals.items():
        await expect(page.locator(f"#engine [data-figure='{name}']")).to_have_text(str(value))
    await expect(page.locator("[data-figure='pool.use']")).to_have_text(f"{totals['running']} of 3 running")
    await expect(page.locator("#engine .tile.done .note")).to_have_text("of 12")
    pace = int((await figure(page.locator("#engine"), "pace")).replace(",", ""))
    assert (pace == 0) == (totals["done"] == 0)
    for unit in daemon.store.units().units:
        await expect(page.locator(f"[data-unit='{unit.id}'] .state")).to_have_text(phase_of(unit))
    for campaign in ("docs", "tests"):
        assert await card_figures(page, campaign) == stored_figures(daemon, campaign)
        card = page.locator(f"[data-campaign='{campaign}']")
        await expect(card.locator("[data-figure='priority']")).to_have_text(f"priority {PRIORITIES[campaign]}")
        running = daemon.counts(campaign).running
        await expect(card.locator("[data-figure='sessions']")).to_have_text(
            f"{running} running unit{'' if running == 1 else 's'}"
        )
    for scope in ("anthropic", "anthropic/max-1", "anthropic/max-2"):
        row = page.locator(f"[data-scope='{scope}']")
        status = status_of(daemon, scope)
        of = "" if status.limit is None else f"/{status.limit}"
        await expect(row.locator("[data-figure='in_flight']")).to_have_text(f"{status.in_flight}{of}")
        waiting = {"anthropic": ("docs", "tests"), "anthropic/max-1": ("docs",), "anthropic/max-2": ("tests",)}[scope]
        queued = sum(daemon.counts(campaign).todo for campaign in waiting)
        await expect(row.locator("[data-figure='queued']")).to_have_text(str(queued))


async def test_a_unit_is_shown_parked_and_then_resumed(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    daemon.add("docs", SPENT_ONCE, "a", accounts=("max-1",), model="sonnet-4-5")
    card = page.locator("[data-campaign='docs']")

    await expect(card.locator("[data-figure='parked']")).to_have_text("1")
    assert daemon.counts("docs").parked == 1
    await expect(page.locator("#engine [data-figure='parked']")).to_have_text("1")
    await expect(page.locator("#engine [data-figure='resume']")).to_have_text(re.compile(r"^0:0[1-6]$"))
    window = page.locator("[data-scope='anthropic/max-1'] .window")
    await expect(window).to_contain_text("spent")
    await expect(window).to_contain_text("from a sentence")
    await expect(card.locator(".quota")).to_contain_text("quota spent on max-1, resumes about")

    await expect(card.locator("[data-figure='running']")).to_have_text("1")
    assert [unit.id for unit in daemon.store.running_units()] == ["docs/a"]
    await expect(window).to_contain_text("being tried")
    finish_units(daemon, "a")
    await expect(card.locator("[data-figure='done']")).to_have_text("1")
    await expect(window).not_to_contain_text("spent")
    assert daemon.store.unit("docs/a").counters.failures == 0  # type: ignore[union-attr]
    events = page.locator("#events .event")
    await expect(events.filter(has_text="parked").first).to_contain_text("docs/a")


async def test_a_spent_quota_is_said_once(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    closed = QuotaClosed(window="5h", resets_at=time.time() + 3600, source="header")
    daemon.engine.limiter.report("anthropic/max-1", closed)
    daemon.add("docs", "true", "a", "b", accounts=("max-1",), model="sonnet-4-5")
    await daemon.until(lambda: daemon.engine.wait_reasons())
    await page.goto(page_address(daemon))
    card = page.locator("[data-campaign='docs']")

    await expect(card.locator(".quota")).to_contain_text("quota spent on max-1, resumes about")
    await expect(card.locator(".waits")).to_be_hidden()


async def test_the_page_recovers_after_a_restart_of_the_server(
    page: Page, monitor: PageMonitor, tmp_path: Path
) -> None:
    up = UpProcess(tmp_path)
    (tmp_path / "plan.toml").write_text(
        f'[campaign]\nname = "docs"\ncommand = ["sh", "-c", "{WAIT_FOR_FILE}"]\n'
        '[[unit]]\nid = "a"\n[[unit]]\nid = "b"\n'
    )
    with contextlib.closing(up):
        up.start()
        up.run("add", "plan.toml")
        await page.goto(up.page)
        card = page.locator("[data-campaign='docs']")
        await expect(card.locator("[data-figure='running']")).to_have_text("2")
        await expect(page.locator("#connection")).to_have_text("live")
        monitor.may_fail = "/v1/"

        up.stop()
        await expect(page.locator("#connection")).to_have_text("reconnecting")
        await expect(page.get_by_text("The server does not answer.")).to_be_visible()
        assert await figure(card, "running") == "2"  # the last state stays visible
        (tmp_path / "go-a").touch()
        up.start()

        await expect(page.locator("#connection")).to_have_text("live")
        await expect(card.locator("[data-figure='done']")).to_have_text("1")
        await expect(card.locator("[data-figure='running']")).to_have_text("1")
        await expect(page.get_by_text("The server does not answer.")).to_be_hidden()
        await expect(page.locator("#events .event").filter(has_text="done").first).to_contain_text("docs/a")
        (tmp_path / "go-b").touch()
        await expect(card.locator("[data-figure='done']")).to_have_text("2")
        await page.close()


async def test_a_pause_after_a_429_counts_down(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    await page.goto(page_address(daemon))
    daemon.engine.limiter.report("anthropic/max-1", RateLimited(retry_after=600.0))

    pause = page.locator("[data-scope='anthropic/max-1'] .paused span").first

    await expect(pause).to_have_text(re.compile(r"paused after a refusal.*, continues in (10:00|9:\d\d)"))
    seen = await pause.text_content()
    assert seen is not None
    await expect(pause).not_to_have_text(seen)
    assert _seconds_left(await pause.text_content()) < _seconds_left(seen)


def _seconds_left(text: str | None) -> int:
    minutes, seconds = (text or "").rpartition(" ")[2].split(":")
    return 60 * int(minutes) + int(seconds)


async def test_a_window_shows_its_usage_its_reset_and_the_source(make_daemon: MakeDaemon, page: Page) -> None:
    daemon = await make_daemon(ACCOUNT)
    reading = Budget(window="5h", used_ratio=0.41, resets_at=time.time() + 3 * 3600, source="header")
    await page.goto(page_address(daemon))
    daemon.engine.limiter.report("anthropic/max-1", reading)

    window = page.locator("[data-scope='anthropic/max-1'] .window")

    await expect(window.locator("[data-figure='used']")).to_have_text("41%")
    await expect(window).to_contain_text("from a response header, seen")
    await expect(window).to_contain_text(f"{status_of(daemon, 'anthropic/max-1').windows[0].confidence:.0%} sure")
    await expect(window).to_contain_text("resets ")


async def test_an_empty_home_shows_what_to_do_next(daemon: Daemon, page: Page) -> None:
    await page.goto(page_address(daemon))

    await expect(page.locator("#first-start")).to_contain_text("paceline add plan.toml")
    await expect(page.locator("#first-start")).to_contain_text("paceline doctor")
    for section in ("#campaigns", "#timeline", "#units"):
        await expect(page.locator(section)).to_be_hidden()
    await expect(page.get_by_role("link", name="Skip to first steps")).to_have_attribute("href", "#first-start")


async def test_events_can_be_filtered_and_do_not_move_while_they_are_read(daemon: Daemon, page: Page) -> None:
    daemon.add("docs", WAIT_FOR_FILE, "a", "b")
    await page.goto(page_address(daemon))
    events = page.locator("#events .event")
    await expect(events.filter(has_text="started")).to_have_count(2)

    await page.locator("#events .event").first.hover()
    finish_units(daemon, "a")
    await expect(page.get_by_role("button", name="new")).to_be_visible()
    assert await events.filter(has_text="done").count() == 0
    await page.get_by_role("button", name="new").click()
    await expect(events.filter(has_text="done")).to_have_count(1)

    await page.mouse.move(0, 0)
    await page.get_by_label("Filter events by text").fill("docs/b")
    await expect(events).to_have_count(1)
    await page.get_by_label("Filter events by text").fill("")
    await page.get_by_label("Kind of events").select_option("engine")
    await expect(events.filter(has_text="started")).to_have_count(0)
    await expect(events.filter(has_text="engine leading")).to_have_count(1)
    await expect(events.filter(has_text="owner")).to_have_count(0)
