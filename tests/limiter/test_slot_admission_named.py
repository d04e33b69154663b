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


async def test_a_named_session_and_its_runs_are_held_until_they_are_released() -> None:
    clock = VirtualClock()
    async with limiter_with(clock, max_parallel_sessions=1, max_parallel_runs=1) as limiter:
        limiter.acquire_session("s1", scope="umans")
        limiter.acquire_run("s1", "r1", scope="umans")
        await clock.advance(86_400.0)
        assert (limiter.status().active_sessions, limiter.status().active_runs) == (1, 1)
        with pytest.raises(MaxRunsExceeded):
            limiter.acquire_run("s2", "r2")
        limiter.release_session("s1")
        limiter.acquire_session("s2")
        limiter.acquire_run("s2", "r2")


async def test_a_silent_session_is_reported_to_those_that_find_no_place(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    async with limiter_with(clock, max_parallel_sessions=3) as limiter:
        for session in ("silent", "with a run", "acquired again"):
            limiter.acquire_session(session)
        limiter.acquire_run("with a run", "r1")
        await clock.advance(400.0)
        limiter.acquire_session("acquired again")
        with pytest.raises(MaxSessionsExceeded) as error:
            limiter.acquire_session("late")
        limiter.release_session("silent")
        limiter.acquire_session("late")

    found = "silent: 'silent' (400 s); release_session frees the place of one that is over"
    assert str(error.value) == f"sessions at its limit (3/3); {found}"
    assert caplog.messages == [f"sessions hold their slots, {found}"]
