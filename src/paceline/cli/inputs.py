"""Input from outside: files and pipes of any size, times, zones, headers. Bounded, and checked once.

Wrong values raise `typer.BadParameter`, which names the option and exits with 2. Never here: what the input means.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import typer

CHUNK_BYTES = 64 * 1024
KEPT_BYTES = 128 * 1024
"""Kept from each end of a huge text: a limit is at the start of an error message or at the end of a log."""
LARGEST_TIME = 253402300800.0  # the year 10000
STDIN = "-"
LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """Open a file by its name, or standard input for `-`."""
    if source == STDIN:
        yield sys.stdin.buffer
        return
    try:
        with Path(source).open("rb") as file:
            yield file
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror or error}") from error


def read_ends(source: str) -> tuple[bytes, int]:
    """Return the start and the end of a text of any size, and how many bytes between them were left out."""
    head, tail, total = b"", b"", 0
    with opened(source) as file:
        for chunk in chunks_of(file):
            total += len(chunk)
            taken = max(0, KEPT_BYTES - len(head))
            head += chunk[:taken]
            tail = (tail + chunk[taken:])[-KEPT_BYTES:]
    if total <= len(head) + len(tail):
        return head + tail, 0
    kept = _without_last_line(head) + b"\n" + _without_first_line(tail)
    return kept, total - len(kept) + 1


def _without_last_line(head: bytes) -> bytes:
    """Keep whole lines only: half a secret would not be recognised as one."""
    return head[: head.rfind(b"\n")] if b"\n" in head else b""


def _without_first_line(tail: bytes) -> bytes:
    return tail.partition(b"\n")[2]


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def parse_time(text: str | None, *, default: float) -> float:
    """Parse Unix seconds, or an ISO 8601 date and time (UTC if it has no zone)."""
    if text is None:
        return default
    try:
        at = float(text)
    except ValueError:
        at = _parse_iso(text)
    if not 0 <= at < LARGEST_TIME:
        raise typer.BadParameter(f"{text!r} is not a time between 1970 and 9999", param_hint="--seen-at")
    return at


def _parse_iso(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "use Unix seconds or ISO 8601, such as 2026-11-15T12:00:00Z"
        raise typer.BadParameter(f"{text!r} is not a time; {hint}", param_hint="--seen-at") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_zone(name: str | None) -> ZoneInfo:
    """Return the zone with this name, or the zone of this machine."""
    if name is None:
        return local_zone()
    zone = _zone(name)
    if zone is None:
        raise typer.BadParameter(f"there is no time zone {name!r}; try Europe/Paris or UTC", param_hint="--tz")
    return zone


def local_zone() -> ZoneInfo:
    """Return the zone of this machine, or UTC if nothing on it names one."""
    return named_local_zone() or ZoneInfo("UTC")


def named_local_zone(localtime: Path = LOCALTIME, timezone: Path = TIMEZONE) -> ZoneInfo | None:
    """Return the zone that this machine names: `TZ`, the target of /etc/localtime, /etc/timezone, or the zone whose
    data /etc/localtime is a copy of, as in containers. None if there is none."""
    _, _, linked = os.path.realpath(localtime).partition("zoneinfo/")
    names = (os.environ.get("TZ", "").removeprefix(":"), linked, _first_line(timezone))
    found = next((zone for name in names if name and (zone := _zone(name))), None)
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
                return _zone(name)
    return None


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # an unknown name raises any of these
        return None


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Parse lines of the form `name: value`, as curl prints them."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter(f"{line!r} is not a header; write it as 'name: value'", param_hint="--header")
        headers[name.strip().lower()] = value.strip()
    return headers
