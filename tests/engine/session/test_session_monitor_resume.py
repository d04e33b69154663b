"""A long wait: everybody is parked until the reset, one unit looks earlier, and an early reopening wakes the rest."""

from tests.engine.session.test_session_monitor_outcome import Window, house_with

from paceline.core.gates.reopening import first_look
from paceline.store import UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

RESET = NOW + 4 * HOUR
LOOK_SECONDS = 60.0
"""A session is served or refused, and the engine has seen it."""


def resume_times(harness: EngineHarness) -> list[float | None]:
    return [unit.resume_at for unit in harness.store.units().units]


async def test_of_those_parked_for_hours_one_looks_after_45_minutes_and_the_others_wait_for_the_reset() -> None:
    window = Window(left=0, resets_at=RESET)
    async with house_with(window, pool=4) as harness:
        harness.add_claude("night", 4)

        await harness.run(LOOK_SECONDS)

        early, *others = sorted(at or 0.0 for at in resume_times(harness))
        assert NOW + 2700.0 <= early <= NOW + 2700.0 + LOOK_SECONDS
        assert others == [first_look(RESET)] * 3
        assert harness.store.counts() == {"night": UnitCounts(todo=4, parked=4)}

        await harness.run(3600.0)  # it looked, found the window closed, and will look again

        assert len(harness.launched()) == 5
        assert harness.store.counts() == {"night": UnitCounts(todo=4, parked=4)}
        assert harness.failures() == 0


async def test_a_window_that_reopens_early_is_noticed_and_everybody_goes_on() -> None:
    window = Window(left=0, resets_at=RESET)
    async with house_with(window, pool=4) as harness:
        harness.add_claude("night", 4)
        await harness.run(LOOK_SECONDS)
        window.left = 100  # the provider has given more

        await harness.run(3600.0)

        assert harness.store.counts() == {"night": UnitCounts(done=4)}
        assert harness.failures() == 0


async def test_at_the_reset_all_go_on_though_the_early_looks_were_in_vain() -> None:
    async with house_with(Window(left=0, resets_at=RESET), pool=4) as harness:
        harness.add_claude("night", 4)

        await harness.run(RESET - NOW + 600.0)

        assert harness.store.counts() == {"night": UnitCounts(done=4)}
        assert harness.failures() == 0
