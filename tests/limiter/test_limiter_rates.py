"""Rates of one's own through the library: given at the start, kept by waiting, validated at once."""

import asyncio

import pytest

from paceline import InvalidLimit, Limiter, Rate
from paceline.core.signals import Succeeded
from paceline.testing import VirtualClock


async def test_a_program_is_held_to_its_rate_by_waiting() -> None:
    clock = VirtualClock()
    limiter = Limiter(rates={"umans": {"rpm": 3}}, clock=clock)
    started: list[float] = []

    async def call() -> None:
        async with limiter.slot("umans"):
            started.append(clock.now())

    calls = [asyncio.create_task(call()) for _ in range(7)]
    await clock.advance(200.0)
    await asyncio.gather(*calls)

    assert started == [0.0, 0.0, 0.0, 60.0, 60.0, 60.0, 120.0]


async def test_tokens_that_a_call_expects_and_has_used_are_kept_to_the_rate() -> None:
    clock = VirtualClock()
    limiter = Limiter(rates={"umans": Rate(tpm=100)}, clock=clock)
    waits: list[str] = []
    first = await limiter.acquire("umans", tokens=90)
    waiting = asyncio.create_task(limiter.acquire("umans", tokens=50, on_queued=lambda why: waits.append(why.reason)))
    await clock.advance(1.0)

    first.report(Succeeded(tokens=10))
    first.release()

    assert ((await waiting).waited, waits) == (1.0, ["pacing"])
    await limiter.aclose()


async def test_who_waited_in_a_process_that_is_gone_keeps_nothing_from_others() -> None:
    clock = VirtualClock()
    before = Limiter(rates={"umans": Rate(tpm=100)}, clock=clock)
    await before.acquire("umans", tokens=50)
    waiting = asyncio.create_task(before.acquire("umans", tokens=90))
    await clock.advance(1.0)
    snapshot = before.snapshot()
    await before.aclose()
    await asyncio.gather(waiting, return_exceptions=True)

    after = Limiter(rates={"umans": Rate(tpm=100)}, clock=clock, restore=snapshot)

    assert (await after.acquire("umans", tokens=50, priority=1, timeout=1.0)).waited == 0.0
    await after.aclose()


@pytest.mark.parametrize("rates", [{"umans": {"rpm": 0}}, {"umans": {"tpm": "5"}}, {"umans": 5}, {"umans": {"rp": 5}}])
def test_a_rate_that_is_none_is_refused(rates: object) -> None:
    with pytest.raises(InvalidLimit, match="umans"):
        Limiter(rates=rates)  # type: ignore[arg-type]
