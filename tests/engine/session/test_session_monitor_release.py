"""When the slot of a session is released."""

from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, EngineHarness


async def test_lesson_34_a_slot_is_given_on_only_when_its_session_is_over() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR, stop_seconds=9.0), pool=1, heartbeat=1.0) as harness:
        harness.add("night", 1)
        harness.add("next", 1)
        await harness.run(5.0)

        harness.store.cancel_units("night", now=harness.clock.now())
        harness.change("night", state="cancelled")
        await harness.run(5.0)
        assert (harness.executor.live(), harness.running()) == (["engine1-1"], [])  # asked to end, not gone yet

        await harness.run(10.0)
        assert harness.running() == ["next/u0"]


async def test_lesson_36_every_slot_comes_back_however_a_session_ends() -> None:
    ends = [
        Run(),
        Run(exit_code=1),
        Run(exit_code=75),
        Run(signal=9),
        Run(not_started="no such program"),
        Run(stderr="Error: 429 Too Many Requests\n", exit_code=1),
        Run(stdout="half a li", exit_code=1),
    ]
    async with EngineHarness(lambda launch: ends[int(launch.argv[1][1:]) % len(ends)], pool=3) as harness:
        harness.add("night", 30, max_attempts=1)
        await harness.run(2 * HOUR)

        assert (harness.scope("sessions").in_flight, harness.scope("campaign:night").in_flight) == (0, 0)
        assert set(harness.launched()) == {f"night/u{n}" for n in range(30)}
