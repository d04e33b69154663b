"""The demo: a small performance with real processes over real HTTP, and its two faces."""

import asyncio
import json
from pathlib import Path

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from paceline.cli import demo
from paceline.cli.demo import DemoCounts, DemoPlan, open_demo, play, shares
from paceline.cli.main import app
from paceline.events import Event

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


async def test_every_unit_is_done_through_a_429_and_a_closed_window_and_no_attempt_is_charged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = await play(SMALL)

    assert found is not None
    assert (found.done, found.lost, found.attempts) == (6, 0, 0)
    assert found.parked >= 1
    assert found.resumed >= 1
    assert found.reopenings == 1
    assert found.refusals >= 2
    assert found.peak_sessions == SMALL.sessions
    assert (found.answers, found.conversations) == (18, 6)  # no step asked for twice, no conversation begun twice
    lines = capsys.readouterr().out
    assert "\x1b" not in lines
    for words in (
        "scope paused anthropic/max-1",
        "limit reduced anthropic/max-1: limit 2, previous 3",
        "the quota window is spent, again at",
        "window canary anthropic/max-1: window 5h",
        "window reopened anthropic/max-1",
        "The dashboard, while the demo runs: http://127.0.0.1:",
    ):
        assert words in lines


async def test_a_demo_that_is_broken_off_leaves_no_process_behind() -> None:
    slow = msgspec.structs.replace(CALM, words_per_second=1.0)
    async with open_demo(slow) as demo:
        url = demo.provider.url
        running = asyncio.create_task(demo.engine.run(until_idle=True))
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
            await demo.engine.run(until_idle=True)
            overview = await client.get(httpx.URL(demo.url).join("/v1/overview"))

        with pytest.raises(httpx.ConnectError):
            await client.get(demo.url)

    assert overview.json()["status"]["units"]["done"] == 2 * CALM.units


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_ends_with_0_and_its_figures(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(demo, "PLAN", CALM)

    result = runner.invoke(app, ["demo", *options])

    assert result.exit_code == 0
    if options:
        assert json.loads(result.stdout)["done"] == 6
    else:
        assert "6 of 6, 0 lost" in result.stdout


def test_only_places_that_both_campaigns_wanted_count_as_shares() -> None:
    counts = DemoCounts({"high": ("a", "b"), "low": ("a",)}, started_at=0.0)

    for unit in ("high/a", "low/a", "high/b"):
        counts.record(Event("unit.started", 1.0, "a", unit, {"session_id": None}))

    assert counts.contested == {"high": 1, "low": 1}
    assert [share.due for share in shares({"high": 1, "low": 0}, counts)] == [2 / 3, 1 / 3]


def test_a_parked_unit_waits_for_its_turn_once_its_time_has_come() -> None:
    counts = DemoCounts({"high": ("a", "b", "c"), "low": ("a",)}, started_at=0.0)
    started = [
        Event("unit.started", at, "a", f"high/{unit}", {"session_id": None}) for at, unit in ((1.0, "a"), (5.0, "b"))
    ]
    parked = Event("unit.parked", 0.5, None, "low/a", {"reason": "spent", "resume_at": 4.0})

    for event in (parked, *started):
        counts.record(event)

    assert (counts.contested, counts.peak_sessions, counts.resumed) == ({"high": 1, "low": 0}, 2, 0)
