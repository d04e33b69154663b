"""A slot of the daemon: its renewal, its release, and the `async with` around it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType

import httpx

from paceline.client.daemon_calls import DaemonConnection, Json, SlotReply, decode_reply, signal_body, text_of_problem
from paceline.clock import Clock
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal
from paceline.errors import DaemonError, SlotLost

log = logging.getLogger("paceline.client")

RENEWALS_PER_LEASE = 3
"""Two renewals may fail before the lease expires, and renewals stay rare."""
LONGEST_RETRY_SECONDS = 1.0
"""Between two calls to renew while the daemon is away: it must be noticed quickly when it is back."""
RELEASE_PAUSES = (0.1, 0.4, 1.5)
"""Seconds between calls to release at the end of a block. A restarting daemon is back soon; after that the lease
expires by itself."""


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
            decode_reply(await self._daemon.send("DELETE", f"/v1/slots/{self.id}{query}"), Json)
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
