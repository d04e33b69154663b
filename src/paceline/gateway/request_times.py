"""The times of one exchange: how long it waited, for what, and how much time the gateway itself took."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from paceline.gateway.upstream_call import UpstreamCall
from paceline.metrics import MetricsRegistry

Value = TypeVar("Value")


class RequestTimes:
    """The times of one request, on the loop's clock, and their metrics."""

    __slots__ = ("_metrics", "_now", "_spent_elsewhere", "arrived_at", "waited")

    def __init__(self, now: Callable[[], float], metrics: MetricsRegistry) -> None:
        self.waited = 0.0
        """Seconds spent waiting for slots, in total."""
        self._now = now
        self._metrics = metrics
        self.arrived_at = now()
        self._spent_elsewhere = 0.0
        """Seconds since the arrival that are not the gateway's own: waiting for the body, a slot, a connection."""

    async def elsewhere(self, waiting: Awaitable[Value]) -> Value:
        """Await something, and do not count its time as the gateway's own."""
        began_at = self._now()
        try:
            return await waiting
        finally:
            self._spent_elsewhere += self._now() - began_at

    def slot_granted(self, waited: float) -> None:
        self.waited += waited
        self._spent_elsewhere += waited
        self._metrics.granted(waited)

    def call_ended(self, call: UpstreamCall) -> None:
        self._metrics.gateway_ttfb_seconds.observe(call.began_at - call.sent_at)
        own_seconds = max(0.0, call.sent_at - self.arrived_at - self._spent_elsewhere)
        self._metrics.gateway_overhead_seconds.observe(own_seconds)
        self._spent_elsewhere += self._now() - call.sent_at

    def since_arrival(self) -> float:
        return self._now() - self.arrived_at

    def request_ended(self) -> None:
        self._metrics.gateway_request_seconds.observe(self._now() - self.arrived_at)
        self._metrics.gateway_wait_seconds.observe(self.waited)
