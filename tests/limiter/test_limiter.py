"""What callers do at odd moments: call back, close, use twice, set the clock back, restart in the middle."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

import paceline.clock
from paceline import CapacityError, Event, Limiter, MaxSessionsExceeded, Slot, SlotTimeout
from paceline.core import Snapshot
from paceline.core.signals import QuotaClosed, Usage
from paceline.errors import InvalidSnapshot, TicketConflict
from paceline.testing import VirtualClock

SOON = 5.0
VERSION_1 = Path(__file__).parent / "snapshots" / "version_1.json"


# -- listeners ---------------------------------------------------------------------------------------


async def test_events_come_in_order_also_when_a_listener_makes_more_happen() -> None:
    seen: list[tuple[str, str | None]] = []

    def listen(event: Event) -> None:
        seen.append((event.name, event.scope))
        if event.name == "scope.paused" and event.scope == "umans":
            limiter.report_rate_limit("other", retry_after=5.0)

    limiter = Limiter(limits={"umans": 4}, on_event=listen, clock=VirtualClock())
    slot = await limiter.acquire("umans")
    slot.rate_limited(retry_after=1.0)
    assert seen == [
        ("slot.granted", "umans"),
        ("scope.paused", "umans"),
        ("scope.limit_reduced", "umans"),
        ("scope.paused", "other"),
    ]


async def test_a_slot_ends_with_one_event() -> None:
    ends: list[tuple[str, object]] = []
    clock = VirtualClock()

    def listen(event: Event) -> None:
        if event.name in ("slot.released", "slot.reclaimed"):
            ends.append((event.name, event.fields["ticket"]))

    limiter = Limiter(limits={"umans": 3}, on_event=listen, clock=clock)
    async with limiter.slot("umans", session="s1") as ended_by_name:
        limiter.release_session("s1")
    forgotten = await limiter.acquire("umans")
    await clock.advance(1000.0)
    forgotten.release()
    assert ends == [("slot.released", ended_by_name.id), ("slot.reclaimed", forgotten.id)]


async def test_on_queued_may_release_the_slot_that_is_waited_for() -> None:
    limiter = Limiter(limits={"umans": 1})
    held = await limiter.acquire("umans")
    slot = await limiter.acquire("umans", timeout=60.0, on_queued=lambda _: held.release())
    slot.release()
    assert limiter._waiters._timeouts == {}


async def test_on_queued_that_raises_leaves_the_line() -> None:
    def refuse(_: object) -> None:
        raise KeyError("no")

    limiter = Limiter(limits={"umans": 1})
    held = await limiter.acquire("umans")
    with pytest.raises(KeyError):
        await limiter.acquire("umans", timeout=60.0, on_queued=refuse)
    status = limiter.scope_status("umans")
    assert status is not None
    assert status.queued == 0
    held.release()


# -- one context, many tasks ------------------------------------------------------------------------


async def test_one_slot_context_entered_twice_at_once_is_refused_and_leaks_nothing() -> None:
    limiter = Limiter(limits={"umans": 2})
    context = limiter.slot("umans")

    async def work() -> None:
        async with context:
            await asyncio.sleep(0.01)

    outcomes = await asyncio.gather(work(), work(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), RuntimeError]
    await work()  # one after the other is well
    assert limiter.status().active_runs == 0


async def test_a_slot_context_can_be_used_again_after_its_wait_ran_out() -> None:
    limiter = Limiter(limits={"umans": 1})
    context = limiter.slot("umans", timeout=0.01)
    held = await limiter.acquire("umans")
    with pytest.raises(SlotTimeout):
        await context.__aenter__()
    held.release()
    async with context:
        assert limiter.status().active_runs == 1
    assert limiter.status().active_runs == 0


# -- closing -----------------------------------------------------------------------------------------


async def test_closing_does_not_wait_for_a_usage_source_that_will_not_be_cancelled() -> None:
    stop = asyncio.Event()

    async def stubborn() -> Usage | None:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        return Usage(concurrent_sessions=0)

    limiter = Limiter(limits={"umans": 1}, usage={"umans": stubborn})
    held = await limiter.acquire("umans")
    waiting = asyncio.create_task(limiter.acquire("umans"))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(limiter.aclose(), SOON)
    with pytest.raises(CapacityError):
        await waiting
    held.release()
    stop.set()


async def test_a_slot_released_after_closing_arms_no_timer() -> None:
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 1}, cooldown=10.0, clock=clock)
    held = await limiter.acquire("umans")
    await limiter.aclose()
    held.release()
    assert limiter._driver._timer is None


async def test_a_late_answer_of_a_source_that_was_given_up_is_not_taken_for_a_new_one() -> None:
    clock = VirtualClock()
    answers: list[asyncio.Future[Usage]] = []

    async def slow() -> Usage | None:
        answers.append(asyncio.get_running_loop().create_future())
        while True:
            try:
                return await asyncio.shield(answers[0])
            except asyncio.CancelledError:
                continue

    limiter = Limiter(limits={"umans": 2}, usage={"umans": slow}, clock=clock)
    held = [await limiter.acquire("umans"), await limiter.acquire("umans")]
    waiting = asyncio.create_task(limiter.acquire("umans"))
    await clock.advance(6.5)  # the first question was given up, a second one is out
    assert len(answers) > 1
    newest = limiter._driver._polls.asked["umans"]
    answers[0].set_result(Usage(concurrent_sessions=0))
    await clock.advance(0)
    assert newest.done()
    waiting.cancel()
    for slot in held:
        slot.release()
    await limiter.aclose()


# -- clocks ------------------------------------------------------------------------------------------


async def test_a_clock_that_is_set_back_makes_no_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """LESSONS 33: an hour back must not turn a pause of a tenth of a second into an hour."""
    offset = 0.0

    class Wall:
        @staticmethod
        def time() -> float:
            return time.time() + offset

    monkeypatch.setattr(paceline.clock, "time", Wall)
    monkeypatch.setattr(paceline.clock.SystemClock, "now", staticmethod(Wall.time))
    limiter = Limiter(limits={"umans": 1, "full": 1})
    held = await limiter.acquire("full")
    limiter.report_rate_limit("umans", retry_after=0.2)
    paused = asyncio.create_task(limiter.acquire("umans"))
    late = asyncio.create_task(limiter.acquire("full", timeout=0.2))
    nap = asyncio.create_task(paceline.clock.SystemClock().sleep(0.2))
    await asyncio.sleep(0.02)
    offset = -3600.0
    async with asyncio.timeout(SOON):
        (await paused).release()
        with pytest.raises(SlotTimeout):
            await late
        await nap
    held.release()
    await limiter.aclose()


# -- restarts ----------------------------------------------------------------------------------------


def stored(limiter: Limiter) -> Snapshot:
    return msgspec.json.decode(msgspec.json.encode(limiter.snapshot()), type=Snapshot)


async def test_nobody_who_waited_before_a_restart_takes_a_place_after_it() -> None:
    """The pause ends while the process is down: its waiters are gone and must not be let in."""
    clock = VirtualClock(start=100.0)
    limiter = Limiter(limits={"umans": 4}, clock=clock)
    limiter.report_rate_limit("umans", retry_after=10.0)

    async def work() -> None:
        async with limiter.slot("umans"):
            pass

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await clock.advance(0)
    again = Limiter(limits={"umans": 4}, clock=VirtualClock(start=120.0), restore=stored(limiter))
    assert again.status().active_runs == 0
    assert isinstance(again.try_acquire("umans"), Slot)
    await limiter.aclose()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_runs_and_slots_without_a_session_of_their_own_keep_their_owner_over_a_restart() -> None:
    clock = VirtualClock(start=100.0)
    limiter = Limiter(limits={"umans": 4}, clock=clock)
    limiter.acquire_run("s1", "r1")
    limiter.try_acquire("umans", session="s1")
    again = Limiter(limits={"umans": 4}, clock=clock, restore=stored(limiter))
    with pytest.raises(TicketConflict, match="'s1'"):
        again.acquire_run("s2", "r1")
    assert again.status().active_runs == 2
    again.release_session("s1")
    assert again.status().active_runs == 0


async def test_a_snapshot_of_the_first_version_is_restored_with_its_slots_and_sessions() -> None:
    """Its slots are named `slot-1`, ours `slot:1`. One is its session's, the other ends with its lease."""
    snapshot = msgspec.json.decode(VERSION_1.read_bytes(), type=Snapshot)
    clock = VirtualClock(start=110.0)
    limiter = Limiter(limits={"umans": 4}, clock=clock, restore=snapshot)
    assert (limiter.status().active_sessions, limiter.status().active_runs) == (1, 3)
    slot = limiter.try_acquire("umans")
    assert isinstance(slot, Slot)
    assert slot.id == "slot:1"
    limiter.release_session("s2")
    assert limiter.status().active_runs == 3
    limiter.release_session("s1")
    assert (limiter.status().active_sessions, limiter.status().active_runs) == (0, 2)
    slot.release()
    await clock.advance(1000.0)
    assert limiter.status().active_runs == 0
    await limiter.aclose()


