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
    ago, left = seconds < 0, abs(seconds)
    if left < 120:
        span = f"{left:.3g} s" if left >= 0.001 else "0 s"
    elif left < 7200:
        span = f"{left / 60:.0f} min"
    elif left < 172800:
        minutes = round(left / 60)
        span = f"{minutes // 60} h {minutes % 60:02d} min"
    else:
        hours = round(left / 3600)
        span = f"{hours // 24} days {hours % 24} h"
    return f"{span} ago" if ago else f"in {span}"
