"""A deadline picks the gentlest pace that makes it."""

from paceline.core import Deferred
from paceline.engine.deadlines import Deadlines
from paceline.store import Campaign, UnitCounts
from paceline.testing.house import HOUR, NOW, House

NIGHTLY = Campaign(name="nightly", deadline=10 * HOUR)


def test_as_many_sessions_as_the_work_left_needs_in_the_time_left() -> None:
    deadlines = Deadlines()
    deadlines.on_try("nightly", HOUR / 2)

    early = deadlines.sessions_needed(NIGHTLY, UnitCounts(todo=50, running=0), now=0.0)
    late = deadlines.sessions_needed(NIGHTLY, UnitCounts(todo=46, running=4), now=8 * HOUR)

    assert (early, late) == (3, 15)


def test_flat_out_without_a_deadline_after_a_missed_one_and_before_anything_is_known() -> None:
    deadlines = Deadlines()
    unknown = deadlines.sessions_needed(NIGHTLY, UnitCounts(todo=50), now=0.0)
    deadlines.on_try("nightly", HOUR)

    assert unknown is None
    assert deadlines.sessions_needed(NIGHTLY, UnitCounts(todo=50), now=11 * HOUR) is None
    assert deadlines.sessions_needed(Campaign(name="nightly"), UnitCounts(todo=50), now=0.0) is None


def test_the_mean_follows_the_tries() -> None:
    deadlines = Deadlines()
    deadlines.on_try("nightly", 100.0)
    for _ in range(50):
        deadlines.on_try("nightly", 400.0)

    needed = deadlines.sessions_needed(NIGHTLY, UnitCounts(todo=750), now=0.0)

    assert needed == 10


async def test_units_that_are_held_back_for_a_deadline_say_so_until_it_is_their_turn() -> None:
    async with House(pool=10) as house:
        house.add("nightly", 20, deadline=NOW + 10 * HOUR)

        await house.run(150.0)
        held_back = house.engine.why_lines()
        running = len(house.running())
        house.change("nightly", deadline=None)
        await house.run(30.0)

        assert running == 1
        detail = "held to the pace of its deadline, 2026-11-15 11:20 UTC"
        assert held_back == {"nightly ": Deferred("", "pacing", "campaign:nightly", detail)}
        assert house.engine.why_lines() == {}


async def test_on_each_of_its_accounts() -> None:
    async with House(pool=10) as house:
        house.add("nightly", 20, deadline=NOW + 10 * HOUR, accounts=("max-1", "max-2"), model="opus-4-6")

        await house.run(150.0)

        assert [(line, why.reason) for line, why in house.engine.why_lines().items()] == [
            ("nightly max-1", "pacing"),
            ("nightly max-2", "pacing"),
        ]
