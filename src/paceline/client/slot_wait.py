"""A wait for a slot over several calls. It survives a broken connection and a restart of the daemon."""

from collections.abc import Awaitable, Callable

import httpx

from paceline.client.slot import ClientSlot
from paceline.clock import Clock
from paceline.core import Deferred
from paceline.errors import DaemonUnreachable, SlotTimeout
from paceline.limiter.slot import OnQueued

POLL_SECONDS = 30.0
"""The longest wait in one call. Proxies and routers often cut idle connections after a minute."""
FIRST_PAUSE_SECONDS = 0.1
"""Before the second call to a daemon that is away. It doubles with every failure: a restart takes seconds."""
LONGEST_PAUSE_SECONDS = 2.0
"""The longest such pause. A waiter should return soon after the daemon does."""

Take = Callable[[float], Awaitable[ClientSlot | Deferred]]
"""One call that waits up to the given seconds. All calls of a wait share one idempotency key."""


class SlotWait:
    """The wait for one slot. A daemon that goes away is waited for, up to `patience` seconds; one that never answered
    is not."""

    def __init__(self, take: Take, *, clock: Clock, timeout: float | None, patience: float) -> None:
        self._take = take
        self._clock = clock
        self._timeout = timeout
        self._until = None if timeout is None else clock.now() + timeout
        self._patience = patience
        self._was_reachable = False
        self._failing_since: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    async def slot(self, on_queued: OnQueued) -> ClientSlot:
        wait = self._next_wait() if on_queued is None else 0.0  # learn at once whether there is a queue
        while True:
            try:
                reply = await self._take(wait)
            except DaemonUnreachable as error:
                await self._wait_for_daemon(error)
            else:
                if isinstance(reply, ClientSlot):
                    return reply
                self._was_reachable, self._failing_since, self._pause = True, None, FIRST_PAUSE_SECONDS
                if on_queued is not None:
                    on_queued(reply)
                    on_queued = None
                if self._next_wait() <= 0:
                    raise SlotTimeout(f"no slot within {self._timeout:g} s: {reply.detail}", reply)
            wait = self._next_wait()

    def _next_wait(self) -> float:
        return POLL_SECONDS if self._until is None else min(POLL_SECONDS, max(0.0, self._until - self._clock.now()))

    async def _wait_for_daemon(self, error: DaemonUnreachable) -> None:
        now = self._clock.now()
        could_not_connect = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
        if could_not_connect and not self._was_reachable:
            raise error
        self._was_reachable = True
        self._failing_since = now if self._failing_since is None else self._failing_since
        if self._next_wait() <= 0:
            raise SlotTimeout(f"no slot within {self._timeout:g} s: {error}") from error
        if now - self._failing_since >= self._patience:
            raise error
        await self._clock.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
