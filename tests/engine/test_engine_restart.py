"""An engine that comes back: what still runs is adopted, what ended is collected, what never began goes back."""

from collections import Counter

import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.executors import Launch
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.store import UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, House


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_live_sessions_are_adopted_at_once_and_run_once(how: str) -> None:
    async with House(lambda _: Run(seconds=600.0), pool=3) as house:
        house.add("night", 5)
        await house.run(60.0)
        running = house.running()

        await getattr(house, how)()
        await house.run(60.0)

        assert house.running() == running
        assert house.scope("sessions").in_flight == 3  # they count: nobody is let in on top of them
        assert len(house.launched()) == 3

        await house.run(HOUR)
        assert house.store.counts() == {"night": UnitCounts(done=5)}
        assert Counter(house.launched()) == Counter(f"night/u{n}" for n in range(5))
        assert [house.unit(f"night/u{n}").counters for n in range(5)] == [Counters(tries=1)] * 5


async def test_what_ended_while_no_engine_was_there_is_collected() -> None:
    async with House(lambda launch: Run(exit_code=int(launch.argv[1] == "u1"), seconds=300.0)) as house:
        house.add("night", 2, max_attempts=1)
        await house.run(10.0)

        await house.crash()
        await house.clock.advance(HOUR)
        await house.run(1.0)

        assert house.states() == {"night/u0": "done", "night/u1": "quarantined"}
        assert house.unit("night/u1").exit_code == 1
        assert len(house.launched()) == 2
        assert house.executor.unarchived() == []


async def test_what_was_claimed_but_never_began_goes_back_without_an_attempt() -> None:
    async with House(lambda _: Run(seconds=600.0)) as house:
        house.add("night", 1)
        await house.run(1.0)
        (attempt,) = house.executor.live()

        await house.crash()
        house.executor.forget(attempt)
        await house.run(1.0)

        assert (house.unit("night/u0").state, house.unit("night/u0").counters) == (
            "running",
            Counters(tries=2, losses=1),
        )
        assert len(house.executor.live()) == 1


async def test_a_session_that_is_nobodys_is_ended() -> None:
    async with House(lambda _: Run(seconds=HOUR)) as house:
        house.add("night", 1)
        await house.run(1.0)
        attempts = house.executor.live()

        await house.crash()
        house.store.cancel_units("night", now=house.clock.now())
        await house.run(1.0)

        assert house.executor.stopped == attempts
        assert house.states() == {"night/u0": "cancelled"}


async def test_after_a_reboot_every_unit_goes_on_and_its_conversation_is_resumed() -> None:
    def script(launch: Launch) -> Run:
        session = "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]
        return Run(stdout=init(session) + answer(session), later=((600.0, done(session)),), seconds=600.0)

    async with House(script, pool=3) as house:
        house.add_claude("night", 3)
        await house.run(60.0)

        await house.crash()
        house.executor.reboot()
        await house.run(HOUR)

        assert house.store.counts() == {"night": UnitCounts(done=3)}
        assert [launch.argv[3:5] for launch in house.executor.started[3:]] == [
            ("--resume", "talk-u0"),
            ("--resume", "talk-u1"),
            ("--resume", "talk-u2"),
        ]
        assert [house.unit(f"night/u{n}").counters for n in range(3)] == [Counters(tries=2, losses=1)] * 3


async def test_shares_are_the_same_after_a_restart_as_without_one() -> None:
    async def done_after(restarts: int) -> dict[str, int]:
        async with House(pool=3) as house:
            house.add("low", 300, priority=0)
            house.add("high", 300, priority=1)
            for _ in range(restarts + 1):
                await house.run(60 * 60.0 / (restarts + 1))
                await house.stop()
            return {name: counts.done for name, counts in house.store.counts().items()}

    undisturbed, disturbed = await done_after(0), await done_after(5)
    assert abs(undisturbed["high"] - disturbed["high"]) <= 6
    assert undisturbed == {"low": 60, "high": 120}


async def test_the_lead_is_kept_through_a_long_night() -> None:
    async with House(lambda _: Run(seconds=5 * HOUR)) as house:
        house.add("night", 1)
        await house.run(4 * HOUR)

        assert not house.store.lead("other", until=NOW + 9 * HOUR, now=house.clock.now())
        unit = house.unit("night/u0")
        assert unit.lease_until is not None
        assert unit.lease_until > house.clock.now()


async def test_a_supervisor_that_does_not_answer_is_killed_in_the_end() -> None:
    async with House(lambda _: Run(seconds=9 * HOUR, stop_seconds=9 * HOUR)) as house:
        house.executor.stop = lambda handle, grace=10.0: house.executor.stopped.append(handle.attempt_id)  # type: ignore[method-assign]
        house.add("night", 1)
        await house.run(1.0)

        house.store.cancel_units("night", now=house.clock.now())
        house.change("night", state="cancelled")
        await house.run(300.0)

        assert house.executor.live() == []
        assert len(house.executor.stopped) == 1
        assert house.scope("sessions").in_flight == 0


async def test_an_engine_that_has_stopped_leaves_orders_to_the_next() -> None:
    async with House(pool=3) as house:
        await house.run(1.0)
        stopped = house.engine
        await house.stop()

        house.send("limit", "sessions", limit=2)
        stopped.obey()
        assert stopped.limiter.get_limit("sessions") == 3

        await house.run(1.0)
        assert house.engine.limiter.get_limit("sessions") == 2
