"""A campaign that is deleted while an engine runs leaves nothing behind, and another one may have its name at once."""

from paceline.engine import commands as orders
from paceline.executors import Launch
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
