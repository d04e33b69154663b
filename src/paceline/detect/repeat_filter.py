"""The filter for repeated signals: a limit that a retrying CLI meets again and again is reported once.

Here: the memory of what was reported. Never here: reading output.
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
    Reach,
    Signal,
    Unreachable,
)

LONG_WAIT = 60.0
"""Seconds. A longer wait changes what becomes of a session, so it is reported even after a shorter one."""
A_GUESS = 0.5
"""A signal below this confidence counts only where nothing better is known."""
_SAME_RESET = 120.0
"""Seconds. Texts print resets in minutes, fields in seconds: within this they are the same reset."""
_WINDOWS_KEPT = 64
"""Windows remembered at a time: no account has a tenth of that."""
_PASSING = (RateLimited, Overloaded, PlatformLimit, AuthFailed, Unreachable)
_NAMED_CAUSE = (QuotaClosed, BillingStop)


class _Reported(msgspec.Struct, frozen=True):
    signal: Signal
    until: float
    """Until when it needs no repeating."""


class RepeatFilter:
    """The signals that were reported about one run."""

    def __init__(self) -> None:
        self._reported: dict[type[Signal], _Reported] = {}
        self._budgets: dict[tuple[str | None, Reach | None], Budget] = {}

    def news(self, signals: list[Signal], *, seen_at: float) -> list[Signal]:
        """Return the signals that state something new."""
        return [signal for signal in signals if self._is_news(signal, seen_at)]

    def model_answered(self) -> None:
        """Forget limits that pass by themselves: the next one is a new incident."""
        for kind in _PASSING:
            self._reported.pop(kind, None)

    def _is_news(self, signal: Signal, seen_at: float) -> bool:
        if isinstance(signal, Budget):
            key = signal.window, signal.reach
            if len(self._budgets) >= _WINDOWS_KEPT:
                self._budgets.clear()
            before = self._budgets.get(key)
            self._budgets[key] = signal
            return signal != before
        if isinstance(signal, RateLimited) and self._has_better(signal, seen_at):
            return False
        reported = self._reported.get(type(signal))
        if reported is not None and seen_at < reported.until and not _adds_detail(signal, reported.signal):
            return False
        self._reported[type(signal)] = _Reported(signal, _covered_until(signal, seen_at))
        return True

    def _has_better(self, signal: RateLimited, seen_at: float) -> bool:
        """Return whether a bare 429 repeats, with less detail, a spent window or missing credit that was reported."""
        better = (*_NAMED_CAUSE, *_PASSING) if signal.confidence < A_GUESS else _NAMED_CAUSE
        return any(kind in self._reported and seen_at < self._reported[kind].until for kind in better)


def _covered_until(signal: Signal, seen_at: float) -> float:
    if isinstance(signal, QuotaClosed):
        return max(signal.resets_at or 0.0, seen_at + LONG_WAIT)
    if isinstance(signal, RateLimited | Overloaded):
        return seen_at + max(signal.retry_after or 0.0, LONG_WAIT)
    return seen_at + LONG_WAIT


def _adds_detail(signal: Signal, before: Signal) -> bool:
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
