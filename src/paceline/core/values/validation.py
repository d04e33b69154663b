"""Validation of values from callers. Each error names the field, the value and what is expected."""

import math
from collections.abc import Mapping
from typing import TypeVar

from paceline.errors import InvalidDuration, InvalidInput, InvalidLimit

Value = TypeVar("Value")

LARGEST_LIMIT = 1_000_000_000
"""More places than any provider has; a larger number is a mistake."""
SMALLEST_WEIGHT, LARGEST_WEIGHT = 0.001, 1_000_000
"""Weights that make a difference: beyond these a share is nothing, or everything."""
LONGEST_SECONDS = 10 * 365 * 86400.0
"""Ten years: a longer wait is a mistake, or was meant in milliseconds."""


def check_limit(value: object, name: str = "limit") -> int | None:
    """Return a whole number >= 1, or None for unlimited."""
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= LARGEST_LIMIT:  # bool is an int, but not a limit
        raise InvalidLimit(f"{name} must be a whole number from 1 to {LARGEST_LIMIT}, or None; got {value!r:.80}")
    return value


def check_weight(value: object, name: str = "weight") -> float:
    """Return the weight of a group: a number above 0 and of a sane size."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_weight(value):
        raise InvalidInput(f"{name} must be a number from {SMALLEST_WEIGHT} to {LARGEST_WEIGHT:,}; got {value!r:.80}")
    return float(value)


def _is_weight(value: float) -> bool:
    return SMALLEST_WEIGHT <= value <= LARGEST_WEIGHT


def check_seconds(value: object, name: str, *, above_zero: bool = False) -> float:
    """Return a finite number of seconds, zero or more (or more than zero)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidDuration(f"{name} must be a number of seconds; got {value!r:.80}")
    if not math.isfinite(value) or value < 0 or value > LONGEST_SECONDS or (above_zero and value == 0):
        least = "> 0" if above_zero else ">= 0"
        raise InvalidDuration(f"{name} must be a finite number of seconds {least}, ten years at most; got {value!r}")
    return float(value)


def outside_seconds(value: object) -> float | None:
    """Return seconds from outside, or None for anything that is not a plausible wait."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or not 0 < value <= LONGEST_SECONDS:
        return None
    return float(value)


def check_name(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"the name of a {what} must be text, and not empty; got {value!r:.80}")
    return value


def check_callable(value: object, what: str) -> None:
    if not callable(value):
        raise InvalidInput(f"{what} must be a function; got {value!r:.80}")


def check_mapping(value: Mapping[str, Value] | None, what: str) -> Mapping[str, Value]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} must be a dict by scope; got {value!r:.80}")
    return value
