"""The time zone of this machine, and points in time and spans as people read them."""

import os
from datetime import datetime
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")


def moment(at: float, now: float, zone: ZoneInfo) -> str:
    """Return a point in time, absolute and relative to `now`."""
    return f"{absolute(at, zone)}, {relative(at - now)}"


def absolute(at: float, zone: ZoneInfo) -> str:
    return _formatted(at, zone, "%Y-%m-%d %H:%M:%S %Z") or f"Unix time {at:.0f}"


def clock_time(at: float, zone: ZoneInfo, form: str = "%H:%M:%S") -> str:
    return _formatted(at, zone, form) or "never"


def _formatted(at: float, zone: ZoneInfo, form: str) -> str | None:
    try:
        return f"{datetime.fromtimestamp(at, zone):{form}}"
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return None


def relative(seconds: float) -> str:
    """Return a signed span as text: `in 3 h 05 min`, `12 s ago`."""
    span = span_text(abs(seconds))
    return f"{span} ago" if seconds < 0 else f"in {span}"


def span_text(seconds: float) -> str:
    """Return a span of time as text: `12 s`, `3 h 05 min`."""
    if seconds < 120:
        return f"{seconds:.{3 if seconds >= 1 else 2}g} s" if seconds >= 0.001 else "0 s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} days {hours % 24} h"


def local_zone() -> ZoneInfo:
    """Return the zone of this machine, or UTC if nothing on it names one."""
    return named_local_zone() or ZoneInfo("UTC")


def named_local_zone(localtime: Path = LOCALTIME, timezone: Path = TIMEZONE) -> ZoneInfo | None:
    """Return the zone that this machine names: `TZ`, the target of /etc/localtime, /etc/timezone, or the zone whose
    data /etc/localtime is a copy of, as in containers. None if there is none."""
    _, _, linked = os.path.realpath(localtime).partition("zoneinfo/")
    names = (os.environ.get("TZ", "").removeprefix(":"), linked, _first_line(timezone))
    found = next((zone for name in names if name and (zone := zone_named(name))), None)
    return found or _zone_with_data_of(localtime)


def _first_line(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""


def _zone_with_data_of(localtime: Path) -> ZoneInfo | None:
    """Return the zone whose file has the same bytes. Of several names for one zone the one of a place counts."""
    try:
        data = localtime.read_bytes()
    except OSError:
        return None
    places = sorted(available_timezones(), key=lambda name: ("/" not in name, name.startswith("Etc/"), name))
    for folder in map(Path, TZPATH):
        for name in places:
            file = folder / name
            if file.is_file() and file.stat().st_size == len(data) and file.read_bytes() == data:
                return zone_named(name)
    return None


def zone_named(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # an unknown name raises any of these
        return None
