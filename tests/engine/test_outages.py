"""Nobody answered, or the agent's program is away: nothing is charged, and all of it is done afterwards."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from paceline.agents import load_agent
from paceline.clock import SystemClock
from paceline.core import GovernorSettings
from paceline.core.unit_lifecycle import Counters
from paceline.engine.engine import Engine
from paceline.engine.session.live_session import not_started_outcome
from paceline.engine.settings import EngineSettings
from paceline.executors.interface import Launch
from paceline.executors.process import ProcessExecutor
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.store import Campaign, SqliteStore, UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

MISSING = "cannot run 'claude': No such file or directory (is it installed, and on PATH?)"
WORKING = Run(stdout=init() + answer(), later=((60.0, done()),), seconds=60.0)


def offline(_: Launch) -> Run:
    said = {"type": "result", "is_error": True, "result": "API Error: Connection error.", "session_id": "s1"}
    return Run(stdout=init() + json.dumps(said) + "\n", exit_code=1, seconds=20.0)


def missing(_: Launch) -> Run:
    return Run(not_started=MISSING)


@pytest.mark.parametrize(
    ("trouble", "seconds", "most_tries"), [(offline, HOUR, 40), (missing, 600.0, 20)], ids=["offline", "no binary"]
)
@pytest.mark.parametrize("begins_at", [0.0, 900.0], ids=["at once", "later"])
async def test_an_outage_charges_nobody_and_all_units_are_done_afterwards(
    trouble: object, seconds: float, most_tries: int, begins_at: float
) -> None:
    def script(launch: Launch) -> Run:
        is_out = begins_at <= harness.clock.now() - NOW < begins_at + seconds
        tried.append(is_out)
        return trouble(launch) if is_out else WORKING  # type: ignore[operator]

    tried: list[bool] = []
    async with EngineHarness(script, pool=4) as harness:
        harness.add_claude("night", 300)
        await harness.run(begins_at + seconds)
        assert harness.failures() == 0

        await harness.run(3 * HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=300)}
        assert harness.failures() == 0
        assert sum(tried) <= most_tries
        assert harness.events("unit.failed", "unit.quarantined", "unit.held", "campaign.paused") == []


async def test_a_missing_program_holds_up_every_account_of_its_agent_and_nobody_else() -> None:
    def script(launch: Launch) -> Run:
        return Run(not_started=MISSING) if launch.argv[0] == "claude" else Run()

    async with EngineHarness(script, pool=8) as harness:
        harness.add_claude("one", 10, accounts=("max-1",))
        harness.add_claude("two", 10, accounts=("max-2",))
        harness.add("other", 10)
        await harness.run(4.0)

        assert harness.store.counts()["other"] == UnitCounts(done=10)
        waits = harness.engine.wait_reasons()
        assert {name: (wait.reason, wait.scope) for name, wait in waits.items()} == {
            "one max-1": ("unreachable", "agent:claude"),
            "two max-2": ("unreachable", "agent:claude"),
        }
        assert "the program claude could not be started: not found" in waits["one max-1"].detail
        assert harness.unit("one/u0").reason == "the program claude could not be started: not found"


async def test_a_command_that_never_existed_pauses_its_campaign_alone_and_says_why() -> None:
    def script(launch: Launch) -> Run:
        return Run(not_started="cannot run 'wrok': No such file or directory") if launch.argv[0] == "wrok" else Run()

    async with EngineHarness(script, pool=4) as harness:
        harness.add("typo", 10, command=("wrok", "{id}"))
        harness.add("right", 10)
        await harness.run(300.0)
        waiting = harness.engine.wait_reasons()["typo "]
        assert (waiting.reason, waiting.scope) == ("unreachable", "campaign:typo")
        assert "the program wrok could not be started: not found" in waiting.detail

        await harness.run(HOUR)
        (typo, right) = harness.store.campaigns()
        assert (typo.state, typo.pause_reason) == ("paused", "the program wrok could not be started: not found")
        assert (right.state, harness.store.counts()["right"]) == ("active", UnitCounts(done=10))
        assert harness.failures() == 0


async def test_a_unit_whose_own_program_is_missing_blocks_nobody_and_fails_in_the_end() -> None:
    """In a plan whose units name their own programs, one missing program says nothing about the others."""

    def script(launch: Launch) -> Run:
        return Run(not_started="cannot run 'u0': No such file") if launch.argv[0] == "u0" else Run(seconds=60.0)

    async with EngineHarness(script, pool=2) as harness:
        harness.add("night", 40, command=("{id}",), max_attempts=1)
        await harness.run(3 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=39, quarantined=1)}
        assert harness.unit("night/u0").reason == "the program u0 could not be started: not found"


async def test_an_outage_of_one_account_charges_nobody_while_units_on_another_succeed() -> None:
    def script(launch: Launch) -> Run:
        is_out = 60.0 <= harness.clock.now() - NOW < 3 * HOUR
        return offline(launch) if is_out and harness.unit(launch.env["PACELINE_UNIT"]).account == "max-1" else WORKING

    async with EngineHarness(script, pool=4, limits={"anthropic/max-2": 1}) as harness:
        harness.add_claude("night", 300, accounts=("max-1", "max-2"))
        await harness.run(8 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=300)}
        assert harness.failures() == 0
        assert harness.events("unit.failed", "unit.quarantined", "unit.held", "campaign.paused") == []


@pytest.mark.parametrize("units", [8, 300])
async def test_a_unit_that_alone_reaches_nobody_is_held_with_the_reason_and_the_others_go_on(units: int) -> None:
    def script(launch: Launch) -> Run:
        return offline(launch) if launch.env["PACELINE_UNIT"] == "night/u0" else WORKING

    async with EngineHarness(script, pool=2) as harness:
        harness.add_claude("night", units)
        await harness.run(6 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=units - 1, held=1)}
        held = harness.unit("night/u0")
        assert held.counters == Counters(attempts=12)
        assert held.reason == (
            "nobody answered: exit code 1: API Error: Connection error. (so it was 12 times in a row, while other"
            " sessions on max-1 got answers: the settings in its folder may name another address or proxy)"
        )
        (event,) = harness.events("unit.held")
        assert event.unit == "night/u0"


async def test_a_unit_that_reached_nobody_just_before_a_long_outage_is_not_held_for_it() -> None:
    def script(launch: Launch) -> Run:
        seconds = harness.clock.now() - NOW
        is_flaw = launch.env["PACELINE_UNIT"] == "night/u0" and seconds < 100.0
        return offline(launch) if is_flaw or 100.0 <= seconds < 9 * HOUR else WORKING

    async with EngineHarness(script, pool=2) as harness:
        harness.add_claude("night", 3)
        await harness.run(12 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=3)}
        assert harness.unit("night/u0").counters.attempts > 12
        assert harness.events("unit.held", "unit.failed") == []


async def test_commands_that_began_before_a_program_went_away_blame_nobody() -> None:
    """They end well meanwhile, which says nothing about the program."""

    def script(_: Launch) -> Run:
        begun.append(harness.clock.now())
        is_away = 30.0 <= harness.clock.now() - NOW < HOUR
        return Run(not_started="cannot run 'work': No such file") if is_away else Run(seconds=100.0 * len(begun))

    begun: list[float] = []
    async with EngineHarness(script, pool=20) as harness:
        harness.add("night", 30, command=("{id}",), max_attempts=1)
        await harness.run(12 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=30)}
        assert harness.failures() == 0


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        (MISSING, "not_started"),
        ("cannot run 'claude': Text file busy", "not_started"),
        ("[Errno 24] Too many open files", "not_started"),
        ("cannot work in '/srv/gone': No such file or directory", "failed"),
        ("cannot run 'claude': Argument list too long", "failed"),
        ("it was stopped before the agent ran", "lost"),
    ],
)
def test_only_what_lies_in_the_unit_is_a_failure_to_start(message: str, ending: str) -> None:
    assert not_started_outcome(message).ending == ending


async def test_real_units_are_done_once_their_program_is_there_and_nothing_was_charged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    specs = [UnitSpec(id=f"u{n}", cwd=str(tmp_path)) for n in range(6)]
    campaign = Campaign(name="night", command=(str(tmp_path / "work"), "{id}"))
    store.add_campaign(campaign, specs, update=False, now=time.time())
    engine = Engine(
        EngineSettings(governor=GovernorSettings(limits={"sessions": 2}), heartbeat=0.1),
        store=store,
        executor=ProcessExecutor(str(tmp_path / "spool")),
        clock=SystemClock(),
        agents=load_agent,
        environ={"PATH": os.environ["PATH"]},
        owner="engine1",
    )
    running = asyncio.create_task(engine.run(until_idle=True))
    async with asyncio.timeout(60.0):
        while not [each for each in store.events() if each.event.name == "unit.requeued"]:
            await asyncio.wait({running}, timeout=0.05)
        script = tmp_path / "work.new"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o700)
        script.rename(tmp_path / "work")
        await running

    units = store.units().units
    store.close()
    assert [unit.state for unit in units] == ["done"] * 6
    assert {unit.counters.failures for unit in units} == {0}
    assert units[-1].counters == Counters(attempts=1)
