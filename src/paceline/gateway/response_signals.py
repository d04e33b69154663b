"""The signals in responses: budgets and windows in headers, refusals in errors, tokens in bodies.

Here: the way from a response to `slot.report`. Never here: what a response means; `paceline.protocols` decides that.
"""

import msgspec

from paceline.clock import Clock
from paceline.core.signals import AuthFailed, BillingStop, Overloaded, Signal, Succeeded
from paceline.gateway.request_access import UpstreamRequest
from paceline.gateway.upstream_call import UpstreamCall
from paceline.gateway.upstream_pool import ResponseHead
from paceline.limiter.slot import Slot
from paceline.protocols.responses import signals_at_end, signals_of, signals_of_broken, with_pause

BUDGET_EVERY_SECONDS = 0.1
"""Headers of successes are read this often in each scope. Reading them costs more than forwarding the request, and
between two readings the Governor counts what it grants."""
MOST_SCOPES = 4096
"""Scopes whose last reading is remembered. Clients choose model names, so the number needs a bound."""


class SignalReporter:
    """Reports what responses say to the slots of their requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_at: dict[str, float] = {}

    def report_head(self, request: UpstreamRequest, slot: Slot, head: ResponseHead) -> None:
        """Report the remaining budget from a success, as soon as its head is there: its stream may last minutes."""
        if head.status < 400 and slot.is_canary:
            slot.report(Succeeded())  # waiters for the window need not wait for the end of the stream
        now = self._clock.now()
        if head.status >= 400 or 0 <= now - self._read_at.get(slot.scope, 0.0) < BUDGET_EVERY_SECONDS:
            return
        signals = signals_of(request.route.detect_name, head.status, head.lowered, b"", seen_at=now)
        if signals:
            if len(self._read_at) >= MOST_SCOPES:
                self._read_at.clear()
            self._read_at[slot.scope] = now
        for signal in signals:
            slot.report(signal)

    def report_end(self, request: UpstreamRequest, slot: Slot, call: UpstreamCall) -> list[Signal]:
        """Report the tokens of a whole response, or the reason of its refusal. Returns the signals."""
        head, reader = call.head, call.reader
        assert head is not None
        now = self._clock.now()
        error = b"" if reader is not None else call.error_text
        signals = signals_at_end(
            request.route.detect_name, head.status, head.lowered, error=error, reader=reader, seen_at=now
        )
        if request.has_own_key:  # a client's bad or unpaid key must not hold the account for the others
            signals = [signal for signal in signals if not isinstance(signal, AuthFailed | BillingStop)]
        if request.route.pool is not None:
            signals = [_of_one_key(signal) for signal in signals]
        for signal in signals:
            slot.report(signal)
        return signals

    def report_broken(self, request: UpstreamRequest, slot: Slot, head: ResponseHead) -> None:
        """Report a response that broke off after its head."""
        now = self._clock.now()
        for signal in signals_of_broken(request.route.detect_name, head.status, head.lowered, seen_at=now):
            slot.report(signal)


def _of_one_key(signal: Signal) -> Signal:
    """Return an overload as one of this key and model alone: the pool asks its other keys before it waits."""
    return msgspec.structs.replace(signal, reach=None) if isinstance(signal, Overloaded) else signal


def ensure_pause(slot: Slot, signals: list[Signal]) -> None:
    """Report an overload if no signal pauses the scope: a request that is sent again must wait first."""
    for signal in with_pause(signals)[len(signals) :]:
        slot.report(signal)
