"""Signals: what an observation means. Values only; the reader decides what to do.

`retry_after` is always relative seconds, `resets_at` always absolute wall time (Unix seconds).
`reach` says whose limit it is; `confidence` (0-1) and `source` say how far to trust it and where
it was read: `field`, `header`, `text` or `backoff`.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Final, Literal, get_args

import msgspec

from paceline.errors import InvalidInput

__all__ = [
    "KINDS",
    "AnySignal",
    "AuthFailed",
    "BillingStop",
    "Budget",
    "Cause",
    "Overloaded",
    "PlatformLimit",
    "QuotaClosed",
    "RateLimited",
    "Reach",
    "Signal",
    "Succeeded",
    "Unreachable",
    "Usage",
    "understood",
]

Reach = Literal["model", "account", "provider"]
Cause = Literal["concurrency", "requests", "tokens", "starts"]


class Signal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fields that all signals share. `ticket` is the slot it came from, where there is one."""

    ticket: str | None = None
    reach: Reach | None = None
    confidence: float = 1.0
    source: str | None = None


class RateLimited(Signal, frozen=True, kw_only=True):
    """Too much at once or too fast: pause the scope, then continue."""

    retry_after: float | None = None
    cause: Cause | None = None


class Overloaded(Signal, frozen=True, kw_only=True):
    """The provider's own trouble (529, 503): pause with backoff; the limits are not to blame."""

    retry_after: float | None = None


class Unreachable(Signal, frozen=True, kw_only=True):
    """Nobody answered: no network, no connection, or the agent's program is away. Back off, and charge nothing."""

    retry_after: float | None = None
    detail: str | None = None


class QuotaClosed(Signal, frozen=True, kw_only=True):
    """A quota window is spent until `resets_at`; `window` is its name (`5h`, `weekly`, ...)."""

    resets_at: float | None = None
    window: str | None = None


class PlatformLimit(Signal, frozen=True, kw_only=True):
    """The provider named its own cap: `in_use` of `limit`."""

    limit: int | None = None
    in_use: int | None = None
    retry_after: float | None = None


class BillingStop(Signal, frozen=True, kw_only=True):
    """Credits or a spending cap are exhausted: a person is needed."""

    detail: str | None = None


class AuthFailed(Signal, frozen=True, kw_only=True):
    """The login or key is not accepted: a person is needed. `is_missing`: the CLI itself found no login to try."""

    detail: str | None = None
    is_missing: bool = False


class Usage(Signal, frozen=True, kw_only=True):
    """The provider's own count of what runs. `concurrent_sessions=None` means unknown."""

    concurrent_sessions: int | None = None
    limit: int | None = None
    hard_cap: int | None = None


class Budget(Signal, frozen=True, kw_only=True):
    """What response headers say is left, of a rate (`*_remaining` of `*_limit`) or of a window (`used_ratio`)."""

    requests_remaining: int | None = None
    requests_reset_at: float | None = None
    tokens_remaining: int | None = None
    tokens_reset_at: float | None = None
    requests_limit: int | None = None
    tokens_limit: int | None = None
    used_ratio: float | None = None
    window: str | None = None
    resets_at: float | None = None


class Succeeded(Signal, frozen=True, kw_only=True):
    """A turn or call went through, having used `tokens` where that is known."""

    tokens: int | None = None


AnySignal = (
    RateLimited
    | Overloaded
    | Unreachable
    | QuotaClosed
    | PlatformLimit
    | BillingStop
    | AuthFailed
    | Usage
    | Budget
    | Succeeded
)

KINDS: Final[dict[str, type[AnySignal]]] = {
    "rate_limited": RateLimited,
    "overloaded": Overloaded,
    "unreachable": Unreachable,
    "quota_closed": QuotaClosed,
    "platform_limit": PlatformLimit,
    "billing_stop": BillingStop,
    "auth_failed": AuthFailed,
    "usage": Usage,
    "budget": Budget,
    "succeeded": Succeeded,
}
"""The signals by their names on the wire."""


_LARGEST_COUNT: Final = 1e15
"""More tokens than any limit has. Sums of larger numbers could be infinite, which no snapshot can store."""
_YEAR_9999: Final = 253_370_764_800.0
"""Times beyond this were meant in milliseconds, and no calendar can show them."""


def understood(signal: Signal) -> Signal:
    """Return the signal with invalid values removed. Its ticket and its reach must be valid."""
    if not isinstance(signal, Signal):
        raise InvalidInput(f"{signal!r:.80} is no signal of paceline.core.signals")
    if signal.reach is not None and signal.reach not in get_args(Reach):
        raise InvalidInput(f"reach must be model, account, provider or None; got {signal.reach!r:.80}")
    if signal.ticket is not None and not isinstance(signal.ticket, str):
        raise InvalidInput(f"ticket must be the id of a ticket, or None; got {signal.ticket!r:.80}")
    odd: dict[str, object] = {}
    for name, reader, default in _readers(type(signal)):
        value = getattr(signal, name)
        if value is default:
            continue
        read = reader(value)
        if type(read) is not type(value) or read != value:  # False equals 0.0, but is not a number
            odd[name] = read
    return msgspec.structs.replace(signal, **odd) if odd else signal


def _number(value: object) -> float | None:
    """Return a finite number from zero up; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _time(value: object) -> float | None:
    """Return a point in time; None for what lies beyond the calendar, as milliseconds do."""
    number = _number(value)
    return number if number and number < _YEAR_9999 else None


def _count(value: object) -> int | None:
    """Return a whole number from zero up, without its fraction; None for anything else, and for more than can be."""
    number = _number(value)
    return None if number is None or number > _LARGEST_COUNT else int(number)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _cause(value: object) -> object:
    return value if value in get_args(Cause) else None


def _confidence(value: object) -> float:
    return min(1.0, _number(value) or 0.0)


_READ: Final[dict[str, Callable[[object], object]]] = {
    "cause": _cause,
    "confidence": _confidence,
    "detail": _text,
    "requests_limit": _count,
    "requests_remaining": _count,
    "requests_reset_at": _time,
    "resets_at": _time,
    "retry_after": _number,
    "source": _text,
    "tokens": _count,
    "tokens_limit": _count,
    "tokens_remaining": _count,
    "tokens_reset_at": _time,
    "used_ratio": _number,
    "window": _text,
}


@cache
def _readers(kind: type[Signal]) -> tuple[tuple[str, Callable[[object], object], object], ...]:
    """Return the fields of a kind of signal that are read, how, and their defaults."""
    fields = msgspec.structs.fields(kind)
    return tuple((each.name, _READ[each.name], each.default) for each in fields if each.name in _READ)
