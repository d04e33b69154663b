"""LESSONS.md lines 1-22 where they are about asyncio: the Limiter in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from paceline import (
    CapacityError,
    Deferred,
    InvalidLimit,
    Limiter,
    MaxRunsExceeded,
    MaxSessionsExceeded,
    PacelineError,
    Slot,
    SlotTimeout,
)
from paceline.core.signals import Overloaded, PlatformLimit, RateLimited, Usage
from paceline.testing import VirtualClock


@asynccontextmanager
async def limiter_with(clock: VirtualClock, **settings: object) -> AsyncIterator[Limiter]:
    """A limiter that must be quiet once closed: no task of ours is left pending."""
    before = asyncio.all_tasks()
    limiter = Limiter(clock=clock, **settings)  # type: ignore[arg-type]
    try:
        yield limiter
    finally:
        await limiter.aclose()
        await clock.advance(0)
        left = {task for task in asyncio.all_tasks() - before if not task.done()}
        assert left == set(), "closing leaves nothing pending"


class Crowd:
    """Tasks that each wait for a slot, and who got one, in order."""

    def __init__(self, limiter: Limiter, clock: VirtualClock) -> None:
        self.limiter = limiter
        self.clock = clock
        self.entered: list[tuple[str, float]] = []
        self.tasks: dict[str, asyncio.Task[Slot]] = {}

    async def ask(self, *names: str, scope: str = "umans", **kwargs: object) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._enter(name, scope, kwargs))
            await self.clock.advance(0)

    async def _enter(self, name: str, scope: str, kwargs: dict[str, object]) -> Slot:
        slot = await self.limiter.acquire(scope, **kwargs)  # type: ignore[arg-type]
        self.entered.append((name, self.clock.now()))
        return slot

    def names(self) -> list[str]:
        return [name for name, _ in self.entered]

    def slot(self, name: str) -> Slot:
        return self.tasks[name].result()


def in_flight(limiter: Limiter, scope: str = "umans") -> int:
    status = limiter.scope_status(scope)
    return 0 if status is None else status.in_flight


# -- Admission ------------------------------------------------------------------------------------------


async def test_lesson_01_one_usage_reading_lets_in_only_what_it_leaves() -> None:
    clock = VirtualClock()
    readings = [Usage(concurrent_sessions=4), Usage(concurrent_sessions=3)]
    asked: list[float] = []

    async def fetch() -> Usage | None:
        asked.append(clock.now())
        return readings[min(len(asked), len(readings)) - 1]

    async with limiter_with(clock, limits={"umans": 4}, usage={"umans": fetch}) as limiter:
        crowd = Crowd(limiter, clock)
        await crowd.ask("a", "b", "c", "d")
        await clock.advance(2.0)
        assert asked == [], "where nobody waits no poll is made"
        await crowd.ask("x", "y", "z")
        for name in ("a", "b", "c"):
            crowd.slot(name).release()
        await clock.advance(0.5)
        assert crowd.names() == ["a", "b", "c", "d", "x"]


async def test_lesson_02_a_newcomer_does_not_pass_the_waiter_the_gate_refused() -> None:
    clock = VirtualClock()

    async def always_full() -> Usage | None:
        return Usage(concurrent_sessions=4)

    async with limiter_with(clock, limits={"umans": 4}, usage={"umans": always_full}) as limiter:
        crowd = Crowd(limiter, clock)
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
        crowd = Crowd(limiter, clock)
        await crowd.ask("a", "b", "x", "y")
        crowd.slot("a").release()
        crowd.slot("b").release()
        await clock.advance(30.0)
        assert crowd.names() == ["a", "b", "x", "y"]
        gap = crowd.entered[3][1] - crowd.entered[2][1]
        assert gap >= 1.0 - 1e-9, "unknown lets in one at a time (lesson 4)"


async def test_lesson_05_deleting_the_limit_and_setting_it_again_forgets_no_live_slot() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 4}) as limiter:
        crowd = Crowd(limiter, clock)
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


async def test_lesson_08_a_slot_without_a_resolved_model_is_refused() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"anthropic/*/opus-*": 1}) as limiter:
        with pytest.raises(PacelineError, match="anthropic/max-1"):
            limiter.try_acquire("anthropic/max-1")
        assert isinstance(limiter.try_acquire("anthropic/max-1/claude-opus-4-6-20260105"), Slot)
        refused = limiter.try_acquire("anthropic/max-1/opus-4-6")
        assert isinstance(refused, Deferred)
        assert refused.detail == "opus-4-6 at its cap (1/1) on max-1"


@pytest.mark.parametrize("limit", [0, -1, "10", "abc", 4.5, True])
async def test_lesson_09_bad_limits_are_refused_at_every_door(limit: object) -> None:
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


async def test_lesson_11_a_run_acquired_before_its_session_goes_with_it() -> None:
    clock = VirtualClock()
    async with limiter_with(clock) as limiter:
        limiter.acquire_run("s1", "r1", scope="umans")
        limiter.acquire_session("s1", scope="umans")
        limiter.release_session("s1")
        status = limiter.status()
        assert (status.active_sessions, status.active_runs, in_flight(limiter)) == (0, 0, 0)


async def test_lesson_11_a_run_id_of_another_session_is_refused() -> None:
    clock = VirtualClock()
    async with limiter_with(clock) as limiter:
        limiter.acquire_session("s1")
        limiter.acquire_session("s2")
        limiter.acquire_run("s1", "r1")
        limiter.acquire_run("s1", "r1")  # the same again is a no-op
        with pytest.raises(PacelineError, match="r1"):
            limiter.acquire_run("s2", "r1")
        limiter.release_session("s2")
        assert limiter.status().active_runs == 1, "the first session still has its run"
        limiter.release_run("r1")
        limiter.release_run("r1")
        assert limiter.status().active_runs == 0


async def test_lesson_11_full_pools_say_so() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, max_parallel_sessions=1, max_parallel_runs=1) as limiter:
        limiter.acquire_session("s1")
        limiter.acquire_run("s1", "r1")
        with pytest.raises(MaxSessionsExceeded) as sessions:
            limiter.acquire_session("s2")
        with pytest.raises(MaxRunsExceeded) as runs:
            limiter.acquire_run("s1", "r2")
        assert (sessions.value.code, runs.value.code) == ("max_sessions_exceeded", "max_runs_exceeded")


async def test_lesson_12_closing_leaves_no_waiter_pending() -> None:
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 1}, clock=clock)
    crowd = Crowd(limiter, clock)
    await crowd.ask("a", "b", "c")
    await limiter.aclose()
    await clock.advance(0)
    ends = [type(crowd.tasks[name].exception()) for name in ("b", "c")]
    assert ends == [CapacityError, CapacityError]


async def test_lesson_12_a_cancelled_wait_sends_nothing() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 1}) as limiter:
        crowd = Crowd(limiter, clock)
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
        crowd = Crowd(limiter, clock)
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
        crowd = Crowd(limiter, clock)
        await crowd.ask("a")
        await crowd.ask("b", timeout=5.0)
        await clock.advance(4.9)
        assert not crowd.tasks["b"].done()
        await clock.advance(0.2)
        assert type(crowd.tasks["b"].exception()) is SlotTimeout
        crowd.slot("a").release()
        assert isinstance(limiter.try_acquire("umans"), Slot), "who timed out is out of the queue"


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


# -- 429s -------------------------------------------------------------------------------------------------


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
        crowd = Crowd(limiter, clock)
        await crowd.ask("a")
        await clock.advance(59.9)
        assert crowd.names() == []
        await clock.advance(0.2)
        assert crowd.entered == [("a", 60.0)]


async def test_lesson_18_a_429_of_a_provider_without_a_limit_pauses() -> None:
    clock = VirtualClock()
    async with limiter_with(clock) as limiter:
        limiter.report("umans", RateLimited(retry_after=10.0))
        crowd = Crowd(limiter, clock)
        await crowd.ask("a")
        await clock.advance(20.0)
        assert crowd.entered == [("a", 10.0)]


async def test_lesson_19_a_platform_limit_is_floored_at_one() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, limits={"umans": 8}) as limiter:
        limiter.report("umans", PlatformLimit(limit=0, in_use=3))
        crowd = Crowd(limiter, clock)
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
