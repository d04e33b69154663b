"""Campaigns that are deleted while an engine runs, and sessions for which the machine has no room."""

from paceline.engine import commands as orders
from paceline.errors import NoRoomForSession
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import UnitCounts
from paceline.testing.engine_harness import EngineHarness


async def test_its_tickets_leave_the_line() -> None:
    async with EngineHarness(lambda _: Run(seconds=600.0), pool=1) as harness:
        harness.add("first", 1)
        harness.add("second", 3)
        await harness.run(30.0)
        assert harness.scope("campaign:second").queued > 0

        orders.delete_campaign(harness.store, "second", now=harness.clock.now())
        await harness.run(30.0)

        assert harness.scope("sessions").queued == 0
        assert harness.engine.wait_reasons() == {}


async def test_a_campaign_of_the_same_name_begins_once_the_sessions_of_the_old_one_have_ended() -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=600.0, stop_seconds=8.0) if launch.argv[0] == "old" else Run(seconds=60.0)

    async with EngineHarness(script, pool=4, heartbeat=1.0) as harness:
        harness.add("docs", 2, command=("old",), created_at=harness.clock.now())
        await harness.run(30.0)
        orders.cancel_campaign(harness.store, "docs", now=harness.clock.now())
        orders.delete_campaign(harness.store, "docs", now=harness.clock.now())
        harness.add("docs", 2, command=("new",), created_at=harness.clock.now())

        await harness.run(5.0)
        meanwhile = (harness.store.counts()["docs"], len(harness.executor.live()))
        await harness.run(120.0)

        assert meanwhile == (UnitCounts(todo=2), 2)
        assert [launch.argv[0] for launch in harness.executor.started] == ["old", "old", "new", "new"]
        assert harness.store.counts() == {"docs": UnitCounts(done=2)}
        assert harness.scope("sessions").in_flight == 0


async def test_a_machine_without_room_for_sessions_costs_no_unit_an_attempt_or_a_loss() -> None:
    """The disk is full for ten minutes. The engine starts nothing every ten seconds, not at every pass."""
    refused: list[float] = []

    def script(_launch: Launch) -> Run:
        if harness.clock.now() < full_until:
            refused.append(harness.clock.now())
            raise NoRoomForSession("no session can be started now: the disk is full; free some space")
        return Run(seconds=60.0)

    async with EngineHarness(script, pool=4, heartbeat=1.0) as harness:
        full_until = harness.clock.now() + 600.0
        harness.add("docs", 40)
        await harness.run(2 * 3600.0)

        units = harness.store.units(campaign="docs").units
        assert {unit.state for unit in units} == {"done"}
        assert {(unit.counters.failures, unit.counters.losses, unit.counters.refusals) for unit in units} == {(0, 0, 0)}
        assert len(refused) <= 4 * 61
        assert harness.scope("sessions").in_flight == 0
