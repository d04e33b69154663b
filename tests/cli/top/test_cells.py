"""The cells of `top`: what the strip says of the time that is left."""

from zoneinfo import ZoneInfo

import pytest

from paceline.cli.top.cells import TopSnapshot, strip
from paceline.store.interface import UnitTotals
from paceline.views.status import CompletionRate, EngineState, PoolState, StatusSummary, StoppedEngine

NOON = 1_700_049_600.0
HOUR = 3600.0
LEADING = EngineState(state="leading", since=NOON, version="1", pid=1)


@pytest.mark.parametrize(("engine", "eta"), [(LEADING, "ETA 14:00 in 2:00:00"), (StoppedEngine(), None)])
def test_the_end_is_not_before_the_next_resume_and_not_known_without_an_engine(
    engine: EngineState | StoppedEngine, eta: str | None
) -> None:
    status = StatusSummary(
        engine=engine,
        pool=PoolState(sessions=4, running=0, waiting=0, parked=1),
        units=UnitTotals(),
        next_resume_at=NOON + 2 * HOUR,
        gateway=None,
    )
    rate = CompletionRate(per_hour=3, pace=3.0, eta=NOON + HOUR)
    snapshot = TopSnapshot(
        at=NOON, status=status, rate=rate, gateway=None, limits={}, campaigns=(), scopes=(), keys=(), events=()
    )

    text = strip(snapshot, ZoneInfo("UTC"), None).plain

    assert "next resume 14:00 in 2:00:00" in text
    assert ("ETA" in text, eta is None or eta in text) == (eta is not None, True)
