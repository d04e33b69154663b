"""A deadline picks the gentlest pace that makes it."""

from paceline.engine.deadlines import Deadlines
from paceline.store import Campaign, UnitCounts

HOUR = 3600.0
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
