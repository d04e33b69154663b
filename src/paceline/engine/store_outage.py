"""An outage of the store: since when, why, and one log record when it begins and when it ends."""

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from paceline.clock import Clock
from paceline.errors import StoreBusy, StoreError, StoreUnreachable

log = logging.getLogger("paceline.engine")

OUTAGES = (StoreUnreachable, StoreBusy)
"""The errors that pass by themselves."""
NOTE_FILE = "outage.json"
"""The file in the home in which an engine notes an outage: commands cannot read it from the store."""


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
        self.forget_note()

    def begin(self, error: StoreError) -> None:
        """Record that the store failed. Later failures belong to the same outage."""
        if self.since is not None:
            return
        self.since = self._clock.now()
        log.warning("the store cannot be used, so nothing starts; running sessions continue: %s", error)
        if self._note is not None:
            with contextlib.suppress(OSError):
                self._note.write_bytes(
                    msgspec.json.encode(OutageNote(since=self.since, reason=str(error), pid=os.getpid()))
                )

    def end(self) -> None:
        """Record that the store works."""
        if self.since is None:
            return
        log.warning("the store can be used again, after %.0f s", self._clock.now() - self.since)
        self.since = None
        self.forget_note()

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