async def test_slots_are_numbered_on_after_a_restart() -> None:
    clock = VirtualClock(start=100.0)
    limiter = Limiter(clock=clock)
    first = limiter.try_acquire("umans")
    again = Limiter(clock=clock, restore=stored(limiter))
    second = again.try_acquire("umans")
    assert isinstance(first, Slot)
    assert isinstance(second, Slot)
    assert (first.id, second.id) == ("slot:1", "slot:2")


async def test_a_named_place_that_was_given_on_after_a_restart_is_asked_for_anew() -> None:
    """It was answered as held, and two held the one place."""
    clock = VirtualClock(start=100.0)
    limiter = Limiter(max_parallel_sessions=1, clock=clock)
    limiter.acquire_session("s1")
    again = Limiter(max_parallel_sessions=1, clock=clock, restore=stored(limiter))
    await clock.advance(1000.0)
    again.acquire_session("s2")
    with pytest.raises(MaxSessionsExceeded):
        again.acquire_session("s1")
    again.release_session("s2")
    again.acquire_session("s1")
    assert again.status().active_sessions == 1
    await clock.advance(1000.0)
    assert again.status().active_sessions == 1


@pytest.mark.parametrize("snapshot", [{}, b"{}", "later", 5])
def test_what_is_no_snapshot_is_refused_by_name(snapshot: Snapshot) -> None:
    with pytest.raises(InvalidSnapshot, match=str(snapshot)[:3]):
        Limiter(restore=snapshot)


async def test_a_session_acquired_after_its_runs_lets_them_use_its_place() -> None:
    limiter = Limiter(limits={"umans": 1}, clock=VirtualClock())
    (await limiter.acquire("umans", session="s1")).release()
    limiter.acquire_session("s1", scope="umans")
    assert isinstance(limiter.try_acquire("umans", session="s1"), Slot)


# -- three endings -----------------------------------------------------------------------------------


async def test_a_slot_that_is_abandoned_reopens_no_window() -> None:
    """A canary that never reached the provider says nothing of its quota."""
    clock = VirtualClock()
    limiter = Limiter(limits={"umans": 2}, clock=clock)
    limiter.report("umans", QuotaClosed(resets_at=100.0, window="5h"))
    await clock.advance(100.0)

    (await limiter.acquire("umans")).abandon()
    abandoned = limiter.scope_status("umans")
    (await limiter.acquire("umans")).release()
    released = limiter.scope_status("umans")

    assert abandoned is not None
    assert released is not None
    assert [(status.in_flight, status.windows[0].state) for status in (abandoned, released)] == [
        (0, "closed"),
        (0, "wave"),
    ]
    await limiter.aclose()
