"""The lease of a machine: until when its sessions may run without an answer of a leader.

The time is measured since the boot, from before a request was sent, so neither a slow answer nor a clock that was set
makes it too long. It is kept in a file: the supervisors of all sessions read it there, also when nothing else runs.
"""

import logging
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from paceline.clock import seconds_since_boot
from paceline.executors.proc_table import boot_id
from paceline.executors.spool_writer import replace_file

log = logging.getLogger("paceline.worker")

LEASE_FILE = "host_lease"
WRITES_PER_LEASE = 60
"""How exact the file is: it is written again when the lease has grown by this part of its length."""


class HostLease:
    """The deadline, in memory and in the file. Without a file of this boot it has passed."""

    def __init__(self, home: Path, *, elapsed: Callable[[], float] = seconds_since_boot) -> None:
        self.file = home / LEASE_FILE
        self.neighbours: Iterable[Path] = ()
        """Other homes on this machine whose sessions are kept as well."""
        self._elapsed = elapsed
        self.until = self._written = self._read()
        self._asked_at = -math.inf

    @property
    def is_over(self) -> bool:
        return self._elapsed() >= self.until

    @property
    def left(self) -> float:
        """Seconds that are left of it."""
        return max(0.0, self.until - self._elapsed())

    def asked(self) -> float:
        """Return the time from which an answer to a request that is sent now extends the lease."""
        return self._elapsed()

    def renew(self, asked_at: float, seconds: float) -> None:
        """Extend the lease, because a leader has answered. A leader may also shorten it.

        Answers may overtake each other: the latest request counts, not the latest answer.
        """
        self._asked_at = max(self._asked_at, asked_at)
        self.until = self._asked_at + seconds
        if abs(self.until - self._written) >= seconds / WRITES_PER_LEASE:
            self._write()

    def _write(self) -> None:
        text = f"{self.until:.3f}\n{boot_id()}\n".encode()
        for home in self.neighbours:
            _replace(home / LEASE_FILE, text)
        if _replace(self.file, text):
            self._written = self.until

    def _read(self) -> float:
        """Return the deadline in the file. One of an earlier boot is over, as are the sessions of that boot."""
        try:
            until, boot = self.file.read_text().split()
            return float(until) if boot == boot_id() else -math.inf
        except (OSError, ValueError):
            return -math.inf


def _replace(file: Path, text: bytes) -> bool:
    """Replace the file. On a full disk it is written over, which needs no room. Return whether it has the text."""
    try:
        replace_file(str(file), text, fresh=f"{file}.tmp")
    except OSError as error:
        log.warning("cannot write %s: %s; it is overwritten in place", file, error.strerror)
        return _overwrite(file, text)
    return True


def _overwrite(file: Path, text: bytes) -> bool:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.pwrite(fd, text, 0) == len(text)
    except OSError:
        return False
    finally:
        os.close(fd)
