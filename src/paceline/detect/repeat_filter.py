"""Which signals are news: the same limit, met again and again by a CLI that retries, is told once.

Here: the memory of what was told. Never here: reading anything.
"""

import msgspec

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
)

LONG_WAIT = 60.0
"""A wait beyond this changes what becomes of a session, so it is told even after a shorter one was."""
A_GUESS = 0.5
"""A signal below this confidence counts only where nothing better is known."""
_SAME_RESET = 120.0
"""Texts print resets in minutes, fields in seconds: within this they are the same reset."""
_PASSING = (RateLimited, Overloaded, PlatformLimit, AuthFailed)
_NAMED_CAUSE = (QuotaClosed, BillingStop)


class _Told(msgspec.Struct, frozen=True):
    signal: Signal
    until: float
    """Until when it needs no repeating."""


class ReportLog:
    """What was told about one run."""

    def __init__(self) -> None:
        self._told: dict[type[Signal], _Told] = {}
        self._budgets: dict[str | None, Budget] = {}

    def news(self, signals: list[Signal], *, seen_at: float) -> list[Signal]:
        """Those signals that say something new."""
        return [signal for signal in signals if self._is_news(signal, seen_at)]

    def model_answered(self) -> None:
        """Passing limits are over: the next one is a new incident."""
        for kind in _PASSING:
            self._told.pop(kind, None)

    def _is_news(self, signal: Signal, seen_at: float) -> bool:
        if isinstance(signal, Budget):
            before = self._budgets.get(signal.window)
            self._budgets[signal.window] = signal
            return signal != before
        if isinstance(signal, RateLimited) and self._has_better(signal, seen_at):
            return False
        told = self._told.get(type(signal))
        if told is not None and seen_at < told.until and not _says_more(signal, told.signal):
            return False
        self._told[type(signal)] = _Told(signal, _covered_until(signal, seen_at))
        return True

    def _has_better(self, signal: RateLimited, seen_at: float) -> bool:
        """A bare 429 after a spent window or an empty purse is the same refusal seen from farther away."""
        better = (*_NAMED_CAUSE, *_PASSING) if signal.confidence < A_GUESS else _NAMED_CAUSE
        return any(kind in self._told and seen_at < self._told[kind].until for kind in better)


def _covered_until(signal: Signal, seen_at: float) -> float:
    if isinstance(signal, QuotaClosed):
        return max(signal.resets_at or 0.0, seen_at + LONG_WAIT)
    if isinstance(signal, RateLimited | Overloaded):
        return seen_at + max(signal.retry_after or 0.0, LONG_WAIT)
    return seen_at + LONG_WAIT


def _says_more(signal: Signal, before: Signal) -> bool:
    if _both_known_and_differ(signal.reach, before.reach):
        return True
    if isinstance(signal, QuotaClosed) and isinstance(before, QuotaClosed):
        return _both_known_and_differ(signal.window, before.window) or _resets_differ(signal, before)
    if isinstance(signal, RateLimited | Overloaded) and isinstance(before, RateLimited | Overloaded):
        return _waits_longer(signal.retry_after, before.retry_after)
    if isinstance(signal, PlatformLimit) and isinstance(before, PlatformLimit):
        return _both_known_and_differ(signal.limit, before.limit)
    return False


def _both_known_and_differ(now: object, before: object) -> bool:
    return now is not None and before is not None and now != before


def _resets_differ(now: QuotaClosed, before: QuotaClosed) -> bool:
    if now.resets_at is None:
        return False
    return before.resets_at is None or abs(now.resets_at - before.resets_at) > _SAME_RESET


def _waits_longer(now: float | None, before: float | None) -> bool:
    if now is None:
        return False
    return before is None or now > LONG_WAIT >= before
