"""The virtual clock: time that moves only on request. No real time passes here."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

from paceline.errors import InvalidDuration

_MOST_ROUNDS = 1_000_000
"""Far more than any real chain of callbacks: a loop that needs more has a task that never waits."""
_ROUNDS_WITHOUT_QUEUE = 100
"""Longer than the chains of callbacks in this code base."""


class VirtualClock:
    """A clock that you move yourself.

    Tasks that `sleep` on it wait until `advance` moves time past their wake-up:

        clock = VirtualClock()
        task = asyncio.create_task(agent(clock))   # sleeps 5 s, asks for a slot, sleeps 10 s
        await clock.advance(15.0)                  # all of that has happened, in order, at once
        assert task.done()

    It never moves by itself. So a test that forgets to advance hangs at once instead of passing by luck.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = _finite(start, "start")
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._arrivals = itertools.count()
        self._advancing = False

    def now(self) -> float:
        """Return the time on the clock, in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> "VirtualTimer":
        """Call back on the running loop once `now() >= when`; soon if that is already so."""
        timer = VirtualTimer(callback)
        if _finite(when, "when") <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (when, next(self._arrivals), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock. Yields to other tasks once if `seconds` is not positive."""
        if _finite(seconds, "seconds") <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_at(self._now + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time forward. Every timer that falls due meanwhile fires in order, at its own time.

        After each timer all tasks run until they wait again; only then does time move on. Tasks that wait for
        something outside the clock (a socket, a thread) are not waited for.
        """
        if _finite(seconds, "seconds") < 0:
            raise InvalidDuration(f"advance goes forward only, use step to go back; got {seconds!r}")
        self._refuse_while_advancing("advance")
        self._advancing = True
        try:
            await self._run_until(self._now + seconds)
        finally:
            self._advancing = False

    def step(self, seconds: float) -> None:
        """Set the clock forward or back, as NTP or a suspended laptop does: the time in between never happens.

        Timers keep the time for which they were set. Timers that are overdue after a step forward fire at the next
        `advance` (`advance(0)` is enough), all at the time it is then.
        """
        self._refuse_while_advancing("step")
        self._now += _finite(seconds, "seconds")

    async def _run_until(self, target: float) -> None:
        loop = asyncio.get_running_loop()
        await run_ready_tasks()
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._now = max(self._now, when)
            loop.call_soon(timer.fire)
            await run_ready_tasks()
        self._now = target

    def _refuse_while_advancing(self, verb: str) -> None:
        if self._advancing:
            raise RuntimeError(f"{verb} while another task advances this clock; only one task may move it at a time")


class VirtualTimer:
    """A pending call, as returned by `call_at`."""

    __slots__ = ("_callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call. No-op once it was made."""
        self.cancelled = True

    def fire(self) -> None:
        """Make the call, unless it was cancelled."""
        if not self.cancelled:
            self._callback()


async def run_ready_tasks() -> None:
    """Run all tasks until each of them waits for something.

    asyncio has no public way to ask whether a callback is ready, so this reads the loop's own queue. A loop without
    such a queue gets a fixed, generous number of rounds.
    """
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    rounds = _ROUNDS_WITHOUT_QUEUE if ready is None else _MOST_ROUNDS
    for _ in range(rounds):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
    if ready is not None:
        raise RuntimeError(f"the loop is still busy after {rounds} rounds: a task never waits")


def _finite(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidDuration(f"{name} must be a finite number of seconds; got {value!r:.80}")
    return float(value)
