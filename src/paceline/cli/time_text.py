"""Points in time and spans as people read them."""

from datetime import datetime
from zoneinfo import ZoneInfo


def moment(at: float, now: float, zone: ZoneInfo) -> str:
    """Return a point in time, absolute and relative to `now`."""
    return f"{absolute(at, zone)}, {relative(at - now)}"


def absolute(at: float, zone: ZoneInfo) -> str:
    try:
        return f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M:%S %Z}"
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return f"Unix time {at:.0f}"


def clock_time(at: float, zone: ZoneInfo) -> str:
    try:
        return f"{datetime.fromtimestamp(at, zone):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return "never"


def relative(seconds: float) -> str:
    """Return a signed span as text: `in 3 h 05 min`, `12 s ago`."""
    span = span_text(abs(seconds))
    return f"{span} ago" if seconds < 0 else f"in {span}"


def span_text(seconds: float) -> str:
    """Return a span of time as text: `12 s`, `3 h 05 min`."""
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds >= 0.001 else "0 s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} days {hours % 24} h"
