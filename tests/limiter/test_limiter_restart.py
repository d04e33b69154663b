"""A limiter that is restored from a snapshot."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from paceline import Limiter, Slot
from paceline.core import Snapshot
from paceline.errors import InvalidSnapshot
from paceline.testing import VirtualClock

VERSION_1 = Path(__file__).parent / "snapshots" / "version_1.json"


def stored(limiter: Limiter) -> Snapshot:
    return msgspec.json.decode(msgspec.json.encode(limiter.snapshot()), type=Snapshot)


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


async def test_a_snapshot_of_the_first_version_is_restored_with_its_slots_and_sessions() -> None:
    """Its slots are named `slot-1`, ours `slot:1`. One is its session's, the other ends with its lease."""
    snapshot = msgspec.json.decode(VERSION_1.read_bytes(), type=Snapshot)
    clock = VirtualClock(start=110.0)
    limiter = Limiter(limits={"umans": 4}, clock=clock, restore=snapshot)
    assert (limiter.status().active_sessions, limiter.status().active_runs) == (1, 3)
    slot = limiter.try_acquire("umans")
    assert isinstance(slot, Slot)
    assert slot.id == "slot:1"
    limiter.release_session("s2")
    assert limiter.status().active_runs == 3
    limiter.release_session("s1")
    assert (limiter.status().active_sessions, limiter.status().active_runs) == (0, 2)
    slot.release()
    await clock.advance(1000.0)
    assert limiter.status().active_runs == 0
    await limiter.aclose()


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
