"""Nights in which everything happens at once, from a seed: what must hold whatever comes, checked from outside.

A failing seed is a one-line reproduction: `pytest tests/engine/test_engine_chaos.py -k "[7]"`.
"""

import random
from collections import Counter

import pytest

from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, limit_without_a_time, rejected, retry
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, EngineHarness

MINUTE = 60.0
LARGEST_POOL = 6
FAILED = Run(stderr="it broke\n", exit_code=1, seconds=30.0)


class Night:
    """A harness, a dice, and the promises."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.harness = EngineHarness(self.script, pool=4, heartbeat=20.0)
        self.closed_until = {"max-1": 0.0, "max-2": 0.0}
        self.failures: Counter[str] = Counter()
        self.is_calm = False

    def script(self, launch: Launch) -> Run:
        """What the next session does; every launch is held against the promises first."""
        unit_id, harness = launch.env["PACELINE_UNIT"], self.harness
        live = {session.env["PACELINE_UNIT"] for session in harness.executor.started if self._is_live(session)}
        assert unit_id not in live, "two sessions of one unit"
        assert len(live) < LARGEST_POOL, "more sessions than the pool ever held"
        assert harness.unit(unit_id).state == "running", "launched before it was stored"
        run = self._agent(launch) if launch.argv[0] == "claude" else self._command()
        if run is FAILED:
            self.failures[unit_id] += 1
        return run

    def _is_live(self, launch: Launch) -> bool:
        return launch.attempt_id in self.harness.executor.live()

    def _command(self) -> Run:
        if self.is_calm:
            return Run(seconds=30.0)
        return self.dice.choice([Run(seconds=30.0), Run(seconds=600.0), Run(exit_code=75), FAILED])

    def _agent(self, launch: Launch) -> Run:
        unit, now = self.harness.unit(launch.env["PACELINE_UNIT"]), self.harness.clock.now()
        session = unit.conversation_id or f"talk-{unit.counters.attempts}-{unit.spec.id}"
        begun = init(session) + answer(session)
        well = Run(stdout=begun, later=((90.0, done(session)),), seconds=90.0)
        account = unit.account or ""
        if now < self.closed_until[account]:
            return Run(stdout=init(session) + rejected(self.closed_until[account], session), exit_code=1)
        if self.is_calm:
            return well
        closes = now + self.dice.choice([900.0, 2 * HOUR])
        match self.dice.randrange(8):
            case 0:
                self.closed_until[account] = closes
                return Run(stdout=begun, later=((40.0, rejected(closes, session)),), exit_code=1, seconds=300.0)
            case 1:
                return Run(stdout=begun, later=((20.0, retry(90.0, session=session)),), seconds=600.0)
            case 2:
                return Run(stdout=init(session) + retry(2.0, session=session), exit_code=1)
            case 3:
                return Run(stdout=init(session) + limit_without_a_time(), exit_code=1)
            case _:
                return well

    async def disturb(self) -> None:
        harness = self.harness
        match self.dice.randrange(8):
            case 0:
                await harness.crash()
            case 1:
                await harness.stop()
            case 2:
                await harness.crash()
                harness.executor.reboot()
            case 3:
                for attempt in harness.executor.live()[:1]:
                    harness.executor.lose(attempt)
            case 4:
                harness.send("limit", "sessions", limit=self.dice.randint(1, LARGEST_POOL))
            case 5:
                harness.change("tasks", state=self.dice.choice(["paused", "active"]))
            case 6:
                harness.clock.step(self.dice.choice([600.0, HOUR]))
                harness.engine.wake()
        await harness.run(self.dice.uniform(1.0, 600.0))


SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 300))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_no_unit_is_lost_doubled_or_wrongly_charged(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    night = Night(seed)
    harness = night.harness
    async with harness:
        harness.add_claude("talks", 12, accounts=("max-1", "max-2"))
        harness.add("tasks", 12, priority=1, max_attempts=4)
        await harness.run(60.0)
        for _ in range(25):
            await night.disturb()

        night.is_calm = True
        harness.change("tasks", state="active")
        harness.send("limit", "sessions", limit=4)
        for _ in range(30):
            await harness.run(HOUR)
            if harness.engine.is_idle():
                break

        states = harness.states()
        assert len(states) == 24
        assert set(states.values()) <= {"done", "quarantined"}
        charged = {unit_id: harness.unit(unit_id).counters.failures for unit_id in states}
        assert {unit_id: count for unit_id, count in charged.items() if count > night.failures[unit_id]} == {}
        assert {unit_id for unit_id, state in states.items() if state == "quarantined"} <= night.failures.keys()
        assert (harness.scope("sessions").in_flight, harness.executor.live(), harness.executor.unarchived()) == (
            0,
            [],
            [],
        )
        assert [record.exc_info for record in caplog.records if "a pass failed" in record.message] == []
        done_once = Counter(event.unit for event in harness.events("unit.done"))
        assert max(done_once.values()) == 1
