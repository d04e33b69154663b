"""The status: what the engine's state is, and how units are counted."""

import pytest
from tests.views.fleets import NOW, Fleet

from paceline.store import Campaign, UnitCounts
from paceline.store.interface import CampaignState, UnitTotals
from paceline.views.status import (
    VERSION,
    EngineState,
    PoolState,
    StatusSummary,
    StoppedEngine,
    engine_state,
    read_status_summary,
    total_counts,
)

LEADER = EngineState(state="leading", since=NOW - 60, version=VERSION, pid=7)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((), "leading"),
        (("active",), "leading"),
        (("cancelled",), "leading"),
        (("active", "paused"), "leading"),
        (("paused",), "paused"),
        (("paused", "cancelled"), "paused"),
    ],
)
def test_an_engine_is_paused_only_where_resuming_would_start_something(
    states: tuple[CampaignState, ...], expected: str
) -> None:
    campaigns = [Campaign(name=f"c{number}", state=state) for number, state in enumerate(states)]

    assert engine_state(campaigns, LEADER).state == expected


def test_a_home_without_an_engine_is_stopped_and_still_counted() -> None:
    fleet = Fleet()
    fleet.add(Campaign(name="docs"), "a", "b")

    assert read_status_summary(fleet.read(), None, None) == StatusSummary(
        engine=StoppedEngine(),
        pool=PoolState(sessions=4, running=0, waiting=2, parked=0),
        units=UnitTotals(todo=2),
        next_resume_at=None,
        gateway=None,
    )


def test_a_leading_engine_is_shown_with_its_process() -> None:
    status = read_status_summary(Fleet().read(), LEADER, None)

    assert status.engine == EngineState(state="leading", since=NOW - 60, version=VERSION, pid=7)


def test_counts_are_added_up_state_by_state() -> None:
    counts = [UnitCounts(todo=3, parked=1, done=2), UnitCounts(todo=1, held=4)]

    assert total_counts(counts) == UnitCounts(todo=4, parked=1, done=2, held=4)
