"""Validation of signals from outside: an invalid value is *unknown*, and never an error."""

import math
from collections.abc import Callable
from functools import cache
from typing import Final, get_args

import msgspec

from paceline.core.signals import Cause, Reach, Signal
from paceline.errors import InvalidInput

YEAR_9999: Final = 253_370_764_800.0
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
    return number if number and number < YEAR_9999 else None


def _count(value: object) -> int | None:
    """Return a whole number from zero up, without its fraction; None for anything else."""
    number = _number(value)
    return None if number is None else int(number)


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
