"""Admission, order and learnt limits through the limiter, in virtual time."""

import asyncio

import pytest
from tests.limiter.waiting_tasks import WaitingTasks, in_flight, limiter_with

from paceline import (
    Deferred,
    InvalidLimit,
    Limiter,
    Slot,
)
from paceline.core.signals import Overloaded, PlatformLimit, RateLimited
from paceline.testing import VirtualClock


async def test_lesson_05_deleting_the_limit_and_setting_it_again_forgets_no_live_slot() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 4}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b", "c", "d")
        limiter.remove_limit("umans")
        limiter.set_limit("umans", 4)
        await crowd.ask("e")
        assert crowd.names() == ["a", "b", "c", "d"]
        assert in_flight(limiter) == 4


async def test_lesson_06_six_dispatchers_in_one_tick_start_four() -> None:
    clock = VirtualClock()
    started = 0

    async def dispatch(limiter: Limiter) -> None:
        nonlocal started
        async with limiter.slot("umans"):
            started += 1
            await clock.sleep(60.0)

    async with limiter_with(clock, limits={"umans": 4}) as limiter:
        tasks = [asyncio.create_task(dispatch(limiter)) for _ in range(6)]
        await clock.advance(1.0)
        assert started == 4
        await clock.advance(200.0)
        assert all(task.done() for task in tasks)
        assert started == 6


async def test_lesson_08_a_slot_without_a_resolved_model_passes_no_cap() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"anthropic/*/opus-*": 1}) as limiter:
        assert isinstance(limiter.try_acquire("anthropic/max-1"), Slot)
        unnamed = limiter.try_acquire("anthropic/max-1")
        assert isinstance(unnamed, Deferred)
        assert unnamed.detail == "the strictest model cap (1/1) on max-1 is reached; no model was named"
        assert isinstance(limiter.try_acquire("anthropic/max-1/claude-opus-4-6-20260105"), Slot)
        refused = limiter.try_acquire("anthropic/max-1/opus-4-6")
        assert isinstance(refused, Deferred)
        assert refused.detail == "opus-4-6 at its cap (1/1) on max-1"


@pytest.mark.parametrize("limit", [0, -1, "10", "abc", 4.5, True])
async def test_lesson_09_bad_limits_are_refused_by_every_call(limit: object) -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 4}) as limiter:
        with pytest.raises(InvalidLimit):
            limiter.set_limit("umans", limit)  # type: ignore[arg-type]
        assert limiter.get_limit("umans") == 4
    for settings in ({"max_parallel_sessions": limit}, {"max_parallel_runs": limit}, {"limits": {"umans": limit}}):
        with pytest.raises(InvalidLimit):
            Limiter(clock=clock, **settings)


async def test_lesson_10_a_full_limiter_lets_the_queue_wait() -> None:
    clock = VirtualClock()
    done: list[int] = []

    async def work(limiter: Limiter, number: int) -> None:
        async with limiter.slot("umans"):
            await clock.sleep(1.0)
            done.append(number)

    async with limiter_with(clock, limits={"umans": 2}) as limiter:
        tasks = [asyncio.create_task(work(limiter, number)) for number in range(10)]
        await clock.advance(5.0)
        assert done == list(range(10))
        assert all(task.done() for task in tasks)


async def test_lesson_13_an_old_agent_cannot_starve_a_younger_one() -> None:
    clock = VirtualClock(start=10_000.0)
    turns: list[str] = []

    async def agent(limiter: Limiter, name: str, since: float) -> None:
        while len(turns) < 50:
            async with limiter.slot("umans", since=since):
                turns.append(name)
                await clock.sleep(3.0)

    async with limiter_with(clock, limits={"umans": 1}, cooldown=0.5) as limiter:
        tasks = [asyncio.create_task(agent(limiter, "old", 1.0))]
        await clock.advance(0.1)
        tasks.append(asyncio.create_task(agent(limiter, "young", clock.now())))
        await clock.advance(200.0)
        first = turns.index("young")
        assert first <= 60.0 / 3.5 + 2, f"the younger one waited {first} turns"
        assert [task.done() for task in tasks] == [True, True]


async def test_lesson_15_eight_streams_of_one_incident_step_once() -> None:
    clock = VirtualClock()

    async def stream(limiter: Limiter) -> None:
        async with limiter.slot("umans") as slot:
            await clock.sleep(1.0)
            slot.rate_limited(retry_after=5.0)

    async with limiter_with(clock, limits={"umans": 8}) as limiter, asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(stream(limiter))
        await clock.advance(2.0)
        status = limiter.scope_status("umans")
        assert status is not None
        assert (status.limit, status.configured, status.auto_reduced_from) == (7, 8, 8)
        assert status.notice is not None


async def test_lesson_16_the_providers_own_trouble_leaves_the_limit_alone() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 8}) as limiter:
        async with limiter.slot("umans") as slot:
            slot.overloaded()
        limiter.report("umans", Overloaded())
        status = limiter.scope_status("umans")
        assert status is not None
        assert (status.limit, status.paused, status.auto_reduced) == (8, True, False)


async def test_lesson_17_pauses_only_extend() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 8}) as limiter:
        limiter.report_rate_limit("umans", retry_after=60.0)
        limiter.report_rate_limit("umans", retry_after=5.0)
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a")
        await clock.advance(59.9)
        assert crowd.names() == []
        await clock.advance(0.2)
        assert crowd.entered == [("a", 60.0)]


async def test_lesson_18_a_429_of_a_provider_without_a_limit_pauses() -> None:
    clock = VirtualClock()
    async with limiter_with(clock) as limiter:
        limiter.report("umans", RateLimited(retry_after=10.0))
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a")
        await clock.advance(20.0)
        assert crowd.entered == [("a", 10.0)]


async def test_lesson_19_a_platform_limit_is_floored_at_one() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 8}) as limiter:
        limiter.report("umans", PlatformLimit(limit=0, in_use=3))
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b")
        await clock.advance(3600.0)
        assert crowd.names()[0] == "a"


async def test_lesson_20_a_call_that_meets_429_at_once_does_not_loop() -> None:
    clock = VirtualClock()
    starts: list[float] = []

    async def stubborn(limiter: Limiter) -> None:
        while True:
            async with limiter.slot("umans") as slot:
                starts.append(clock.now())
                slot.rate_limited()

    async with limiter_with(clock, limits={"umans": 4}) as limiter:
        task = asyncio.create_task(stubborn(limiter))
        await clock.advance(3600.0)
        task.cancel()
        await clock.advance(0)
        assert 10 <= len(starts) <= 121


async def test_lesson_22_the_configured_limit_is_never_overwritten() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 8}) as limiter:
        limiter.report_rate_limit("umans")
        assert limiter.get_limit("umans") == 8
        assert limiter.limits() == {"umans": 8} | {k: v for k, v in limiter.limits().items() if k != "umans"}
        limiter.set_limit("umans", 8)
        status = limiter.scope_status("umans")
        assert status is not None
        assert (status.limit, status.adaptive, status.auto_reduced) == (8, None, False)
