"""A slot of the daemon in the caller's hands, and the `async with` around it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType

import httpx

from paceline.client.daemon_calls import Json, SlotAnswer, Wire, problem_of, read, signal_body
from paceline.clock import Clock
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal
from paceline.errors import DaemonError, SlotLost

log = logging.getLogger("paceline.client")

RENEWALS_PER_LEASE = 3
LONGEST_RETRY_SECONDS = 1.0
RELEASE_PAUSES = (0.1, 0.4, 1.5)
"""Between tries to release at the end of a block: a daemon that is started anew is soon back."""


class ClientSlot:
    """A slot of the daemon. Whoever has it from `acquire` renews it within its `ttl`, and releases it."""

    def __init__(
        self,
        wire: Wire,
        clock: Clock,
        answer: SlotAnswer,
        *,
        session: str | None,
        ttl: float,
        began: float,
        sent: float,
    ) -> None:
        self._wire = wire
        self._clock = clock
        self._answer = answer
        self._ttl = ttl
        self._kept_until = sent + ttl
        self._is_lost = False
        self._is_abandoned = False
        self.session = session
        self.waited = clock.now() - began
        self.granted_at = answer.expires_at - ttl
        self.released = False

    @property
    def id(self) -> str:
        return self._answer.id

    @property
    def scope(self) -> str:
        return self._answer.scope

    @property
    def token(self) -> int:
        """The fencing token: a later grant always has a larger one."""
        return self._answer.token

    @property
    def expires_at(self) -> float:
        """When the daemon gives the slot on unless it is renewed, on the daemon's clock."""
        return self._answer.expires_at

    @property
    def lost(self) -> bool:
        """The lease ran out while it was held: the place is given on. Reckoned here while no daemon can be asked."""
        return not self.released and (self._is_lost or self._clock.now() >= self._kept_until)

    async def renew(self) -> None:
        """Keep the slot for another `ttl`. `SlotLost` where it is too late."""
        sent = self._clock.now()
        self._answer = read(self._if_held(await self._wire.send("POST", f"/v1/slots/{self.id}/renew")), SlotAnswer)
        self._kept_until = sent + self._ttl

    async def release(self) -> None:
        """Give the slot back. Without a report before, it went well. Harmless when repeated."""
        if not self.released:
            query = "?abandon=true" if self._is_abandoned else ""
            read(await self._wire.send("DELETE", f"/v1/slots/{self.id}{query}"), Json)
            self.released = True

    async def abandon(self) -> None:
        """Give the slot back without a word on how it went: the call never reached the provider, say, or broke."""
        self._is_abandoned = True  # also for the end of the block, where the daemon is away just now
        await self.release()

    async def report(self, signal: Signal) -> None:
        """Tell what the provider answered. `SlotLost` where the slot is not ours any more."""
        body = signal_body(signal)
        read(self._if_held(await self._wire.send("POST", f"/v1/slots/{self.id}/signal", body)), Json)

    async def rate_limited(self, retry_after: float | None = None) -> None:
        await self.report(RateLimited(retry_after=retry_after))

    async def overloaded(self, retry_after: float | None = None) -> None:
        await self.report(Overloaded(retry_after=retry_after))

    async def quota_closed(self, resets_at: float | None = None, window: str | None = None) -> None:
        await self.report(QuotaClosed(resets_at=resets_at, window=window))

    def __repr__(self) -> str:
        return f"<ClientSlot {self.id} in {self.scope}>"

    def _if_held(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code in (404, 409):
            self._is_lost = True
            raise SlotLost(problem_of(answer))
        return answer

    async def keep(self) -> None:
        """Renew, again and again, until it is lost; a daemon that is away for a moment is asked again."""
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

    async def give_back(self) -> None:
        """Release at the end of a block, whose own outcome matters more than a daemon that is away."""
        for pause in RELEASE_PAUSES:
            try:
                await self.release()
                return
            except DaemonError as error:
                log.warning("%r could not be released: %s", self, error)
            await self._clock.sleep(pause)
        log.warning("%r is left to its lease, which runs out by itself", self)


class ClientSlotContext:
    """`async with client.slot(...)`: waits, hands out the slot, renews it, gives it back. Holds one slot at a time."""

    def __init__(self, acquire: Callable[[], Awaitable[ClientSlot]]) -> None:
        self._acquire = acquire
        self._is_entered = False

    async def __aenter__(self) -> ClientSlot:
        if self._is_entered:
            raise RuntimeError("this slot(...) is in use; write client.slot(...) again for each `async with`")
        self._is_entered = True
        try:
            self._slot = await self._acquire()
        except BaseException:
            self._is_entered = False
            raise
        self._keeping = asyncio.create_task(self._slot.keep())
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        self._keeping.cancel()
        await self._slot.give_back()
