"""VirtualClock: time moves only on request, and everything in between happens in order."""

import asyncio
from collections.abc import Callable

import pytest

from paceline.clock import Clock
from paceline.errors import InvalidDuration
from paceline.testing import VirtualClock


def noting(seen: list[tuple[str, float]], clock: VirtualClock, name: str) -> Callable[[], object]:
    return lambda: seen.append((name, clock.now()))


def test_is_a_clock() -> None:
    clock: Clock = VirtualClock(start=12.5)
    assert clock.now() == 12.5


async def test_timers_fire_in_order_each_at_its_own_time() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    clock.call_at(3.0, noting(seen, clock, "late"))
    clock.call_at(1.0, noting(seen, clock, "early"))
    clock.call_at(1.0, noting(seen, clock, "early, second"))
    clock.call_at(9.0, noting(seen, clock, "not yet"))

    await clock.advance(5.0)

    assert seen == [("early", 1.0), ("early, second", 1.0), ("late", 3.0)]
    assert clock.now() == 5.0


async def test_a_timer_at_the_very_end_of_an_advance_fires() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    clock.call_at(5.0, noting(seen, clock, "edge"))
    await clock.advance(5.0)
    assert seen == [("edge", 5.0)]


async def test_a_timer_set_for_the_past_fires_at_once() -> None:
    clock = VirtualClock(start=10.0)
    seen: list[tuple[str, float]] = []
    clock.call_at(10.0, noting(seen, clock, "now"))
    clock.call_at(4.0, noting(seen, clock, "past"))
    await clock.advance(0)
    assert seen == [("now", 10.0), ("past", 10.0)]


async def test_a_cancelled_timer_never_fires() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    timer = clock.call_at(1.0, noting(seen, clock, "cancelled"))
    due = clock.call_at(0.0, noting(seen, clock, "cancelled though due"))
    timer.cancel()
    due.cancel()
    await clock.advance(2.0)
    timer.cancel()
    assert seen == []


async def test_tasks_run_as_far_as_they_can_before_time_moves_on() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []

    async def relay(name: str, hops: int) -> None:
        for _ in range(hops):
            await asyncio.sleep(0)
        seen.append((name, clock.now()))

    async def worker(name: str, nap: float) -> None:
        await clock.sleep(nap)
        await asyncio.create_task(relay(name, hops=20))
        await clock.sleep(nap)
        seen.append((name + " again", clock.now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(worker("a", 1.0))
        group.create_task(worker("b", 1.5))
        await clock.advance(10.0)

    assert seen == [("a", 1.0), ("b", 1.5), ("a again", 2.0), ("b again", 3.0)]


async def test_a_timer_set_by_a_timer_within_the_same_advance_fires_in_it() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    clock.call_at(1.0, lambda: clock.call_at(clock.now() + 1.0, noting(seen, clock, "second")))
    await clock.advance(2.0)
    assert seen == [("second", 2.0)]


async def test_sleep_can_be_cancelled_and_leaves_nothing_behind() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5.0))
    await clock.advance(1.0)
    task.cancel()
    await clock.advance(10.0)
    assert task.cancelled()


@pytest.mark.parametrize("seconds", [0.0, -3.0])
async def test_sleep_of_nothing_yields_once_and_returns(seconds: float) -> None:
    clock = VirtualClock()
    await clock.sleep(seconds)
    assert clock.now() == 0.0


async def test_a_step_back_leaves_timers_at_their_time_of_day() -> None:
    clock = VirtualClock(start=100.0)
    seen: list[tuple[str, float]] = []
    clock.call_at(110.0, noting(seen, clock, "later"))
    clock.step(-50.0)
    await clock.advance(59.0)
    assert seen == []
    await clock.advance(1.0)
    assert seen == [("later", 110.0)]


async def test_a_step_forward_skips_the_time_between() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    clock.call_at(1.0, noting(seen, clock, "first"))
    clock.call_at(2.0, noting(seen, clock, "second"))
    clock.step(3600.0)
    assert seen == []
    await clock.advance(0)
    assert seen == [("first", 3600.0), ("second", 3600.0)]


async def test_only_one_hand_on_the_clock() -> None:
    clock = VirtualClock()
    refused: list[str] = []

    async def meddle(move: Callable[[], object]) -> None:
        await clock.sleep(1.0)
        with pytest.raises(RuntimeError) as caught:
            move()
        refused.append(str(caught.value))

    async def meddle_with_advance() -> None:
        await clock.sleep(1.0)
        with pytest.raises(RuntimeError) as caught:
            await clock.advance(1.0)
        refused.append(str(caught.value))

    async with asyncio.TaskGroup() as group:
        group.create_task(meddle(lambda: clock.step(1.0)))
        group.create_task(meddle_with_advance())
        await clock.advance(2.0)

    ending = "while another task advances this clock; only one task may move it at a time"
    assert refused == [f"step {ending}", f"advance {ending}"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, None, "5"])
async def test_bad_values_are_refused_and_change_nothing(value: object) -> None:
    clock = VirtualClock(start=1.0)
    for call in (clock.advance, clock.sleep):
        with pytest.raises(InvalidDuration, match="must be a finite number of seconds"):
            await call(value)  # type: ignore[arg-type]
    with pytest.raises(InvalidDuration, match="must be a finite number of seconds"):
        clock.step(value)  # type: ignore[arg-type]
    with pytest.raises(InvalidDuration, match="must be a finite number of seconds"):
        clock.call_at(value, lambda: None)  # type: ignore[arg-type]
    with pytest.raises(InvalidDuration, match="must be a finite number of seconds"):
        VirtualClock(start=value)  # type: ignore[arg-type]
    assert clock.now() == 1.0


async def test_advance_does_not_go_back() -> None:
    clock = VirtualClock()
    with pytest.raises(InvalidDuration, match=r"advance goes forward only, use step to go back; got -1\.0"):
        await clock.advance(-1.0)


async def test_a_loop_that_never_rests_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.simulation.clock._MOST_ROUNDS", 50)

    async def spin() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    task = asyncio.create_task(spin())
    with pytest.raises(RuntimeError, match="is still busy after"):
        await VirtualClock().advance(1.0)
    task.cancel()
