"""The gateway: the accounts that can be reached, the limiter they share, and the one timer that looks after all."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from paceline.clock import Clock
from paceline.gateway.exchange import Exchange
from paceline.gateway.request_access import Gate
from paceline.gateway.response_signals import Learning
from paceline.gateway.upstream_pool import Origin, Pool
from paceline.limiter import Limiter
from paceline.metrics import MetricsRegistry
from paceline.settings import AccountSettings


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each thing may take, in seconds."""

    max_wait: float = 600.0
    """In line for a slot, where the client says nothing else."""
    connect: float = 10.0
    first_byte: float = 600.0
    """From the last byte sent upstream to the first of its answer. Models think long."""
    upstream_idle: float = 300.0
    """Between two pieces of an answer, whichever side does not move."""
    head: float = 20.0
    """For a client to send the whole head of a request."""
    body_idle: float = 60.0
    """Between two pieces of a client's body."""
    pooled: float = 30.0
    """An upstream connection that nobody uses."""
    look: float = 1.0
    """How often all of these are looked at."""


RESTART_SECONDS = 10.0
"""How long a daemon that was only restarted is away."""


class Watched(Protocol):
    """What the timer looks at."""

    def check_time(self, now: float) -> None: ...


class Gateway:
    """Made on the loop it serves on. `limiter` may be any: the engine's, or one of its own."""

    def __init__(
        self,
        limiter: Limiter,
        accounts: Iterable[AccountSettings],
        *,
        environ: Mapping[str, str],
        token: str,
        clock: Clock,
        metrics: MetricsRegistry,
        hosts: frozenset[str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.limiter = limiter
        self.clock = clock
        self.metrics = metrics
        self.timeouts = timeouts or Timeouts()
        self.loop = asyncio.get_running_loop()
        self.learning = Learning(clock, metrics)
        self.live: set[Exchange] = set()
        """What is being served."""
        self.connections: set[Watched] = set()
        self.gate = Gate(accounts, token=token, environ=environ, hosts=hosts)
        self._pools: dict[Origin, Pool] = {}
        self._stops_at: float | None = None
        self._quiet = asyncio.Event()
        """Nobody is being served any more, and no more calls are taken."""
        self._timer = self.loop.call_later(self.timeouts.look, self._look)

    def pool(self, origin: Origin) -> Pool:
        """The connections to an upstream; accounts of the same one share them."""
        pool = self._pools.get(origin)
        if pool is None:
            timeouts = self.timeouts
            pool = Pool(origin, connect_seconds=timeouts.connect, idle_seconds=timeouts.pooled)
            self._pools[origin] = pool
        return pool

    # -- the end -----------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        return self._stops_at is not None

    @property
    def back_in(self) -> float:
        """When a client that is turned away now may find a daemon that serves it, in seconds."""
        left = 0.0 if self._stops_at is None else self._stops_at - self.loop.time()
        return max(0.0, left) + RESTART_SECONDS

    def stop_taking(self, seconds: float) -> None:
        """No more calls; those that run may go on for so long."""
        if self._stops_at is None:
            self._stops_at = self.loop.time() + seconds
            self._tell_if_quiet()

    def ended(self, exchange: Exchange) -> None:
        self.live.discard(exchange)
        self._tell_if_quiet()

    async def finish(self, hurry: asyncio.Event) -> None:
        """Until those that run have come to their end, their time is over, or somebody is in a hurry."""
        assert self._stops_at is not None
        over = [asyncio.ensure_future(event.wait()) for event in (self._quiet, hurry)]
        try:
            await asyncio.wait(
                over, timeout=max(0.0, self._stops_at - self.loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in over:
                each.cancel()

    def _tell_if_quiet(self) -> None:
        if self._stops_at is not None and not self.live:
            self._quiet.set()

    def close(self) -> None:
        """Hang up on everyone: clients that wait or are being served, and upstreams."""
        self._timer.cancel()
        for exchange in list(self.live):
            exchange.client_left()
        for pool in self._pools.values():
            pool.close()

    def _look(self) -> None:
        now = self.loop.time()
        for watched in [*self.live, *self.connections]:
            watched.check_time(now)
        for pool in self._pools.values():
            pool.drop_idle(now)
        self._timer = self.loop.call_later(self.timeouts.look, self._look)
