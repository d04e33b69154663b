"""Named slots over a restart."""

import msgspec
import pytest

from paceline import Limiter, MaxSessionsExceeded, Slot
from paceline.core import Snapshot
from paceline.errors import TicketConflict
from paceline.testing import VirtualClock


def stored(limiter: Limiter) -> Snapshot:
    return msgspec.json.decode(msgspec.json.encode(limiter.snapshot()), type=Snapshot)


def test_runs_and_slots_without_a_session_of_their_own_keep_their_owner_over_a_restart() -> None:
    clock = VirtualClock(start=100.0)
    limiter = Limiter(limits={"umans": 4}, clock=clock)
    limiter.acquire_run("s1", "r1")
    limiter.try_acquire("umans", session="s1")
    again = Limiter(limits={"umans": 4}, clock=clock, restore=stored(limiter))
    with pytest.raises(TicketConflict, match="'s1'"):
        again.acquire_run("s2", "r1")
    assert again.status().active_runs == 2
    again.release_session("s1")
    assert again.status().active_runs == 0


async def test_a_named_place_that_was_given_on_after_a_restart_is_asked_for_anew() -> None:
    """It was answered as held, and two held the one place."""
    clock = VirtualClock(start=100.0)
    limiter = Limiter(max_parallel_sessions=1, clock=clock)
    limiter.acquire_session("s1")
    again = Limiter(max_parallel_sessions=1, clock=clock, restore=stored(limiter))
    await clock.advance(1000.0)
    again.acquire_session("s2")
    with pytest.raises(MaxSessionsExceeded):
        again.acquire_session("s1")
    again.release_session("s2")
    again.acquire_session("s1")
    assert again.status().active_sessions == 1


async def test_a_session_acquired_after_its_runs_lets_them_use_its_place() -> None:
    limiter = Limiter(limits={"umans": 1}, clock=VirtualClock())
    (await limiter.acquire("umans", session="s1")).release()
    limiter.acquire_session("s1", scope="umans")
    assert isinstance(limiter.try_acquire("umans", session="s1"), Slot)
