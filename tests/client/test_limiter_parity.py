"""The common interface of Limiter and Client, tested with both: same calls, same outcomes, same errors."""

import asyncio
import time
from collections.abc import AsyncIterator
from inspect import isawaitable
from typing import Any

import pytest
from tests.client.conftest import SETTINGS
from tests.daemon import RunDaemon

from paceline import (
    CapacityError,
    Client,
    Deferred,
    InvalidLimit,
    Limiter,
    MaxRunsExceeded,
    MaxSessionsExceeded,
    SlotTimeout,
)
from paceline.core.signals import QuotaClosed
from paceline.errors import InvalidDuration, InvalidInput, InvalidScope, TicketConflict

SCOPE = "acme/max-1/large"
PATIENCE_SECONDS = 60.0


class Face:
    """Either of them. Results that are awaitable for only one of them are awaited if needed."""

    def __init__(self, limiter: Limiter | Client) -> None:
        self.limiter: Any = limiter

    async def call(self, name: str, *arguments: object, **options: object) -> Any:
        return await done(getattr(self.limiter, name)(*arguments, **options))

    async def counted(self, scope: str = "acme") -> tuple[int, int]:
        """Return the slots in flight and the queued tickets."""
        status = await self.call("scope_status", scope)
        return status.in_flight, status.queued

    async def pool(self) -> tuple[int, int]:
        """Return how many sessions and runs hold a slot."""
        status = await self.call("status")
        return status.active_sessions, status.active_runs

    async def until(self, expected: tuple[int, int]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.counted() != expected:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def done(value: Any) -> Any:
    return await value if isawaitable(value) else value


@pytest.fixture(params=["limiter", "client"])
async def face(request: pytest.FixtureRequest, run_daemon: RunDaemon) -> AsyncIterator[Face]:
    if request.param == "limiter":
        limiter = Limiter(limits={"acme": 1})
        yield Face(limiter)
        await limiter.aclose()
    else:
        async with run_daemon(SETTINGS) as daemon, Client(daemon.url, daemon.tokens.full) as client:
            yield Face(client)


async def test_a_slot_is_held_while_the_body_runs(face: Face) -> None:
    async with face.limiter.slot(SCOPE, session="s1", priority=1) as slot:
        assert (slot.scope, slot.session, slot.released, slot.lost) == (SCOPE, "s1", False, False)
        assert abs(slot.granted_at - time.time()) < PATIENCE_SECONDS
        assert slot.waited < PATIENCE_SECONDS
        assert [await face.counted(scope) for scope in ("runs", "acme", "acme/max-1", SCOPE)] == [(1, 0)] * 4

    assert (slot.released, slot.lost, await face.counted()) == (True, False, (0, 0))


async def test_a_block_that_fails_releases_its_slot(face: Face) -> None:
    with pytest.raises(ZeroDivisionError):
        async with face.limiter.slot(SCOPE):
            _ = 1 / 0

    assert await face.counted() == (0, 0)


async def test_the_next_caller_waits_and_gets_the_reason(face: Face) -> None:
    held = await face.limiter.acquire(SCOPE)
    reasons: list[Deferred] = []
    waiting = asyncio.create_task(face.limiter.acquire(SCOPE, on_queued=reasons.append))
    await face.until((1, 1))

    await done(held.release())

    slot = await waiting
    assert slot.token > held.token
    assert [(why.reason, why.scope, why.detail) for why in reasons] == [("limit", "acme", "acme at its limit (1/1)")]
    await done(slot.release())
    await done(slot.release())
    assert await face.counted() == (0, 0)


async def test_try_acquire_returns_a_slot_or_a_reason(face: Face) -> None:
    slot = await face.call("try_acquire", SCOPE)

    refused = await face.call("try_acquire", SCOPE)

    assert isinstance(refused, Deferred)
    assert (refused.reason, refused.scope) == ("limit", "acme")
    assert await face.counted() == (1, 0)
    await done(slot.release())


async def test_a_wait_that_runs_out_leaves_the_queue(face: Face) -> None:
    held = await face.limiter.acquire(SCOPE)

    with pytest.raises(SlotTimeout, match=r"no slot within 0\.1 s: acme at its limit \(1/1\)") as caught:
        await face.limiter.acquire(SCOPE, timeout=0.1)

    assert caught.value.deferred is not None
    assert caught.value.deferred.reason == "limit"
    await face.until((1, 0))
    await done(held.release())


async def test_a_cancelled_wait_leaves_the_queue(face: Face) -> None:
    held = await face.limiter.acquire(SCOPE)
    waiting = asyncio.create_task(face.limiter.acquire(SCOPE))
    await face.until((1, 1))

    waiting.cancel()

    await face.until((1, 0))
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await done(held.release())


async def test_the_oldest_agent_goes_first(face: Face) -> None:
    held = await face.limiter.acquire(SCOPE)
    now = time.time()
    order: list[str] = []

    async def agent(name: str, since: float) -> None:
        async with face.limiter.slot(SCOPE, since=since):
            order.append(name)

    young = asyncio.create_task(agent("young", now))
    await face.until((1, 1))
    old = asyncio.create_task(agent("old", now - 50))
    await face.until((1, 2))
    await done(held.release())
    await asyncio.gather(young, old)

    assert order == ["old", "young"]


async def test_limits_are_set_and_removed(face: Face) -> None:
    await face.call("set_limit", SCOPE, 7)
    await face.call("set_limit", "acme/*/small-*", 2)

    assert await face.call("get_limit", SCOPE) == 7
    assert {"acme": 1, SCOPE: 7, "acme/*/small-*": 2}.items() <= (await face.call("limits")).items()
    await face.call("remove_limit", SCOPE)
    await face.call("set_limit", "acme/*/small-*", None)
    await face.call("remove_limit", "acme/never")
    assert [await face.call("get_limit", scope) for scope in (SCOPE, "acme/*/small-*", "never")] == [None] * 3


async def test_a_higher_limit_admits_waiters(face: Face) -> None:
    held = await face.limiter.acquire(SCOPE)
    waiting = asyncio.create_task(face.limiter.acquire(SCOPE))
    await face.until((1, 1))

    await face.call("set_limit", "acme", 2)

    for slot in (held, await waiting):
        await done(slot.release())


async def test_bad_values_raise_at_once_and_change_nothing(face: Face) -> None:
    for limit in (0, -1, 1.5, "4", True):
        with pytest.raises(InvalidLimit):
            await face.call("set_limit", "acme", limit)
    for cooldown in (-1.0, float("nan"), "soon", True):
        with pytest.raises(InvalidDuration):
            await face.call("set_cooldown", "acme", cooldown)
    for scope in ("", "has spaces", "sessions", 7):
        with pytest.raises(InvalidScope):
            await face.limiter.acquire(scope)
    for options in ({"priority": "high"}, {"priority": True}, {"since": "now"}, {"session": ""}, {"on_queued": 5}):
        with pytest.raises(InvalidInput):
            await face.limiter.acquire(SCOPE, **options)
    for timeout in (-1, float("inf"), "soon"):
        with pytest.raises(InvalidDuration):
            await face.limiter.acquire(SCOPE, timeout=timeout)
    with pytest.raises(InvalidInput):
        await face.call("report", "acme", "slow down")

    assert (await face.call("get_limit", "acme"), await face.counted()) == (1, (0, 0))


async def test_cooldowns_are_set(face: Face) -> None:
    await face.call("set_cooldown", "acme", 0.35)

    assert await face.call("get_cooldown", "acme") == 0.35


async def test_a_signal_on_a_slot_is_learnt(face: Face) -> None:
    slot = await face.limiter.acquire(SCOPE)

    begun = time.time()
    await done(slot.rate_limited(retry_after=50))
    paused = await face.call("scope_status", SCOPE)
    await done(slot.overloaded(retry_after=90))
    longer = await face.call("scope_status", SCOPE)
    await done(slot.quota_closed(resets_at=time.time() + 3600, window="5h"))
    closed = await face.call("scope_status", SCOPE)

    assert begun + 49 < paused.paused_until < time.time() + 51
    assert begun + 89 < longer.paused_until < time.time() + 91
    assert (closed.window.name, closed.window.state) == ("5h", "closed")
    await done(slot.release())


async def test_nothing_is_learnt_from_an_abandoned_slot(face: Face) -> None:
    await face.call("report", SCOPE, QuotaClosed(resets_at=time.time() + 0.1, window="5h"))
    states = []

    for ending in ("abandon", "release"):
        slot = await face.limiter.acquire(SCOPE, timeout=PATIENCE_SECONDS)
        await done(getattr(slot, ending)())
        states.append((await face.call("scope_status", SCOPE)).window.state)
        assert (slot.released, await face.counted()) == (True, (0, 0))

    assert states == ["closed", "wave"]


async def test_a_signal_on_a_scope_is_learnt_without_a_slot(face: Face) -> None:
    await face.call("report_rate_limit", "acme/max-2", retry_after=50)
    await face.call("report", "acme/max-3", QuotaClosed(resets_at=time.time() + 3600, window="weekly"))

    assert (await face.call("scope_status", "acme/max-2")).paused
    assert (await face.call("scope_status", "acme/max-3")).window.name == "weekly"
    assert await face.call("scope_status", "acme/max-4") is None


async def test_status_shows_the_pool(face: Face) -> None:
    slot = await face.limiter.acquire(SCOPE)

    status = await face.call("status")

    assert (status.active_sessions, status.active_runs) == (0, 1)
    assert (status.max_parallel_runs, status.available_run_slots) == (50, 49)
    await done(slot.release())


async def test_sessions_and_runs_are_held_by_their_names(face: Face) -> None:
    await face.call("set_limit", "acme", None)
    for _ in range(2):
        await face.call("acquire_session", "s1")
        await face.call("acquire_run", "s1", "r1", scope=SCOPE)
    await face.call("acquire_run", "s1", "r2")
    with pytest.raises(TicketConflict, match="belongs to session 's1'"):
        await face.call("acquire_run", "s2", "r1")
    held = await face.pool(), await face.counted()

    for _ in range(2):
        await face.call("release_run", "r2")
    without_a_run = await face.pool()
    for _ in range(2):
        await face.call("release_session", "s1")

    assert held == ((1, 2), (1, 0))
    assert without_a_run == (1, 1)
    assert (await face.pool(), await face.counted()) == ((0, 0), (0, 0))


async def test_a_name_without_a_place_is_refused_at_once(face: Face) -> None:
    await face.call("set_limit", "sessions", 1)
    await face.call("acquire_session", "s1")
    await face.call("acquire_run", "s1", "r1", scope=SCOPE)

    with pytest.raises(MaxSessionsExceeded, match=r"sessions at its limit \(1/1\)"):
        await face.call("acquire_session", "s2")
    with pytest.raises(MaxRunsExceeded, match=r"acme at its limit \(1/1\)"):
        await face.call("acquire_run", "s1", "r2", scope=SCOPE)
    with pytest.raises(InvalidInput):
        await face.call("acquire_session", "")

    assert await face.pool() == (1, 1)


async def test_a_block_holds_one_slot_at_a_time(face: Face) -> None:
    block = face.limiter.slot(SCOPE)
    async with block:
        with pytest.raises(RuntimeError, match=r"this slot\(...\) is in use"):
            await block.__aenter__()
    async with block:
        assert await face.counted() == (1, 0)

    assert await face.counted() == (0, 0)


async def test_closing_ends_pending_waits(face: Face) -> None:
    await face.limiter.acquire(SCOPE)
    waiting = asyncio.create_task(face.limiter.acquire(SCOPE))
    await face.until((1, 1))

    await face.limiter.aclose()

    with pytest.raises(CapacityError, match="closed"):
        await waiting
    with pytest.raises(CapacityError, match="closed"):
        await face.limiter.acquire(SCOPE)
