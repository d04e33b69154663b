"""One limiter over several event loops, one after another."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from paceline import Limiter, PacelineError, Slot

SOON = 30.0


def in_flight(limiter: Limiter, scope: str = "umans") -> int:
    status = limiter.from_thread.call(lambda: limiter.scope_status(scope))
    return status.in_flight if status is not None else 0


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start it; the list gets its result or its error."""
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(work())
        except PacelineError as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def test_a_pause_that_began_on_a_loop_that_is_gone_ends_on_the_next() -> None:
    limiter = Limiter(limits={"umans": 1})

    async def first() -> None:
        limiter.report_rate_limit("umans", retry_after=0.2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(limiter.acquire("umans"), 0.01)

    async def second() -> None:
        slot = await asyncio.wait_for(limiter.acquire("umans"), SOON)
        slot.release()

    asyncio.run(first())
    asyncio.run(second())


def test_who_waited_on_a_loop_that_was_closed_under_it_takes_no_place_later() -> None:
    limiter = Limiter(limits={"umans": 1})
    loop = asyncio.new_event_loop()

    async def first() -> tuple[Slot, asyncio.Task[Slot]]:
        held = await limiter.acquire("umans")
        waiting = asyncio.create_task(limiter.acquire("umans", timeout=60.0))
        await asyncio.sleep(0)
        return held, waiting

    held, waiting = loop.run_until_complete(first())
    loop.close()

    async def second() -> None:
        held.release()
        async with asyncio.timeout(SOON):
            async with limiter.slot("umans"):
                pass

    asyncio.run(second())
    assert in_flight(limiter) == 0
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


def test_two_loops_at_once_are_refused_by_name() -> None:
    limiter = Limiter(limits={"umans": 1})
    ready, over = threading.Event(), threading.Event()

    async def live() -> None:
        async with limiter.slot("umans"):
            ready.set()
            await asyncio.to_thread(over.wait, SOON)

    thread, _ = in_thread(lambda: asyncio.run(live()))
    assert ready.wait(SOON)
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(limiter.acquire("umans"))
    over.set()
    thread.join(SOON)
    assert in_flight(limiter) == 0


def test_a_script_may_begin_with_threads_and_go_on_with_asyncio() -> None:
    limiter = Limiter(limits={"umans": 1})
    with limiter.from_thread.slot("umans"):
        pass

    async def main() -> None:
        async with limiter.slot("umans"):
            assert (await asyncio.to_thread(in_flight, limiter)) == 1
        await limiter.aclose()

    asyncio.run(main())
