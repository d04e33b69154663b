"""What the answers teach: budgets and windows from their headers, refusals from their errors, tokens from their bodies.

Here: the way from an answer to `slot.report`. What an answer means is told by `paceline.protocols`.
"""

from paceline.clock import Clock
from paceline.core.signals import AuthFailed, BillingStop, Signal, Succeeded
from paceline.gateway.request_access import Call
from paceline.gateway.upstream_call import Attempt
from paceline.gateway.upstream_pool import AnswerHead
from paceline.limiter.slot import Slot
from paceline.metrics import MetricsRegistry
from paceline.protocols import signals_at_end, signals_of, signals_of_broken, with_pause

BUDGET_EVERY_SECONDS = 0.1
"""Headers of successes are read this often in each scope. Reading them costs more than carrying the request, and in
between the Governor counts what it grants."""
MOST_SCOPES = 4096


class Learning:
    """Reports to the slots of one gateway."""

    def __init__(self, clock: Clock, metrics: MetricsRegistry) -> None:
        self._clock = clock
        self._metrics = metrics
        self._read_at: dict[str, float] = {}

    def from_head(self, call: Call, slot: Slot, head: AnswerHead) -> None:
        """What a success says is left. Told at its beginning: a stream may last for minutes."""
        if head.status < 400 and slot.is_canary:
            slot.report(Succeeded())  # those who wait for the window need not wait for the end of its stream
        now = self._clock.now()
        if head.status >= 400 or 0 <= now - self._read_at.get(slot.scope, 0.0) < BUDGET_EVERY_SECONDS:
            return
        signals = signals_of(call.way.detect_name, head.status, head.lowered, b"", seen_at=now)
        if signals:
            if len(self._read_at) >= MOST_SCOPES:
                self._read_at.clear()
            self._read_at[slot.scope] = now
        for signal in signals:
            slot.report(signal)

    def from_end(self, call: Call, slot: Slot, attempt: Attempt) -> list[Signal]:
        """What the whole answer says: its tokens, or what it was refused for."""
        head, reader = attempt.head, attempt.reader
        assert head is not None
        now = self._clock.now()
        signals = signals_at_end(
            call.way.detect_name, head.status, head.lowered, error=attempt.error_text, reader=reader, seen_at=now
        )
        if call.has_own_key:  # a client's bad or unpaid key must not hold the account for the others
            signals = [signal for signal in signals if not isinstance(signal, AuthFailed | BillingStop)]
        if reader is not None and reader.tokens:
            self._metrics.tokens.add(slot.scope, "total", by=reader.tokens)
        for signal in signals:
            slot.report(signal)
        return signals

    def from_broken(self, call: Call, slot: Slot, head: AnswerHead) -> None:
        """What an answer says that broke off after its head."""
        for signal in signals_of_broken(call.way.detect_name, head.status, head.lowered, seen_at=self._clock.now()):
            slot.report(signal)


def ensure_pause(slot: Slot, signals: list[Signal]) -> None:
    """What is sent again waits first."""
    for signal in with_pause(signals)[len(signals) :]:
        slot.report(signal)
