"""A limiter over a provider that reports its own count."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.limiter.waiting_tasks import WaitingTasks, limiter_with

from paceline import (
    Deferred,
)
from paceline.core.signals import Usage
from paceline.testing import VirtualClock


async def test_lesson_01_one_usage_reading_lets_in_only_what_it_leaves() -> None:
    clock = VirtualClock()
    readings = [Usage(concurrent_sessions=4), Usage(concurrent_sessions=3)]
    asked: list[float] = []

    async def fetch() -> Usage | None:
        asked.append(clock.now())
        return readings[min(len(asked), len(readings)) - 1]

    async with limiter_with(clock, limits={"umans": 4}, usage={"umans": fetch}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b", "c", "d")
        await clock.advance(2.0)
        assert asked == [], "where nobody waits no poll is made"
        await crowd.ask("x", "y", "z")
        for name in ("a", "b", "c"):
            crowd.slot(name).release()
        await clock.advance(0.3)
        assert crowd.names() == ["a", "b", "c", "d", "x"]


async def test_lesson_02_a_newcomer_does_not_pass_the_waiter_the_gate_refused() -> None:
    clock = VirtualClock()

    async def always_full() -> Usage | None:
        return Usage(concurrent_sessions=4)

    async with limiter_with(clock, limits={"umans": 4}, usage={"umans": always_full}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b", "c", "d", "oldest")
        crowd.slot("a").release()
        await clock.advance(0.5)
        answer = limiter.try_acquire("umans")
        assert isinstance(answer, Deferred)
        await crowd.ask("newcomer", priority=5)
        await clock.advance(3.0)
        assert crowd.names() == ["a", "b", "c", "d"]


async def raising() -> Usage | None:
    raise RuntimeError("the provider is down")


async def never_answering() -> Usage | None:
    await asyncio.get_running_loop().create_future()
    return None


async def saying_nothing() -> Usage | None:
    return None


async def talking_nonsense() -> Usage | None:
    return "four"  # type: ignore[return-value]


@pytest.mark.parametrize("fetch", [raising, never_answering, saying_nothing, talking_nonsense])
async def test_lesson_03_a_usage_source_that_fails_means_unknown(fetch: Callable[[], Awaitable[Usage | None]]) -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 2}, usage={"umans": fetch}) as limiter:
        crowd = WaitingTasks(limiter, clock)
        await crowd.ask("a", "b", "x", "y")
        crowd.slot("a").release()
        crowd.slot("b").release()
        await clock.advance(30.0)
        assert crowd.names() == ["a", "b", "x", "y"]
        gap = crowd.entered[3][1] - crowd.entered[2][1]
        assert gap >= 1.0 - 1e-9, "unknown lets in one at a time (lesson 4)"
