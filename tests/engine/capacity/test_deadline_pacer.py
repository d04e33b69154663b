"""A deadline picks the gentlest pace that makes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.metered_account import LENGTH, MeteredAccount, metered_house

from paceline.core import Deferred, Governor
from paceline.engine.capacity.deadline_pacer import DeadlinePacer, Quota
from paceline.engine.settings import CampaignAccounts
from paceline.store import Campaign, SqliteStore, Unit, UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

NIGHTLY = Campaign(name="nightly", deadline=10 * HOUR)


def deadlines() -> DeadlinePacer:
    governor = Governor(now=0.0)
    store = SqliteStore.in_memory()
    store.add_campaign(NIGHTLY, [], update=False, now=0.0)
    return DeadlinePacer(store, governor, CampaignAccounts({}, {}))


def took(seconds: float, name: str = "a", *, started_at: float = 0.0) -> tuple[Campaign, Unit, float]:
    unit = Unit(id=f"nightly/{name}", campaign="nightly", spec=UnitSpec(id=name), position=0, started_at=started_at)
    return NIGHTLY, unit, started_at + seconds


def sessions(made: DeadlinePacer, todo: int, running: int = 0, *, now: float = 0.0) -> int | None:
    pace = made.pace(NIGHTLY, UnitCounts(todo=todo, running=running), now)
    return None if pace is None else pace.live


# -- the arithmetic ----------------------------------------------------------------------------------------


def test_as_many_sessions_as_the_work_left_needs_in_the_time_left() -> None:
    made = deadlines()
    made.on_attempt(*took(HOUR / 2), is_done=True)

    assert (sessions(made, 50), sessions(made, 46, 4, now=8 * HOUR)) == (3, 15)


def test_it_says_with_numbers_what_is_enough_and_when_that_changes_at_the_latest() -> None:
    made = deadlines()
    made.on_attempt(*took(HOUR / 2), is_done=True)

    pace = made.pace(NIGHTLY, UnitCounts(todo=48, running=2), 0.0)

    assert pace is not None
    assert pace.until == pytest.approx(0.0)  # three at once are just enough
    words = "held to the pace of its deadline, 1970-01-01 10:00 UTC: 50 units are left, about 30 min each"
    assert pace.detail == f"{words}, and 3 sessions at once make it"


def test_flat_out_without_a_deadline_after_a_missed_one_and_before_anything_is_known() -> None:
    made = deadlines()
    unknown = sessions(made, 50)
    made.on_attempt(*took(HOUR), is_done=True)

    assert unknown is None
    assert sessions(made, 50, now=11 * HOUR) is None
    assert made.pace(Campaign(name="nightly"), UnitCounts(todo=50), 0.0) is None


def test_the_mean_follows_the_units() -> None:
    made = deadlines()
    made.on_attempt(*took(100.0), is_done=True)
    for _ in range(50):
        made.on_attempt(*took(400.0), is_done=True)

    assert sessions(made, 750) == 10


def test_what_a_unit_took_is_the_sum_of_its_tries() -> None:
    made = deadlines()
    made.on_attempt(*took(300.0), is_done=False)
    before = sessions(made, 750)
    made.on_attempt(*took(100.0, started_at=HOUR), is_done=True)

    assert (before, sessions(made, 750)) == (None, 10)


@given(
    st.floats(0.0, 1e5), st.floats(0.0, 2e4), st.floats(1.0, 1e5), st.floats(60.0, 1e6), st.floats(1.0, 1e6),
    st.integers(1, 50),
)  # fmt: skip
def test_more_sessions_never_get_less_out_of_a_window_and_never_more_than_it_holds(
    left: float, resets_in: float, size: float, length: float, time_left: float, at_once: int
) -> None:
    quota = Quota(min(left, size), resets_in, size, length)

    few, more = (quota.usable(n, 0.0, time_left) for n in (at_once, at_once + 1))

    assert 0.0 <= few <= more + 1e-6
    assert few <= at_once * time_left + 1e-3
    assert more <= size * (2 + max(0.0, time_left - resets_in) / length) + 1e-3


# -- in an engine -------------------------------------------------------------------------------------------


async def test_units_that_are_held_back_for_a_deadline_say_so_until_it_is_their_turn() -> None:
    async with EngineHarness(pool=10) as harness:
        harness.add("nightly", 20, deadline=NOW + 10 * HOUR)

        await harness.run(150.0)
        held_back = harness.engine.wait_reasons()
        running = len(harness.running())
        harness.change("nightly", deadline=None)
        await harness.run(30.0)

        assert running == 1
        (why,) = held_back.values()
        words = "held to the pace of its deadline, 2026-11-15 11:20 UTC: 9 units are left, about 60 s each"
        detail = f"{words}, and 1 session at a time makes it"
        until = NOW + 10 * HOUR - 9 * 60.0 * 1.2
        assert why == Deferred(why.ticket_id, "pacing", "campaign:nightly", detail, why.retry_at, 1)
        assert why.retry_at == pytest.approx(until)
        assert harness.engine.wait_reasons() == {}


async def test_two_accounts_do_not_double_the_pace_and_say_the_same() -> None:
    async with EngineHarness(pool=10) as harness:
        harness.add("nightly", 60, deadline=NOW + 10 * HOUR, accounts=("max-1", "max-2"), model="opus-4-6")
        await harness.run(90.0)
        most = 0

        for _ in range(20):
            await harness.run(30.0)
            most = max(most, len(harness.running()))

        assert most == 1
        assert [(line, why.reason) for line, why in harness.engine.wait_reasons().items()] == [
            ("nightly max-1", "pacing"),
            ("nightly max-2", "pacing"),
        ]


async def test_the_pace_is_known_at_once_after_a_restart() -> None:
    async with EngineHarness(pool=10) as harness:
        harness.add("nightly", 40, deadline=NOW + 10 * HOUR)
        await harness.run(150.0)
        await harness.stop()

        await harness.run(31.0)

        assert len(harness.running()) == 1


async def test_it_is_made() -> None:
    async with EngineHarness(pool=10) as harness:
        harness.add("nightly", 200, deadline=NOW + 2 * HOUR)

        await harness.run(2 * HOUR)

        assert harness.store.counts()["nightly"] == UnitCounts(done=200)


async def test_with_a_window_that_would_close_first_it_goes_as_fast_as_needed_while_that_is_open() -> None:
    """Ten hours of work in five and a half: three at once would do, but for the window, which holds only eight hours.

    So what is left is for the half hour after its reset, and that needs more than three.
    """
    async with metered_house(MeteredAccount(8 * HOUR), pool=8) as harness:
        harness.add_claude("before", 49)  # a period from its opening to its closing
        await harness.run(LENGTH)
        harness.add_claude("nightly", 60, deadline=harness.clock.now() + LENGTH + HOUR / 2)

        await harness.run(15 * 60.0)
        at_once = len(harness.running())
        await harness.run(LENGTH + HOUR / 4)

        assert at_once == 8
        assert harness.store.counts()["nightly"] == UnitCounts(done=60)


async def test_with_a_window_that_lasts_it_stays_gentle() -> None:
    async with metered_house(MeteredAccount(8 * HOUR), pool=8) as harness:
        harness.add_claude("before", 49)
        await harness.run(LENGTH)
        harness.add_claude("nightly", 30, deadline=harness.clock.now() + LENGTH - HOUR)
        await harness.run(15 * 60.0)

        at_once = []
        for _ in range(6):
            await harness.run(20 * 60.0)
            at_once.append(len(harness.running()))
        await harness.run(LENGTH - 3.25 * HOUR)

        assert max(at_once) == 2
        assert harness.store.counts()["nightly"] == UnitCounts(done=30)


async def test_a_campaign_that_was_deleted_leaves_no_pace_to_the_next_of_its_name() -> None:
    async with EngineHarness(pool=10) as harness:
        harness.add("nightly", 20, deadline=NOW + 10 * HOUR)
        await harness.run(150.0)
        harness.change("nightly", state="paused")
        await harness.run(120.0)
        harness.store.delete_campaign("nightly")
        harness.send("campaigns")
        await harness.run(30.0)
        harness.add("nightly", 20)

        await harness.run(30.0)

        assert len(harness.running()) == 10
