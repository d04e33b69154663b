"""The lease of a host: until when its sessions may run without an answer of a leader.

The time is measured since the boot, from before a request was sent, so neither a slow answer nor a clock that was set
makes it too long. It is kept in a file: the supervisors of all sessions read it there, also when no worker runs.
"""

import logging
import math
import os
from collections.abc import Callable
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
        try:
            replace_file(str(self.file), text, fresh=f"{self.file}.tmp")
        except OSError as error:
            log.warning("cannot write %s: %s; it is overwritten in place", self.file, error.strerror)
            if not self._overwrite(text):
                return
        self._written = self.until

    def _overwrite(self, text: bytes) -> bool:
        """Write over the old file, which needs no room on a full disk."""
        try:
            fd = os.open(self.file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return os.pwrite(fd, text, 0) == len(text)
        except OSError:
            return False
        finally:
            os.close(fd)

    def _read(self) -> float:
        """Return the deadline in the file. One of an earlier boot is over, as are the sessions of that boot."""
        try:
            until, boot = self.file.read_text().split()
            return float(until) if boot == boot_id() else -math.inf
        except (OSError, ValueError):
            return -math.inf
