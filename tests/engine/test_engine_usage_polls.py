"""A provider that reports its own count: the engine polls it, and starts no more than the answer leaves room for."""

from itertools import pairwise

from tests.engine.session.test_session_monitor_outcome import MINUTE, works

from paceline.core.signals import Usage
from paceline.testing.engine_harness import EngineHarness


class Provider:
    """Counts two sessions of someone else on the same account, and allows three."""

    def __init__(self) -> None:
        self.harness: EngineHarness | None = None
        self.asked = 0

    async def count(self) -> Usage:
        assert self.harness is not None
        self.asked += 1
        return Usage(concurrent_sessions=2 + len(self.harness.running()), limit=3)


async def test_while_units_wait_the_provider_is_asked_and_no_more_start_than_its_count_leaves() -> None:
    provider = Provider()
    async with EngineHarness(works, pool=8, heartbeat=1.0, usage={"anthropic": provider.count}) as harness:
        provider.harness = harness
        harness.add_claude("night", 3)

        await harness.run(10 * MINUTE)

        starts = [event.at for event in harness.events("unit.started")]
        assert [later - earlier >= MINUTE for earlier, later in pairwise(starts)] == [True, True]
        assert harness.scope("anthropic").platform == 3
        assert provider.asked > 60


async def test_a_source_that_fails_is_unknown_and_holds_nothing_up_for_good() -> None:
    async def broken() -> Usage:
        raise OSError("no route")

    async with EngineHarness(works, heartbeat=1.0, limits={"anthropic": 1}, usage={"anthropic": broken}) as harness:
        harness.add_claude("night", 3)

        await harness.run(10 * MINUTE)

        assert sorted(harness.states().values()) == ["done"] * 3
