"""Named slots over a restart."""

import asyncio

import msgspec
import pytest

from paceline import Limiter, MaxSessionsExceeded, Slot
from paceline.core import Snapshot
from paceline.errors import InvalidSnapshot, TicketConflict
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


# -- A limiter that is restored from a snapshot --


async def test_nobody_who_waited_before_a_restart_takes_a_place_after_it() -> None:
    """The pause ends while the process is down: its waiters are gone and must not be let in."""
    clock = VirtualClock(start=100.0)
    limiter = Limiter(limits={"umans": 4}, clock=clock)
    limiter.report_rate_limit("umans", retry_after=10.0)

    async def work() -> None:
        async with limiter.slot("umans"):
            pass

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await clock.advance(0)
    again = Limiter(limits={"umans": 4}, clock=VirtualClock(start=120.0), restore=stored(limiter))
    assert again.status().active_runs == 0
    assert isinstance(again.try_acquire("umans"), Slot)
    await limiter.aclose()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_slots_are_numbered_on_after_a_restart() -> None:
    clock = VirtualClock(start=100.0)
    limiter = Limiter(clock=clock)
    first = limiter.try_acquire("umans")
    again = Limiter(clock=clock, restore=stored(limiter))
    second = again.try_acquire("umans")
    assert isinstance(first, Slot)
    assert isinstance(second, Slot)
    assert (first.id, second.id) == ("slot:1", "slot:2")


@pytest.mark.parametrize("snapshot", [{}, b"{}", "later", 5])
def test_what_is_no_snapshot_is_refused_by_name(snapshot: Snapshot) -> None:
    with pytest.raises(InvalidSnapshot, match=str(snapshot)[:3]):
        Limiter(restore=snapshot)
