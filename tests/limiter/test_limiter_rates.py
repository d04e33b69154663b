"""Rates of one's own through the library: given at the start, kept by waiting, validated at once."""

import asyncio
import random

import pytest

from paceline import InvalidLimit, Limiter, Rate
from paceline.core.signals import Succeeded
from paceline.testing import VirtualClock
from paceline.testing.world import CALLERS, SCOPE, draw_shape


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


# -- Callers of a provider that states budgets: whatever shape its answers have, everybody is s --


CALLS_EACH = 8
START = 1_700_000_000.25
LONG_ENOUGH = CALLERS * CALLS_EACH * 1_000.0


@pytest.mark.parametrize("seed", range(24))
async def test_whatever_budgets_a_provider_states_every_call_is_served(seed: int) -> None:
    # given a provider that states its budgets in some shape
    rng = random.Random(seed)
    shape, clock = draw_shape(rng), VirtualClock(start=START)
    limiter = Limiter(limits={SCOPE: rng.choice((4, 1_000))}, clock=clock)
    served: list[int] = []

    async def caller(number: int) -> None:
        for _ in range(CALLS_EACH):
            async with limiter.slot(SCOPE) as slot:
                await clock.sleep(0.0005 * rng.random())
                slot.report(shape.reading(rng.uniform(0.0, shape.limit), rng, clock.now()))
                await clock.sleep(0.006 * rng.random())
            served.append(number)
            await clock.sleep(0.001 * rng.random())

    # when many call it thousands of times a second
    calls = [asyncio.create_task(caller(number)) for number in range(CALLERS)]
    for _ in range(40):
        await clock.advance(LONG_ENOUGH / 40)
        if all(call.done() for call in calls):
            break

    # then all of them are served
    assert sorted(served) == sorted(list(range(CALLERS)) * CALLS_EACH)
    await asyncio.gather(*calls)
    await limiter.aclose()
