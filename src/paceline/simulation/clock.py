"""VirtualClock: time that moves only when a test says so. No real time ever passes here."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

from paceline.errors import InvalidDuration

_MOST_ROUNDS = 1_000_000
_ROUNDS_WITHOUT_A_LOOK = 100


class VirtualClock:
    """A clock whose hands are yours.

    Tasks that `sleep` here stand still until `advance` carries them through the time in between:

        clock = VirtualClock()
        task = asyncio.create_task(agent(clock))   # sleeps 5 s, asks for a slot, sleeps 10 s
        await clock.advance(15.0)                  # all of it has happened, in order, in no time
        assert task.done()

    It never moves by itself, so a test that forgets to advance hangs at once instead of passing by luck.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = _finite(start, "start")
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._arrivals = itertools.count()
        self._advancing = False

    def now(self) -> float:
        """The time on the clock, in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> "VirtualTimer":
        """Call back on the running loop once `now() >= when`; at once where that is already so."""
        timer = VirtualTimer(callback)
        if _finite(when, "when") <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (when, next(self._arrivals), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock; yields once where there is nothing to wait for."""
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
        """Let `seconds` pass: all that falls due in between happens in order, each at its own time.

        After each timer every task that can go on does so, as far as it can, before time moves again.
        What waits for something outside (a socket, a thread) is not waited for.
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
        """Set the clock forward or back, as NTP or a lid that was closed does: the time between never happens.

        Timers keep the time of day they were set for. Those that are overdue after a step forward
        fire at the next `advance` (`advance(0)` will do), all at the time it is then.
        """
        self._refuse_while_advancing("step")
        self._now += _finite(seconds, "seconds")

    async def _run_until(self, target: float) -> None:
        loop = asyncio.get_running_loop()
        await settle()
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._now = max(self._now, when)
            loop.call_soon(timer.fire)
            await settle()
        self._now = target

    def _refuse_while_advancing(self, verb: str) -> None:
        if self._advancing:
            raise RuntimeError(f"{verb} while another task advances this clock: one hand on the clock at a time")


class VirtualTimer:
    """What `call_at` returns."""

    __slots__ = ("_callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Forget the call; does nothing once it was made."""
        self.cancelled = True

    def fire(self) -> None:
        """Make the call, unless it was cancelled."""
        if not self.cancelled:
            self._callback()


async def settle() -> None:
    """Let every task that can go on do so, until all of them wait for something.

    asyncio has no public way to ask whether anything is ready, so this looks at the loop's own queue;
    a loop that does not show one is given a fixed, generous number of rounds.
    """
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    rounds = _ROUNDS_WITHOUT_A_LOOK if ready is None else _MOST_ROUNDS
    for _ in range(rounds):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
    if ready is not None:
        raise RuntimeError(f"the loop does not come to rest: something is still spinning after {rounds} rounds")


def _finite(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidDuration(f"{name} must be a finite number of seconds; got {value!r:.80}")
    return float(value)
