"""A limiter used from threads: nobody hangs and no slot is lost."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

import paceline.limiter.threads
from paceline import CapacityError, Event, Limiter, PacelineError, Slot
from paceline.core.signals import Overloaded

SOON = 60.0


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


def test_a_thread_interrupted_as_its_grant_arrives_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes when the loop has granted, but the thread does not have the slot yet."""
    limiter = Limiter(limits={"umans": 1})

    def interrupted(answer: "Future[Slot]", loop: asyncio.AbstractEventLoop) -> Slot:
        monkeypatch.undo()
        answer.cancel()
        raise KeyboardInterrupt

    monkeypatch.setattr(paceline.limiter.threads, "_result", interrupted)
    with pytest.raises(KeyboardInterrupt), limiter.from_thread.slot("umans"):
        raise AssertionError("never entered")
    assert in_flight(limiter) == 0


def test_a_thread_interrupted_while_it_gives_back_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    limiter = Limiter(limits={"umans": 1})

    def interrupted(function: Callable[[], object]) -> object:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), limiter.from_thread.slot("umans"):
        monkeypatch.setattr(limiter.from_thread, "call", interrupted)
    assert in_flight(limiter) == 0


@pytest.mark.filterwarnings("ignore:coroutine")  # asyncio's own: what was handed to the loop never ran
def test_a_thread_does_not_wait_for_ever_on_a_loop_that_was_closed() -> None:
    limiter = Limiter(limits={"umans": 1})
    loop = asyncio.new_event_loop()

    async def take() -> Slot:
        return await limiter.acquire("umans")

    loop.run_until_complete(take())

    def wait() -> None:
        with limiter.from_thread.slot("umans"):
            pass

    thread, ended = in_thread(wait)
    time.sleep(0.05)
    loop.close()
    thread.join(SOON)
    assert isinstance(ended[0], CapacityError)


def test_a_thread_that_waits_when_the_program_ends_hears_of_it() -> None:
    queued = asyncio.Event()

    def listen(event: Event) -> None:
        if event.name == "slot.deferred":
            queued.set()

    limiter = Limiter(limits={"umans": 1}, on_event=listen)

    def wait() -> None:
        with limiter.from_thread.slot("umans"):
            pass

    async def main() -> tuple[threading.Thread, list[object]]:
        await limiter.acquire("umans")
        waiter = in_thread(wait)
        await queued.wait()
        return waiter

    thread, ended = asyncio.run(main())
    thread.join(SOON)
    assert isinstance(ended[0], PacelineError)


def test_threads_can_close_the_limiter() -> None:
    limiter = Limiter(limits={"umans": 1})

    def wait() -> None:
        with limiter.from_thread.slot("umans"):
            pass

    with limiter.from_thread.slot("umans"):
        thread, ended = in_thread(wait)
        while not limiter.from_thread.call(lambda: len(limiter._slots._waits)):
            time.sleep(0.001)
        limiter.from_thread.close()
        thread.join(SOON)
    assert isinstance(ended[0], CapacityError)
    assert in_flight(limiter) == 0


def test_a_slot_of_a_thread_says_and_tells_what_any_slot_does() -> None:
    limiter = Limiter(limits={"umans": 4})
    with limiter.from_thread.slot("umans") as slot:
        assert (slot.scope, slot.waited, slot.lost) == ("umans", 0.0, False)
        assert slot.granted_at <= time.time()
        assert slot.token > 0
        slot.overloaded(retry_after=0.01)
        slot.report(Overloaded(retry_after=0.01))
        slot.quota_closed(resets_at=time.time() + 60, window="5h")
        slot.renew()
    status = limiter.from_thread.call(lambda: limiter.scope_status("umans"))
    assert status is not None
    assert status.window is not None
    assert status.window.state == "closed"


async def test_from_thread_on_its_own_loop_is_refused_without_a_trace() -> None:
    limiter = Limiter()
    with pytest.raises(RuntimeError, match="its own loop"), limiter.from_thread.slot("umans"):
        pass
    with pytest.raises(RuntimeError, match="its own loop"):
        limiter.from_thread.call(limiter.status)


def test_the_status_is_read_from_a_thread_while_the_loop_is_busy() -> None:
    limiter = Limiter(limits={"umans": 2})
    is_busy, has_read = threading.Event(), threading.Event()

    async def main() -> None:
        async with limiter.slot("umans", session="s1"):
            is_busy.set()
            has_read.wait(SOON)  # it blocks the loop, as a long computation does

    loop_thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    loop_thread.start()
    is_busy.wait(SOON)

    def read() -> tuple[object, ...]:
        scope = limiter.scope_status("umans")
        return limiter.status().active_runs, scope and (scope.in_flight, scope.limit), len(limiter.statuses())

    thread, ended = in_thread(read)
    thread.join(SOON / 2)
    while_busy = list(ended)
    has_read.set()
    loop_thread.join(SOON)

    assert while_busy == [(1, (1, 2), 3)]


def test_a_call_into_a_loop_that_is_stopped_is_an_error_and_no_endless_wait() -> None:
    loop = asyncio.new_event_loop()

    async def make() -> Limiter:
        limiter = Limiter(limits={"umans": 1})
        (await limiter.acquire("umans")).release()
        return limiter

    limiter = loop.run_until_complete(make())  # the loop is stopped from here on, and not closed
    with pytest.raises(CapacityError, match="is stopped"), limiter.from_thread.slot("umans"):
        pass
    with pytest.raises(CapacityError, match="is stopped"):
        limiter.from_thread.call(limiter.status)
    loop.run_until_complete(limiter.aclose())
    assert limiter.status().active_runs == 0
    loop.close()


# -- One limiter over several event loops, one after another --


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
