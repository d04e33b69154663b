"""A campaign whose first units fail alike pauses itself instead of spending every unit's attempts."""

import asyncio

import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.engine.capacity.breaker import gist_of
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

REASON = "the first 5 units failed alike, the last with: exit code 2: unknown option"


def fails(_: Launch) -> Run:
    return Run(stderr="unknown option\n", exit_code=2, seconds=20.0)


def name_of(launch: Launch) -> str:
    return launch.env["PACELINE_UNIT"].rpartition("/")[2]


@pytest.mark.parametrize("pool", [1, 4])
async def test_a_campaign_whose_first_units_fail_alike_pauses_and_spends_no_second_attempt(pool: int) -> None:
    async with EngineHarness(fails, pool=pool, heartbeat=5.0) as harness:
        harness.add("night", 300)
        await harness.run(2 * HOUR)

        (campaign,) = harness.store.campaigns()
        assert (campaign.state, campaign.pause_reason) == ("paused", REASON)
        assert harness.failures() == len(harness.launched()) <= 5 + pool - 1
        assert {unit.counters.failures for unit in harness.store.units(limit=300).units} == {0, 1}
        (paused,) = harness.events("campaign.paused")
        assert paused == Event("campaign.paused", paused.at, "campaign:night", None, {"reason": REASON})


async def test_a_failed_unit_waits_no_longer_once_another_has_ended_well() -> None:
    def script(launch: Launch) -> Run:
        is_bad = name_of(launch) == "u0"
        return Run(stderr="boom\n", exit_code=3, seconds=1.0) if is_bad else Run(seconds=20.0)

    async with EngineHarness(script, pool=1, heartbeat=5.0) as harness:
        harness.add("night", 3)
        await harness.run(300.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2, quarantined=1)}
        failed = harness.events("unit.failed")
        waiting = "exit code 3: boom (other units go first, until one has ended well)"
        assert [event.fields["reason"] for event in failed] == [waiting, "exit code 3: boom"]
        assert failed[0].fields["resume_at"] == failed[0].at + 600.0


async def test_a_resumed_campaign_gets_a_new_count_and_goes_on_once_the_cause_is_gone() -> None:
    async with EngineHarness(fails, pool=2, heartbeat=5.0) as harness:
        harness.add("night", 10)
        await harness.run(HOUR)
        harness.executor.script = lambda _: Run()

        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(HOUR)

        (campaign,) = harness.store.campaigns()
        assert (campaign.state, campaign.pause_reason) == ("active", None)
        assert harness.store.counts() == {"night": UnitCounts(done=10)}


async def test_a_small_campaign_pauses_when_all_its_units_have_failed_alike() -> None:
    async with EngineHarness(fails, pool=4, heartbeat=5.0) as harness:
        harness.add("three", 3)
        harness.add("two", 2)
        await harness.run(HOUR)

        assert {campaign.name: campaign.state for campaign in harness.store.campaigns()} == {
            "three": "paused",
            "two": "active",
        }
        assert [harness.unit(f"three/u{n}").counters for n in range(3)] == [Counters(failures=1, attempts=1)] * 3
        assert harness.states()["two/u0"] == "quarantined"


async def test_failures_that_differ_or_follow_a_success_pause_nothing() -> None:
    def script(launch: Launch) -> Run:
        number = int(name_of(launch)[1:])
        if launch.env["PACELINE_UNIT"].startswith("mixed/"):
            return Run(stderr=f"trouble {chr(97 + number % 2)}\n", exit_code=1)
        return Run(exit_code=1 if number else 0)

    async with EngineHarness(script, pool=1, heartbeat=5.0) as harness:
        harness.add("mixed", 8)
        harness.add("proven", 8)
        await harness.run(2 * HOUR)

        assert [campaign.state for campaign in harness.store.campaigns()] == ["active", "active"]
        assert harness.store.counts() == {
            "mixed": UnitCounts(quarantined=8),
            "proven": UnitCounts(quarantined=7, done=1),
        }


async def test_a_foreground_run_ends_when_its_campaign_has_paused_itself() -> None:
    harness = EngineHarness(fails, pool=2, heartbeat=5.0)
    harness.add("night", 30)

    running = asyncio.create_task(harness.engine.run(until_idle=True))
    await harness.clock.advance(HOUR)

    assert running.done()
    await running
    assert harness.store.counts()["night"].todo >= 24


async def test_a_campaign_that_pauses_itself_leaves_the_others_alone() -> None:
    def script(launch: Launch) -> Run:
        return fails(launch) if launch.env["PACELINE_UNIT"].startswith("bad/") else Run()

    async with EngineHarness(script, pool=2, heartbeat=5.0) as harness:
        harness.add("bad", 20)
        harness.add("good", 20)
        await harness.run(HOUR)

        assert harness.store.counts()["good"] == UnitCounts(done=20)
        assert harness.clock.now() > NOW


def test_the_gist_of_a_reason_is_the_same_for_all_units() -> None:
    reasons = [
        ("exit code 1: cannot open /srv/a/in.txt (line 12)", "a"),
        ("exit code 1: cannot open /srv/b/in.txt (line 7)", "b"),
    ]
    assert len({gist_of(reason, unit) for reason, unit in reasons}) == 1
    assert gist_of("ended well, but out/a.md was not written", "a") == gist_of(
        "ended well, but out/b.md was not written", "b"
    )
    assert gist_of("exit code 1: no such model", "a") != gist_of("exit code 1: not logged in", "a")
