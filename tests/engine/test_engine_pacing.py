"""Whole windows in virtual time: spread and reserve on an account that never reports how much is used."""

import pytest
from tests.engine.metered_account import LENGTH, MeteredAccount, metered_house

from paceline.store import SqliteStore
from paceline.testing.engine_harness import HOUR, EngineHarness

HOLDS = 8 * HOUR
PERIODS = 4
ENDING = 0.999
MAX_1 = "anthropic/max-1"


async def live(
    account: MeteredAccount, *, strategy: str, reserve: float = 0.0, restarts: bool = False
) -> EngineHarness:
    """Four periods of a campaign that could use each up within an hour and a half."""
    async with metered_house(account, pool=6, heartbeat=60.0, reserves={MAX_1: reserve} if reserve else {}) as harness:
        harness.add_claude("night", 600, strategy=strategy)
        for _ in range(PERIODS):
            await harness.run(LENGTH - HOUR)
            if restarts:
                await harness.stop()
            await harness.run(HOUR)
        return harness


def done(harness: EngineHarness) -> int:
    return harness.store.counts()["night"].done


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["equal", "heavy-tailed-1", "heavy-tailed-2"])
async def test_spread_uses_the_second_and_later_periods_evenly_and_up(seed: int | None) -> None:
    account = MeteredAccount(HOLDS, seed=seed)

    await live(account, strategy="spread")

    assert account.used_at(0, 0.4) == pytest.approx(1.0)  # nothing was known of the first
    for period in (1, 2, 3):
        used = [account.used_at(period, share) for share in (0.25, 0.5, 0.75)]
        assert used == pytest.approx([0.25, 0.5, 0.8], abs=0.12)
        assert account.used_at(period, ENDING) > 0.99


@pytest.mark.parametrize("strategy", ["rush", "spread"])
@pytest.mark.parametrize("seed", [None, 1, 2], ids=["equal", "heavy-tailed-1", "heavy-tailed-2"])
async def test_the_reserve_is_untouched_from_the_second_period_on_and_no_more_than_that_is_left(
    strategy: str, seed: int | None
) -> None:
    account = MeteredAccount(HOLDS, seed=seed)

    harness = await live(account, strategy=strategy, reserve=0.25)

    for period in (1, 2, 3):
        assert 0.73 < account.used_at(period, ENDING) < 0.76
    assert harness.failures() == 0


async def test_tokens_that_the_agent_tells_are_what_counts_where_the_provider_counts_them() -> None:
    account = MeteredAccount(HOLDS / 60.0 * 1_000, tokens=1_000)

    await live(account, strategy="spread", reserve=0.25)

    for period in (1, 2, 3):
        assert account.used_at(period, 0.5) == pytest.approx(0.4, abs=0.08)
        assert 0.73 < account.used_at(period, ENDING) < 0.76


async def test_spreading_loses_nothing_that_rushing_gets_done() -> None:
    rushed = await live(MeteredAccount(HOLDS), strategy="rush")
    spread = await live(MeteredAccount(HOLDS), strategy="spread")

    assert done(spread) >= done(rushed) - 6  # those that are still under way


async def test_what_was_learnt_survives_restarts_in_every_period() -> None:
    account = MeteredAccount(HOLDS)

    await live(account, strategy="spread", reserve=0.25, restarts=True)

    for period in (1, 2, 3):
        assert account.used_at(period, 0.5) == pytest.approx(0.4, abs=0.08)
        assert account.used_at(period, ENDING) < 0.77


async def test_a_session_that_reaches_the_reserve_is_parked_with_its_conversation_and_says_why() -> None:
    account = MeteredAccount(HOLDS, minutes=120.0)
    async with metered_house(account, pool=6, reserves={MAX_1: 0.25}) as harness:
        harness.add_claude("night", 100)

        await harness.run(LENGTH + 2 * HOUR)

        parked = [unit for unit in harness.store.units(state="todo").units if unit.resume_at is not None]
        assert {unit.reason for unit in parked} == {"the rest of the 5h window is kept in reserve"}
        (resume_at,) = {unit.resume_at for unit in parked}
        assert resume_at == pytest.approx(account.openings[1] + LENGTH, abs=60.0)
        assert all(unit.conversation_id is not None and unit.counters.failures == 0 for unit in parked)
        assert harness.scope(MAX_1).windows[0].state == "open"  # nobody has met a closed one
        await harness.run(LENGTH)
        assert done(harness) > 0


class NotingStore(SqliteStore):
    """Notes what is saved."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.saved: list[str] = []

    def save_state(self, key: str, value: bytes) -> None:
        self.saved.append(key)
        super().save_state(key, value)


async def test_a_line_that_is_reached_a_little_later_at_every_look_is_not_stored_at_every_look() -> None:
    store = NotingStore()
    async with metered_house(MeteredAccount(HOLDS), pool=6, heartbeat=5.0, store=store) as harness:
        harness.add_claude("night", 600, strategy="spread")
        await harness.run(LENGTH + HOUR)
        store.saved.clear()

        await harness.run(1200.0)

        assert 0 < store.saved.count("why") < 60  # of 240 passes
