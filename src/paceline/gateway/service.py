"""The running gateway: what all exchanges share, the one timer for all time-outs, and the shutdown.

Here: the limiter, the connection pools, the set of live exchanges. Never here: the course of one request.
"""

import asyncio
import contextlib
from typing import Protocol

import msgspec

from paceline.clock import Clock
from paceline.core.values.verdicts import Deferred
from paceline.errors import CapacityError
from paceline.gateway.exchange import Exchange
from paceline.gateway.key_pools import KeyPools
from paceline.gateway.request_access import RequestAccess, RequestHead, UpstreamRequest
from paceline.gateway.request_accounting import RequestAccounting
from paceline.gateway.spend_ledger import SpendLedger
from paceline.gateway.upstream_call import SignalReporter
from paceline.gateway.upstream_pool import Origin, UpstreamPool
from paceline.limiter import Limiter
from paceline.metrics import MetricsRegistry
from paceline.settings.model import price_list


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The longest time for each step, in seconds."""

    max_wait: float = 600.0
    """For a slot, unless the client names another time. As long as the usual time-out of the SDKs."""
    connect: float = 10.0
    """To open an upstream connection. A healthy provider needs well under a second."""
    first_byte: float = 600.0
    """From the last byte sent upstream to the first byte of the response. Models can think for minutes."""
    upstream_idle: float = 300.0
    """Between two pieces of a response, whichever side does not move."""
    head: float = 20.0
    """For a client to send the whole head of a request. A slow client must not hold a connection forever."""
    body_idle: float = 60.0
    """Between two pieces of a client's body."""
    pooled: float = 30.0
    """For an unused upstream connection. Servers often close theirs after a minute: we close first."""
    check_interval: float = 1.0
    """Between two checks of all these limits. It is how late a time-out may be noticed."""


RESTART_SECONDS = 10.0
"""The usual length of a daemon restart. Clients that retry sooner meet a closed port."""
CLOSING_SECONDS = 1.0
"""How long the end waits for exchanges to count what they have used, which takes them a moment."""
NEXT_LEADER_SECONDS = 1.0
"""When to retry after this engine has lost the lead: the request is then passed on to the next leader."""


class TimeChecked(Protocol):
    """Something with time-outs of its own: an exchange or a client's connection."""

    def check_time(self, now: float) -> None: ...


class Gateway:
    """The gateway on one event loop, the one it is created on. `limiter` may belong to an engine or stand alone.

    Without a limiter no slot can be granted, so requests are not served here: another engine leads.
    """

    def __init__(
        self,
        limiter: Limiter | None,
        access: RequestAccess,
        *,
        clock: Clock,
        metrics: MetricsRegistry,
        timeouts: Timeouts | None = None,
        spend: SpendLedger | None = None,
    ) -> None:
        self._limiter = limiter
        self.access = access
        self.clock = clock
        self.metrics = metrics
        self.timeouts = timeouts or Timeouts()
        self.loop = asyncio.get_running_loop()
        self.reporter = SignalReporter(clock)
        self.spend = spend or SpendLedger(price_list(), clock)
        self.calls = RequestAccounting(clock, self.spend, metrics)
        self.calls.why = self._why
        self.model_names = self.calls.model_names
        self.key_pools = KeyPools(access, self.model_names, self.spend)
        self.calls.failures = self.key_pools.failures.listed
        self.live: set[Exchange] = set()
        """The exchanges that are being served."""
        self.connections: set[TimeChecked] = set()
        self._pools: dict[Origin, UpstreamPool] = {}
        self._stops_at: float | None = None
        self._drained = asyncio.Event()
        """Set once the gateway stops and its last exchange has ended."""
        self._timer = self.loop.call_later(self.timeouts.check_interval, self._check_time)

    @property
    def serves_calls(self) -> bool:
        """Whether calls are answered here, be it with "the daemon is stopping"."""
        return self._limiter is not None or self.is_stopping

    @property
    def limiter(self) -> Limiter:
        """The limiter that grants the slots. Raises `CapacityError` if there is none now."""
        if self._limiter is None:
            raise CapacityError("this engine does not lead any more; try again")
        return self._limiter

    def use_limiter(self, limiter: Limiter | None, metrics: MetricsRegistry) -> None:
        """Let this limiter grant the slots from now on, and count there."""
        self._limiter = limiter
        self.metrics = self.calls.metrics = metrics
        self.reporter = SignalReporter(self.clock)

    def _why(self, ticket_id: str) -> Deferred | None:
        return None if self._limiter is None else self._limiter.why(ticket_id)

    def without_slot(self, head: RequestHead, request: UpstreamRequest) -> UpstreamRequest:
        """Return a request to a pool that takes no slot as it is sent: with the key of an account that is open."""
        return request if self._limiter is None else self.key_pools.without_slot(head, request, self._limiter)

    def pool(self, origin: Origin) -> UpstreamPool:
        """Return the connections to an upstream. Accounts with the same origin share them."""
        pool = self._pools.get(origin)
        if pool is None:
            timeouts = self.timeouts
            pool = UpstreamPool(origin, connect_seconds=timeouts.connect, idle_seconds=timeouts.pooled)
            self._pools[origin] = pool
        return pool

    # -- shutdown ----------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        return self._stops_at is not None

    @property
    def restart_seconds(self) -> float:
        """The time after which a client that is rejected now may find a running daemon."""
        if not self.serves_calls:
            return NEXT_LEADER_SECONDS
        left = 0.0 if self._stops_at is None else self._stops_at - self.loop.time()
        return max(0.0, left) + RESTART_SECONDS

    def stop_accepting(self, seconds: float) -> None:
        """Reject new requests. Those being served may continue for `seconds`."""
        if self._stops_at is None:
            self._stops_at = self.loop.time() + seconds
            self._note_if_drained()

    def exchange_ended(self, exchange: Exchange) -> None:
        self.live.discard(exchange)
        self._note_if_drained()

    def key_refused(self, account: str) -> None:
        """Answer the calls that wait for an account whose key the provider has refused: waiting does not help them."""
        for exchange in list(self.live):
            exchange.key_refused(account)

    async def drain(self, hurry: asyncio.Event) -> None:
        """Wait until every exchange has ended, their time is over, or `hurry` is set."""
        assert self._stops_at is not None
        waits = [asyncio.ensure_future(event.wait()) for event in (self._drained, hurry)]
        try:
            await asyncio.wait(
                waits, timeout=max(0.0, self._stops_at - self.loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in waits:
                each.cancel()

    def _note_if_drained(self) -> None:
        if self._stops_at is not None and not self.live:
            self._drained.set()

    async def close(self) -> None:
        """End every exchange, waiting or being served, count what it has used, and close all upstream connections."""
        self._timer.cancel()
        self._stops_at = self._stops_at or self.loop.time()
        for exchange in list(self.live):
            exchange.client_left()
        self._note_if_drained()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._drained.wait()
        for pool in self._pools.values():
            pool.close()
        self.spend.announce()
        self.spend.save()

    def _check_time(self) -> None:
        now = self.loop.time()
        for each in [*self.live, *self.connections]:
            each.check_time(now)
        for pool in self._pools.values():
            pool.drop_idle(now)
        self.spend.announce()
        self.spend.save_if_due(now)
        self._timer = self.loop.call_later(self.timeouts.check_interval, self._check_time)
