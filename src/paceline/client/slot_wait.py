"""A wait for a slot, over as many calls as it takes: it outlasts a connection, and a daemon that is started anew."""

from collections.abc import Awaitable, Callable

import httpx

from paceline.client.slot import ClientSlot
from paceline.clock import Clock
from paceline.core import Deferred
from paceline.errors import DaemonUnreachable, SlotTimeout
from paceline.limiter.slot import OnQueued

POLL_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0

Take = Callable[[float], Awaitable[ClientSlot | Deferred]]
"""One call, that waits for so many seconds. All calls of a wait have one key."""


class Wait:
    """A daemon that was there and is away is waited for, `patience` seconds at most; one that never was is not."""

    def __init__(self, take: Take, *, clock: Clock, timeout: float | None, patience: float) -> None:
        self._take = take
        self._clock = clock
        self._timeout = timeout
        self._until = None if timeout is None else clock.now() + timeout
        self._patience = patience
        self._was_in_touch = False
        self._failing_since: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    async def slot(self, on_queued: OnQueued) -> ClientSlot:
        wait = self._next_wait() if on_queued is None else 0.0  # to know at once whether there is a line
        while True:
            try:
                answer = await self._take(wait)
            except DaemonUnreachable as error:
                await self._outlast(error)
            else:
                if isinstance(answer, ClientSlot):
                    return answer
                self._was_in_touch, self._failing_since, self._pause = True, None, FIRST_PAUSE_SECONDS
                if on_queued is not None:
                    on_queued(answer)
                    on_queued = None
                if self._next_wait() <= 0:
                    raise SlotTimeout(f"no slot within {self._timeout:g} s: {answer.detail}", answer)
            wait = self._next_wait()

    def _next_wait(self) -> float:
        return POLL_SECONDS if self._until is None else min(POLL_SECONDS, max(0.0, self._until - self._clock.now()))

    async def _outlast(self, error: DaemonUnreachable) -> None:
        now = self._clock.now()
        could_not_connect = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
        if could_not_connect and not self._was_in_touch:
            raise error
        self._was_in_touch = True
        self._failing_since = now if self._failing_since is None else self._failing_since
        if self._next_wait() <= 0:
            raise SlotTimeout(f"no slot within {self._timeout:g} s: {error}") from error
        if now - self._failing_since >= self._patience:
            raise error
        await self._clock.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
