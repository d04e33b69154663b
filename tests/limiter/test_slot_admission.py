"""One `slot(...)` block: its callbacks, and its use twice."""

import asyncio

import pytest
from tests.limiter.waiting_tasks import WaitingTasks, in_flight, limiter_with

from paceline import (
    CapacityError,
    Limiter,
    Slot,
    SlotTimeout,
)
from paceline.testing import VirtualClock


async def test_on_queued_may_release_the_slot_that_is_waited_for() -> None:
    limiter = Limiter(limits={"umans": 1})
    held = await limiter.acquire("umans")
    slot = await limiter.acquire("umans", timeout=60.0, on_queued=lambda _: held.release())
    slot.release()
    assert limiter._slots._waits == {}


async def test_on_queued_that_raises_leaves_the_line() -> None:
    def refuse(_: object) -> None:
        raise KeyError("no")

    limiter = Limiter(limits={"umans": 1})
    held = await limiter.acquire("umans")
    with pytest.raises(KeyError):
        await limiter.acquire("umans", timeout=60.0, on_queued=refuse)
    status = limiter.scope_status("umans")
    assert status is not None
    assert status.queued == 0
    held.release()


async def test_one_slot_context_entered_twice_at_once_is_refused_and_leaks_nothing() -> None:
    limiter = Limiter(limits={"umans": 2})
    context = limiter.slot("umans")

    async def work() -> None:
        async with context:
            await asyncio.sleep(0.01)

    outcomes = await asyncio.gather(work(), work(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), RuntimeError]
    await work()  # one after the other is well
    assert limiter.status().active_runs == 0


async def test_a_slot_context_can_be_used_again_after_its_wait_ran_out() -> None:
    limiter = Limiter(limits={"umans": 1})
    context = limiter.slot("umans", timeout=0.01)
    held = await limiter.acquire("umans")
    with pytest.raises(SlotTimeout):
        await context.__aenter__()
    held.release()
    async with context:
        assert limiter.status().active_runs == 1
    assert limiter.status().active_runs == 0


# -- The end of a wait: a grant, a time-out, a cancellation, or the limiter's close --


async def test_lesson_12_closing_leaves_no_waiter_pending() -> None:
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 1}, clock=clock)
    crowd = WaitingTasks(limiter, clock)
    await crowd.ask("a", "b", "c")
    await limiter.aclose()
    await clock.advance(0)
    ends = [type(crowd.tasks[name].exception()) for name in ("b", "c")]
    assert ends == [CapacityError, CapacityError]


async def test_lesson_12_a_cancelled_wait_sends_nothing() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 1}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b", "c")
        crowd.tasks["b"].cancel()
        await clock.advance(0)
        crowd.slot("a").release()
        await clock.advance(1.0)
        assert crowd.names() == ["a", "c"]
        crowd.slot("c").release()
        assert in_flight(limiter) == 0


async def test_lesson_12_a_wait_cancelled_in_the_tick_of_its_grant_leaks_nothing() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 1}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b", "c")
        crowd.slot("a").release()
        crowd.tasks["b"].cancel()
        await clock.advance(1.0)
        assert crowd.tasks["b"].cancelled() or "b" in crowd.names()
        if "b" in crowd.names():
            crowd.slot("b").release()
            await clock.advance(0)
        assert "c" in crowd.names()
        crowd.slot("c").release()
        assert in_flight(limiter) == 0


async def test_lesson_12_waiting_has_a_deadline() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 1}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a")
        await crowd.ask("b", timeout=5.0)
        await clock.advance(4.9)
        assert not crowd.tasks["b"].done()
        await clock.advance(0.2)
        assert type(crowd.tasks["b"].exception()) is SlotTimeout
        crowd.slot("a").release()
        assert isinstance(limiter.try_acquire("umans"), Slot), "who timed out is out of the queue"
