"""What the answers teach: budgets and windows from their headers, refusals from their errors, tokens from their bodies.

Here: the way from an answer to `slot.report`. What an answer means is told by `paceline.protocols`.
"""

from paceline.clock import Clock
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Succeeded,
)
from paceline.gateway.attempt import Attempt
from paceline.gateway.entry import Call
from paceline.gateway.upstream import AnswerHead
from paceline.measures import Measures
from paceline.protocols import signals_of
from paceline.slot import Slot

BUDGET_EVERY_SECONDS = 0.1
"""Headers of successes are read this often in each scope. Reading them costs more than carrying the request, and in
between the Governor counts what it grants."""
MOST_SCOPES = 4096


class Learning:
    """Reports to the slots of one gateway."""

    def __init__(self, clock: Clock, measures: Measures) -> None:
        self._clock = clock
        self._measures = measures
        self._read_at: dict[str, float] = {}

    def from_head(self, call: Call, slot: Slot, head: AnswerHead) -> None:
        """What a success says is left. Told at its beginning: a stream may last for minutes."""
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
        signals: list[Signal] = []
        if head.status >= 400:
            signals = self._errors(call, head.status, head, attempt.error_body)
        elif reader is not None:
            if reader.error is not None:  # a stream that began well and was ended by an error of the provider
                signals = self._errors(call, 500, head, reader.error)
            if not signals:
                slot.report(Succeeded(tokens=reader.tokens))
            if reader.tokens:
                self._measures.tokens.add(slot.scope, "total", by=reader.tokens)
        for signal in signals:
            slot.report(signal)
        return signals

    def _errors(self, call: Call, status: int, head: AnswerHead, body: bytes) -> list[Signal]:
        signals = signals_of(call.way.detect_name, status, head.lowered, body, seen_at=self._clock.now())
        if call.has_own_key:  # a client's bad or unpaid key must not hold the account for the others
            return [signal for signal in signals if not isinstance(signal, AuthFailed | BillingStop)]
        return signals


def ensure_pause(slot: Slot, signals: list[Signal]) -> None:
    """A refusal that pauses nothing would be sent again at once, and refused again: back off as from an overload."""
    for signal in signals:
        match signal:
            case RateLimited() | Overloaded() | QuotaClosed():
                return
            case PlatformLimit(retry_after=after) if after is not None:
                return
    slot.report(Overloaded())
