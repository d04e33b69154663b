"""What comes in from outside: files and pipes of any size, times, zones, headers. Bounded, and checked once.

Wrong values end in `typer.BadParameter`, which names the option and exits with 2. Nothing here is understood.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

import typer

CHUNK_BYTES = 64 * 1024
KEPT_BYTES = 128 * 1024
"""Of a huge text so much is kept from each end: a limit stands at the beginning of an error or at the end of a log."""
LARGEST_TIME = 253402300800.0  # the year 10000
STDIN = "-"


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """A file by its name, or standard input for `-`."""
    if source == STDIN:
        yield sys.stdin.buffer
        return
    try:
        with Path(source).open("rb") as file:
            yield file
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror or error}") from error


def read_ends(source: str) -> tuple[bytes, int]:
    """The beginning and the end of a text of any size, and how many bytes between them were left out."""
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
    """Whole lines only: half a secret is not recognised as one."""
    return head[: head.rfind(b"\n")] if b"\n" in head else b""


def _without_first_line(tail: bytes) -> bytes:
    return tail.partition(b"\n")[2]


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def parse_time(text: str | None, *, default: float) -> float:
    """Unix seconds, or an ISO 8601 date and time (UTC where it names no zone)."""
    if text is None:
        return default
    try:
        at = float(text)
    except ValueError:
        at = _parse_iso(text)
    if not 0 <= at < LARGEST_TIME:
        raise typer.BadParameter(f"{text!r} is no time between 1970 and 9999", param_hint="--seen-at")
    return at


def _parse_iso(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "give Unix seconds or ISO 8601, such as 2026-11-15T12:00:00Z"
        raise typer.BadParameter(f"{text!r} is no time; {hint}", param_hint="--seen-at") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_zone(name: str | None) -> ZoneInfo:
    """A zone by its name; this machine's where none is given."""
    if name is None:
        return local_zone()
    zone = _zone(name)
    if zone is None:
        raise typer.BadParameter(f"no time zone is called {name!r}; try Europe/Paris or UTC", param_hint="--tz")
    return zone


def local_zone() -> ZoneInfo:
    """The zone of this machine: `TZ`, else where /etc/localtime points, else UTC."""
    _, _, linked = os.path.realpath("/etc/localtime").partition("zoneinfo/")
    names = (os.environ.get("TZ", "").removeprefix(":"), linked)
    return next((zone for name in names if name and (zone := _zone(name))), ZoneInfo("UTC"))


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # a name that is no zone shows as any of these
        return None


def parse_headers(lines: list[str]) -> dict[str, str]:
    """`name: value`, as curl prints and takes them."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter(f"{line!r} is no header; write it as 'name: value'", param_hint="--header")
        headers[name.strip().lower()] = value.strip()
    return headers
