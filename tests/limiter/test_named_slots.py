"""Sessions and runs that are acquired and released by name."""

import pytest
from tests.limiter.waiting_tasks import in_flight, limiter_with

from paceline import (
    MaxRunsExceeded,
    MaxSessionsExceeded,
    PacelineError,
)
from paceline.testing import VirtualClock


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


async def test_a_task_that_died_does_not_keep_its_named_place() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, max_parallel_sessions=1, max_parallel_runs=1) as limiter:
        limiter.acquire_session("dead")
        limiter.acquire_run("dead", "r1")
        await clock.advance(299.0)
        assert (limiter.status().active_sessions, limiter.status().active_runs) == (1, 1)
        await clock.advance(1000.0)
        assert (limiter.status().active_sessions, limiter.status().active_runs) == (0, 0)
        limiter.acquire_session("next")
        limiter.acquire_run("next", "r2")


async def test_a_named_session_is_kept_by_acquiring_it_again() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, max_parallel_sessions=1) as limiter:
        for _ in range(10):
            limiter.acquire_session("s1")
            await clock.advance(290.0)
        with pytest.raises(MaxSessionsExceeded):
            limiter.acquire_session("s2")


async def test_a_named_session_lives_as_long_as_its_runs_do() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, max_parallel_sessions=1) as limiter:
        limiter.acquire_session("s1", scope="umans")
        async with limiter.slot("umans", session="s1"):
            await clock.advance(3600.0)
        await clock.advance(290.0)
        assert limiter.status().active_sessions == 1
        await clock.advance(100.0)
        assert limiter.status().active_sessions == 0
