"""An outage of the store: since when, why, and one log record when it begins and when it ends."""

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from paceline.clock import Clock
from paceline.errors import StoreError

log = logging.getLogger("paceline.engine")

NOTE_FILE = "outage.json"
"""The file in the home in which an engine notes an outage: commands cannot read it from the store."""
NOTE_BYTES = 4096
"""The size of that file. It is written in advance and then in place, because a full disk has no room for a new one."""
LEAST_FREE_BYTES = 1 << 20
"""A disk with less than this is full: each session reserves 136 kB for its end, and a transaction needs some pages."""


class OutageNote(msgspec.Struct, frozen=True, kw_only=True):
    """The content of that file."""

    since: float
    reason: str
    pid: int


class StoreOutage:
    """Whether the engine cannot use its store now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._note: Path | None = None
        self.since: float | None = None

    def note_in(self, home: Path) -> None:
        """Note outages for commands from now on. A note of an engine that was killed is removed."""
        self._note = home / NOTE_FILE
        with contextlib.suppress(OSError):
            self._note.write_bytes(b" " * NOTE_BYTES)

    def begin(self, error: StoreError) -> None:
        """Record that the store failed. Later failures belong to the same outage."""
        if self.since is not None:
            return
        self.since = self._clock.now()
        log.warning("the store cannot be used, so nothing starts; running sessions continue: %s", error)
        self._write_note(msgspec.json.encode(OutageNote(since=self.since, reason=str(error), pid=os.getpid())))

    def end(self) -> None:
        """Record that the store works."""
        if self.since is None:
            return
        log.warning("the store can be used again, after %.0f s", self._clock.now() - self.since)
        self.since = None
        self._write_note(b"")

    def _write_note(self, content: bytes) -> None:
        if self._note is not None:
            with contextlib.suppress(OSError), open(self._note, "r+b") as file:
                file.write(content.ljust(NOTE_BYTES))

    def forget_note(self) -> None:
        """Remove the file."""
        if self._note is not None:
            with contextlib.suppress(OSError):
                self._note.unlink(missing_ok=True)


def read_outage(home: Path) -> OutageNote | None:
    """Return the outage that a running engine of the home has noted."""
    try:
        note = msgspec.json.decode((home / NOTE_FILE).read_bytes(), type=OutageNote)
    except (OSError, msgspec.MsgspecError):
        return None
    return note if os.path.exists(f"/proc/{note.pid}") else None


def store_trouble(home: Path) -> str | None:
    """Return why nothing can be stored now: what the engine of the home has met, or what its disk shows."""
    if (note := read_outage(home)) is not None:
        return note.reason
    try:
        os.utime(home)  # after an error a disk may refuse every change and still be listed as writable
        disk = os.statvfs(home)
    except OSError as error:
        return f"{home} cannot be changed: {error.strerror}; make it writable"
    kept = min(4096, disk.f_blocks // 50)  # blocks that ext4 counts as free and gives to nobody, also not to root
    free = max(0, disk.f_bavail if os.geteuid() else disk.f_bfree - kept) * disk.f_frsize
    if disk.f_blocks and free < LEAST_FREE_BYTES:
        return f"the disk of {home} is full: {free >> 10} kB are left, too little for a session; free some space"
    return None
