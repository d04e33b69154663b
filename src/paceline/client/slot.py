"""A slot of the daemon: the wait for it over several calls, its renewal, its release, and its `async with`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType

import httpx

from paceline.client.daemon_calls import DaemonConnection, Json, SlotReply, decode_reply, signal_body, text_of_problem
from paceline.clock import Clock
from paceline.core import Deferred
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal
from paceline.errors import DaemonError, DaemonUnreachable, SlotLost, SlotTimeout
from paceline.limiter.slot import OnQueued

log = logging.getLogger("paceline.client")

RENEWALS_PER_LEASE = 3
"""Two renewals may fail before the lease expires, and renewals stay rare."""
LONGEST_RETRY_SECONDS = 1.0
"""Between two calls to renew while the daemon is away: it must be noticed quickly when it is back."""
RELEASE_PAUSES = (0.1, 0.4, 1.5)
"""Seconds between calls to release at the end of a block. A restarting daemon is back soon; after that the lease
expires by itself."""

POLL_SECONDS = 30.0
"""The longest wait in one call. Proxies and routers often cut idle connections after a minute."""
FIRST_PAUSE_SECONDS = 0.1
"""Before the second call to a daemon that is away. It doubles with every failure: a restart takes seconds."""
LONGEST_PAUSE_SECONDS = 2.0
"""The longest such pause. A waiter should return soon after the daemon does."""


class ClientSlot:
    """A slot of the daemon. A caller of `acquire` must renew it within its `ttl`, and release it."""

    def __init__(
        self,
        daemon: DaemonConnection,
        clock: Clock,
        reply: SlotReply,
        *,
        session: str | None,
        ttl: float,
        began: float,
        sent: float,
    ) -> None:
        self._daemon = daemon
        self._clock = clock
        self._reply = reply
        self._ttl = ttl
        self._kept_until = sent + ttl
        self._is_lost = False
        self._is_abandoned = False
        self.session = session
        self.waited = clock.now() - began
        self.granted_at = reply.expires_at - ttl
        self.released = False

    @property
    def id(self) -> str:
        return self._reply.id

    @property
    def scope(self) -> str:
        return self._reply.scope

    @property
    def token(self) -> int:
        """The fencing token: a later grant always has a larger one."""
        return self._reply.token

    @property
    def expires_at(self) -> float:
        """When the lease expires unless it is renewed, on the daemon's clock."""
        return self._reply.expires_at

    @property
    def lost(self) -> bool:
        """Whether the lease expired before the release. While the daemon is away, computed on the local clock."""
        return not self.released and (self._is_lost or self._clock.now() >= self._kept_until)

    async def renew(self) -> None:
        """Extend the lease by another `ttl`. Raises `SlotLost` if it has expired."""
        sent = self._clock.now()
        self._reply = decode_reply(
            self._checked(await self._daemon.send("POST", f"/v1/slots/{self.id}/renew")), SlotReply
        )
        self._kept_until = sent + self._ttl

    async def release(self) -> None:
        """Release the slot. Without an earlier report, the call counts as a success. Repeating has no effect."""
        if not self.released:
            query = "?abandon=true" if self._is_abandoned else ""
            await self._daemon.call("DELETE", f"/v1/slots/{self.id}{query}")
            self.released = True

    async def abandon(self) -> None:
        """Release the slot without an outcome, because the call never reached the provider, or broke."""
        self._is_abandoned = True  # remembered for the end of the block, if the daemon is away now
        await self.release()

    async def report(self, signal: Signal) -> None:
        """Report a signal of the provider. Raises `SlotLost` if the lease has expired."""
        body = signal_body(signal)
        decode_reply(self._checked(await self._daemon.send("POST", f"/v1/slots/{self.id}/signal", body)), Json)

    async def rate_limited(self, retry_after: float | None = None) -> None:
        await self.report(RateLimited(retry_after=retry_after))

    async def overloaded(self, retry_after: float | None = None) -> None:
        await self.report(Overloaded(retry_after=retry_after))

    async def quota_closed(self, resets_at: float | None = None, window: str | None = None) -> None:
        await self.report(QuotaClosed(resets_at=resets_at, window=window))

    def __repr__(self) -> str:
        return f"<ClientSlot {self.id} in {self.scope}>"

    def _checked(self, response: httpx.Response) -> httpx.Response:
        """Return the response. Raises `SlotLost` if the daemon does not know the slot any more."""
        if response.status_code in (404, 409):
            self._is_lost = True
            raise SlotLost(text_of_problem(response))
        return response

    async def keep_renewed(self) -> None:
        """Renew until the slot is lost. If the daemon is away, retry soon."""
        pause = self._ttl / RENEWALS_PER_LEASE
        while True:
            await self._clock.sleep(pause)
            try:
                await self.renew()
                pause = self._ttl / RENEWALS_PER_LEASE
            except SlotLost as error:
                log.warning("%r is lost: %s", self, error)
                return
            except DaemonError as error:
                log.warning("%r could not be renewed: %s", self, error)
                pause = min(LONGEST_RETRY_SECONDS, self._ttl / RENEWALS_PER_LEASE)

    async def release_at_end(self) -> None:
        """Release at the end of a block. A daemon that is away is logged and does not fail the block."""
        for pause in RELEASE_PAUSES:
            try:
                await self.release()
                return
            except DaemonError as error:
                log.warning("%r could not be released: %s", self, error)
            await self._clock.sleep(pause)
        log.warning("%r was not released; its lease will expire", self)


class ClientSlotContext:
    """The `async with` of `client.slot(...)`: it waits, renews the slot, and releases it. One slot at a time."""

    def __init__(self, acquire: Callable[[], Awaitable[ClientSlot]]) -> None:
        self._acquire = acquire
        self._is_entered = False

    async def __aenter__(self) -> ClientSlot:
        if self._is_entered:
            raise RuntimeError("this slot(...) is in use; call client.slot(...) again for each `async with`")
        self._is_entered = True
        try:
            self._slot = await self._acquire()
        except BaseException:
            self._is_entered = False
            raise
        self._renewal = asyncio.create_task(self._slot.keep_renewed())
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        self._renewal.cancel()
        await self._slot.release_at_end()


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
