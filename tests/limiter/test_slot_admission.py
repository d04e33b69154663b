"""One `slot(...)` block: its callbacks, and its use twice."""

import asyncio

import pytest

from paceline import Limiter, SlotTimeout


async def test_on_queued_may_release_the_slot_that_is_waited_for() -> None:
    limiter = Limiter(limits={"umans": 1})
    held = await limiter.acquire("umans")
    slot = await limiter.acquire("umans", timeout=60.0, on_queued=lambda _: held.release())
    slot.release()
    assert limiter._waiters._timeouts == {}


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
