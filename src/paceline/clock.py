"""The source of time. Everything that waits, or that stamps a time, takes a Clock, so that tests can skip time.

Paceline counts in wall time (Unix seconds): quota windows follow the wall clock, and a laptop that was suspended must
find its waits over. `SystemClock` therefore never sleeps longer than `LONGEST_NAP_SECONDS` at once. It wakes, reads the
wall clock, and sleeps again if needed. Setting the clock back makes no wait longer: a timer keeps its remaining time.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

LONGEST_NAP_SECONDS = 30.0
"""How late a wait can end after a suspend, against two wake-ups a minute for every timer."""
SET_BACK_SECONDS = 1.0
"""A smaller step back is ordinary clock correction, and moves no timer."""


def seconds_since_boot() -> float:
    """Return the time of a clock that nobody can set. It also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class TimerHandle(Protocol):
    """A pending call of `Clock.call_at`."""

    def cancel(self) -> None:
        """Cancel the call. No-op after it was made."""


class Clock(Protocol):
    """A wall clock with timers."""

    def now(self) -> float:
        """Return the wall time in Unix seconds."""

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back on the running loop once `now() >= when`.

        If the clock was set back, the call may come sooner: callers check the time again.
        """

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of wall time have passed."""


class SystemClock:
    """The clock of the operating system."""

    now = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        return _WallTimer(when, callback)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        timer = self.call_at(time.time() + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()


class _WallTimer:
    """A loop timer that follows the wall clock across sleep and clock steps."""

    __slots__ = ("_armed_at", "_callback", "_handle", "_loop", "_when")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self._when = when
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        now = time.time()
        self._armed_at = now - self._loop.time()
        left = max(0.0, self._when - now)
        return self._loop.call_later(min(left, LONGEST_NAP_SECONDS), self._check)

    def _check(self) -> None:
        now = time.time()
        stepped = now - self._loop.time() - self._armed_at
        if stepped < -SET_BACK_SECONDS:
            self._when += stepped
        if now >= self._when:
            self._callback()
        else:
            self._handle = self._arm()

    def cancel(self) -> None:
        self._handle.cancel()
