"""Where time comes from. Everything that waits or stamps takes a Clock, so that tests can jump.

Wall time (Unix seconds) is what Paceline reckons in: quota windows are wall-clock things, and a
laptop that slept must find its waits over. `SystemClock` therefore never sleeps longer than
`LONGEST_NAP_SECONDS` in one go: it wakes, looks at the wall clock and sleeps on. A clock that was
set back makes no wait longer: timers keep what was left of them.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

LONGEST_NAP_SECONDS = 30.0
SET_BACK_SECONDS = 1.0


class TimerHandle(Protocol):
    """What `call_at` returns."""

    def cancel(self) -> None:
        """Forget the call; does nothing once it was made."""


class Clock(Protocol):
    """A wall clock that can also wake."""

    def now(self) -> float:
        """Wall time in Unix seconds."""

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back on the running loop once `now() >= when`; sooner if the clock was set back, so look again."""

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of wall time have passed."""


class SystemClock:
    """The real one."""

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
        return self._loop.call_later(min(left, LONGEST_NAP_SECONDS), self._look)

    def _look(self) -> None:
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
