"""A campaign that is deleted while an engine runs leaves nothing behind, and another one may have its name at once."""

from paceline.engine import commands as orders
from paceline.executors import Launch
from paceline.simulation.executor import Run
from paceline.store import UnitCounts
from paceline.testing.engine_harness import House


async def test_its_tickets_leave_the_line() -> None:
    async with House(lambda _: Run(seconds=600.0), pool=1) as house:
        house.add("first", 1)
        house.add("second", 3)
        await house.run(30.0)
        assert house.scope("campaign:second").queued > 0

        orders.delete_campaign(house.store, "second", now=house.clock.now())
        await house.run(30.0)

        assert house.scope("sessions").queued == 0
        assert house.engine.why_lines() == {}


async def test_a_campaign_of_the_same_name_begins_once_the_sessions_of_the_old_one_have_ended() -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=600.0, stop_seconds=8.0) if launch.argv[0] == "old" else Run(seconds=60.0)

    async with House(script, pool=4, heartbeat=1.0) as house:
        house.add("docs", 2, command=("old",), created_at=house.clock.now())
        await house.run(30.0)
        orders.cancel_campaign(house.store, "docs", now=house.clock.now())
        orders.delete_campaign(house.store, "docs", now=house.clock.now())
        house.add("docs", 2, command=("new",), created_at=house.clock.now())

        await house.run(5.0)
        meanwhile = (house.store.counts()["docs"], len(house.executor.live()))
        await house.run(120.0)

        assert meanwhile == (UnitCounts(todo=2), 2)
        assert [launch.argv[0] for launch in house.executor.started] == ["old", "old", "new", "new"]
        assert house.store.counts() == {"docs": UnitCounts(done=2)}
        assert house.scope("sessions").in_flight == 0
