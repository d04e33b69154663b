"""The demo: a small performance with real processes over real HTTP, and its two faces."""

import asyncio
import json
from io import StringIO
from pathlib import Path

import httpx
import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from paceline.cli.demo import show
from paceline.cli.demo.progress import CampaignProgress, DemoProgress, UnitProgress, sentence_of
from paceline.cli.demo.scenario import DemoPlan, open_demo
from paceline.cli.demo.show import play
from paceline.cli.demo.summary import shares
from paceline.cli.demo.view import screen, state_line
from paceline.cli.main import app
from paceline.events import FIELDS, Event

SMALL = DemoPlan(
    units=3,
    steps=3,
    sessions=3,
    latency=0.01,
    words_per_second=200.0,
    busy_after=3,
    busy_seconds=1.0,
    window_requests=11,
    window_seconds=6.0,
)
CALM = msgspec.structs.replace(SMALL, busy_after=1000, window_requests=1000)


def plain_console() -> Console:
    return Console(file=StringIO(), width=80)


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def processes_of(url: str) -> list[int]:
    """Return the processes whose environment names this provider."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = environ.read_bytes()
        except OSError:
            continue
        if url.encode() in environment:
            found.append(int(environ.parent.name))
    return found


async def test_every_unit_is_done_through_a_429_and_a_closed_window_and_no_attempt_is_charged() -> None:
    console = plain_console()

    found = await play(console, SMALL)

    assert (found.done, found.lost, found.attempts) == (6, 0, 0)
    assert found.parked >= 1
    assert found.resumed >= 1
    assert found.reopenings == 1
    assert found.refusals >= 2
    assert found.peak_sessions == SMALL.sessions
    assert (found.answers, found.conversations) == (18, 6)  # no step asked for twice, no conversation begun twice
    lines = written(console)
    assert "\x1b" not in lines
    for words in (
        "429: the session that met it waits 1 s",
        "from 3 sessions to 2",
        "the 5h window is spent",
        "no attempt charged",
        "one canary goes first",
        "follow in a wave",
        "review is done: 3 units",
        "6 of 6, 0 lost",
        "The dashboard, while the demo runs: http://127.0.0.1:",
    ):
        assert words in lines


async def test_a_demo_that_is_broken_off_leaves_no_process_behind() -> None:
    slow = msgspec.structs.replace(CALM, words_per_second=1.0)
    async with open_demo(slow) as demo:
        url = demo.provider.url
        running = asyncio.create_task(demo.run())
        await demo.provider.until(lambda: demo.provider.in_flight == slow.sessions)
        assert len(processes_of(url)) >= slow.sessions
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert processes_of(url) == []


async def test_the_dashboard_is_there_for_as_long_as_the_demo_runs() -> None:
    async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
        async with open_demo(CALM) as demo:
            opened = await client.get(demo.url)  # with the cookie that comes with it, as a browser would
            assert "<title>Paceline</title>" in opened.text
            await demo.run()
            overview = await client.get(httpx.URL(demo.url).join("/v1/overview"))

        with pytest.raises(httpx.ConnectError):
            await client.get(demo.url)

    assert overview.json()["status"]["units"]["done"] == 2 * CALM.units


async def test_the_screen_fits_an_ordinary_terminal_whatever_happens() -> None:
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    async with open_demo(DemoPlan()) as demo:
        now = demo.progress.started_at + 1.0
        for campaign in demo.progress.campaigns:
            for unit in list(campaign.units)[:4]:
                park = {"reason": "the quota window is spent", "resume_at": now + 8.4}
                demo.progress.record(Event("unit.parked", now, None, f"{campaign.name}/{unit}", park))

        console.print(screen(demo, now, 80, 24))

        assert state_line(demo, now).startswith("  1.0 s  0/24 done, 0 running, 8 parked, 16 waiting")
    lines = written(console).splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert "◌ review/auth     resumes in 8 s" in written(console)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_ends_with_0_and_its_figures(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(show, "PLAN", CALM)

    result = runner.invoke(app, ["demo", *options])

    assert result.exit_code == 0
    if options:
        assert json.loads(result.stdout)["done"] == 6
    else:
        assert "units done       6 of 6, 0 lost" in result.stdout


def campaign(name: str, priority: int, *units: str) -> CampaignProgress:
    return CampaignProgress(name, priority, {unit: UnitProgress(f"{name}/{unit}") for unit in units})


def test_units_that_are_parked_together_are_one_line() -> None:
    progress = DemoProgress([campaign("docs", 0, "a", "b", "c")], started_at=100.0)

    for at, unit in ((100.0, "a"), (101.0, "b"), (109.0, "c")):
        park = {"reason": "the quota window is spent", "resume_at": at + 8.0}
        progress.record(Event("unit.parked", at, None, f"docs/{unit}", park))

    assert [line.text for line in progress.lines] == [
        "now 2 units parked for 8 s, no attempt charged: the quota window is spent",
        "docs/c parked for 8 s, no attempt charged: the quota window is spent",
    ]
    assert [line.number for line in progress.newer_than(2)] == [3]


def test_a_window_that_several_sessions_find_closed_is_closed_once() -> None:
    progress = DemoProgress([], started_at=0.0)
    closed = {"window": "5h", "resets_at": 9.0}

    for at in (1.0, 2.0):
        progress.record(Event("window.closed", at, "a", fields=closed))
    progress.record(Event("window.canary", 9.0, "a", fields={"window": "5h"}))
    progress.record(Event("window.closed", 9.5, "a", fields=closed | {"resets_at": 20.0}))

    assert [line.at for line in progress.lines] == [1.0, 9.0, 9.5]


def test_only_places_that_both_campaigns_wanted_count_as_shares() -> None:
    high, low = campaign("high", 1, "a", "b"), campaign("low", 0, "a")
    progress = DemoProgress([high, low], started_at=0.0)

    for unit in ("high/a", "low/a", "high/b"):
        progress.record(Event("unit.started", 1.0, "a", unit, {"session_id": None}))

    assert (high.contested, low.contested) == (1, 1)
    assert [share.due for share in shares([high, low])] == [2 / 3, 1 / 3]


def test_a_parked_unit_whose_time_has_come_waits_for_its_turn() -> None:
    unit = UnitProgress("docs/a", state="parked", resume_at=10.0)

    assert (unit.state_at(9.9), unit.state_at(10.0)) == ("parked", "waiting")


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_event_of_the_engine_can_be_heard(name: str) -> None:
    numbers: dict[str, object] = dict.fromkeys(FIELDS[name], 1.0)

    sentence = sentence_of(Event(name, 0.0, "a", fields=numbers))

    assert sentence is None or sentence[1]
