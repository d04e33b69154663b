"""Closing a limiter, its clock, and slots that are abandoned."""

import asyncio
import time

import pytest

import paceline.clock
from paceline import CapacityError, Limiter, SlotTimeout
from paceline.core.signals import QuotaClosed, Usage
from paceline.testing import VirtualClock

SOON = 60.0


async def test_closing_does_not_wait_for_a_usage_source_that_will_not_be_cancelled() -> None:
    stop = asyncio.Event()

    async def stubborn() -> Usage | None:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        return Usage(concurrent_sessions=0)

    limiter = Limiter(limits={"umans": 1}, usage={"umans": stubborn})
    held = await limiter.acquire("umans")
    waiting = asyncio.create_task(limiter.acquire("umans"))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(limiter.aclose(), SOON)
    with pytest.raises(CapacityError):
        await waiting
    held.release()
    stop.set()


async def test_a_slot_released_after_closing_arms_no_timer() -> None:
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 1}, cooldown=10.0, clock=clock)
    held = await limiter.acquire("umans")
    await limiter.aclose()
    held.release()
    assert limiter._driver._timer is None


async def test_a_late_answer_of_a_source_that_was_given_up_is_not_taken_for_a_new_one() -> None:
    clock = VirtualClock()
    answers: list[asyncio.Future[Usage]] = []

    async def slow() -> Usage | None:
        answers.append(asyncio.get_running_loop().create_future())
        while True:
            try:
                return await asyncio.shield(answers[0])
            except asyncio.CancelledError:
                continue

    limiter = Limiter(limits={"umans": 2}, usage={"umans": slow}, clock=clock)
    held = [await limiter.acquire("umans"), await limiter.acquire("umans")]
    waiting = asyncio.create_task(limiter.acquire("umans"))
    await clock.advance(6.5)  # the first question was given up, a second one is out
    assert len(answers) > 1
    newest = limiter._driver._polls["umans"]
    answers[0].set_result(Usage(concurrent_sessions=0))
    await clock.advance(0)
    assert newest.done()
    waiting.cancel()
    for slot in held:
        slot.release()
    await limiter.aclose()


async def test_a_clock_that_is_set_back_makes_no_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """LESSONS 33: an hour back must not turn a pause of a tenth of a second into an hour."""
    offset = 0.0

    class Wall:
        @staticmethod
        def time() -> float:
            return time.time() + offset

    monkeypatch.setattr(paceline.clock, "time", Wall)
    monkeypatch.setattr(paceline.clock.SystemClock, "now", staticmethod(Wall.time))
    limiter = Limiter(limits={"umans": 1, "full": 1})
    held = await limiter.acquire("full")
    limiter.report_rate_limit("umans", retry_after=0.2)
    paused = asyncio.create_task(limiter.acquire("umans"))
    late = asyncio.create_task(limiter.acquire("full", timeout=0.2))
    nap = asyncio.create_task(paceline.clock.SystemClock().sleep(0.2))
    await asyncio.sleep(0.02)
    offset = -3600.0
    async with asyncio.timeout(SOON):
        (await paused).release()
        with pytest.raises(SlotTimeout):
            await late
        await nap
    held.release()
    await limiter.aclose()


async def test_a_slot_that_is_abandoned_reopens_no_window() -> None:
    """A canary that never reached the provider says nothing of its quota."""
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 2}, clock=clock)
    limiter.report("umans", QuotaClosed(resets_at=100.0, window="5h"))
    await clock.advance(103.0)

    (await limiter.acquire("umans")).abandon()
    abandoned = limiter.scope_status("umans")
    (await limiter.acquire("umans")).release()
    released = limiter.scope_status("umans")

    assert abandoned is not None
    assert released is not None
    assert [(status.in_flight, status.windows[0].state) for status in (abandoned, released)] == [
        (0, "closed"),
        (0, "wave"),
    ]
    await limiter.aclose()


async def test_cooldowns_list_what_was_set_and_what_scopes_run_on_by_default() -> None:
    limiter = Limiter(cooldown=0.35, clock=VirtualClock())
    limiter.set_cooldown("anthropic", 2.0)
    for scope in ("umans", "anthropic/max-1/opus-4-6"):
        (await limiter.acquire(scope)).release()
    assert limiter.cooldowns() == {
        "anthropic": 2.0,
        "umans": 0.35,
        "anthropic/max-1": 2.0,
        "anthropic/max-1/opus-4-6": 2.0,
    }
    assert limiter.cooldowns().sources == {
        "anthropic": "anthropic",
        "umans": "default",
        "anthropic/max-1": "anthropic",
        "anthropic/max-1/opus-4-6": "anthropic",
    }
    await limiter.aclose()
