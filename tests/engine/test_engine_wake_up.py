"""The rest between two passes: over when its wait is, or as soon as a pass is asked for."""

import asyncio

from paceline.engine.engine import WakeUp
from paceline.simulation.clock import VirtualClock, run_ready_tasks


async def test_a_rest_lasts_as_long_as_its_wait() -> None:
    clock, woken = VirtualClock(), WakeUp()
    rest = asyncio.create_task(woken.rest(lambda: clock.sleep(5.0)))
    await clock.advance(4.0)
    assert not rest.done()
    await clock.advance(1.0)
    assert rest.done()


async def test_a_request_ends_the_rest_that_is_under_way() -> None:
    clock, woken = VirtualClock(), WakeUp()
    rest = asyncio.create_task(woken.rest(lambda: clock.sleep(5.0)))
    await run_ready_tasks()
    woken.set()
    await run_ready_tasks()
    assert rest.done()
    await rest


async def test_a_request_before_the_rest_is_not_lost() -> None:
    clock, woken = VirtualClock(), WakeUp()
    woken.set()
    await woken.rest(lambda: clock.sleep(5.0))
    woken.clear()
    rest = asyncio.create_task(woken.rest(lambda: clock.sleep(5.0)))
    await run_ready_tasks()
    assert not rest.done()
    await clock.advance(5.0)
    await rest


async def test_a_wait_that_fails_ends_the_rest() -> None:
    async def fail() -> None:
        raise OSError("no such device")

    await WakeUp().rest(fail)


async def test_a_cancelled_rest_takes_its_wait_with_it() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    rest = asyncio.create_task(WakeUp().rest(wait))
    await run_ready_tasks()
    rest.cancel()
    await asyncio.gather(rest, return_exceptions=True)
    assert ended == ["wait"]
    assert rest.cancelled()
