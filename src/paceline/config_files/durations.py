"""Durations as people write them: `350ms`, `1s`, `1h30m`, or a number of seconds."""

import re

from paceline.core.values.validation import check_seconds
from paceline.errors import InvalidDuration

_DURATION = re.compile(
    r"(?=\d)" + "".join(rf"(?:(\d+(?:\.\d+)?)\s*{unit}\s*)?" for unit in ("d", "h", "m(?!s)", "s", "ms")), re.A
)
_LARGEST_FIRST = (86400.0, 3600.0, 60.0, 1.0)
_LONGEST_TEXT = 64


def duration_seconds(value: object, name: str = "duration", *, above_zero: bool = False) -> float:
    """Return seconds. A bare number means seconds; text needs a unit, so that `"30"` is not ambiguous."""
    if isinstance(value, str):
        value = _seconds(value, name)
    return check_seconds(value, name, above_zero=above_zero)


def _seconds(text: str, name: str) -> float:
    found = _DURATION.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise InvalidDuration(f"{name} must be a duration such as 350ms, 1s, 30m, 5h or 1h30m; got {text!r:.80}")
    *whole, milliseconds = (float(part or 0) for part in found.groups())
    # Divided, not multiplied by 0.001, so that 350ms is exactly 0.35.
    return sum(count * size for count, size in zip(whole, _LARGEST_FIRST, strict=True)) + milliseconds / 1000
