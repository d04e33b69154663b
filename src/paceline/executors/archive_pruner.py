"""The removal of archived output that is too old, or too much for the disk, in small steps.

The archive may hold a hundred thousand attempts, and the engine must not stand still while it reads them. So a scan
continues where the last call ended. Ages and sizes are added up by the minute, not by attempt, so that memory does not
grow with the archive: if the total is too large, the next scan removes what is older than the minute at which enough is
removed.

Here: which output goes first. Never here: which attempts a unit still needs; the caller knows.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator

import msgspec

from paceline.executors.interface import IsNeeded, OutputLimits, PruneResult
from paceline.executors.spool import ArchivedAttempt, Spool, disk_bytes

STEP_ATTEMPTS = 64
"""How many attempts one step reads or removes: about five milliseconds."""
READ_PER_ARCHIVED = 4
"""Attempts that a scan reads for each one that is archived meanwhile. With one or fewer, a scan might never end. With
four, the archive holds at most twice what the limits keep, and a unit costs a fifth of a millisecond more."""
SCAN_SECONDS = 600.0
"""The time between two scans. Reading 100,000 attempts costs about four seconds of CPU time."""
ROOM_RATIO = 0.9
"""What is left after a removal for size, so that the next few attempts do not cause another one."""
_BUCKET_SECONDS = 60.0


class _Scan:
    """One reading of the archive: what is left, by the minute, and how much must still go for the size."""

    def __init__(self, names: Iterator[str], oldest_kept: float, excess_bytes: int) -> None:
        self.names = names
        self.oldest_kept = oldest_kept
        self.excess_bytes = excess_bytes
        self.bytes_by_minute: dict[int, int] = {}

    def count(self, attempt: ArchivedAttempt) -> None:
        minute = int(attempt.ended_at // _BUCKET_SECONDS)
        self.bytes_by_minute[minute] = self.bytes_by_minute.get(minute, 0) + attempt.disk_bytes


class ArchivePruner:
    """Keeps the archive of one spool within its limits."""

    def __init__(self, spool: Spool, *, is_dry_run: bool = False) -> None:
        self._spool = spool
        self._is_dry_run = is_dry_run
        self._scan: _Scan | None = None
        self._next_scan_at = 0.0
        self._oldest_kept = 0.0
        self._excess_bytes = 0
        self._owed = 0
        """How many attempts are to be read for those that were archived since."""
        self._would_remove: set[str] = set()
        """What a dry run has found: it is still there at the next scan."""

    def note_archived(self) -> None:
        """Take note that the archive has grown by an attempt."""
        self._owed += READ_PER_ARCHIVED

    def prune_step(self, limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        """Read a piece of the archive, and remove what is beyond the limits. Does nothing between two scans."""
        if self._scan is None:
            if 0 <= self._next_scan_at - now <= SCAN_SECONDS:  # else the clock was set back
                self._owed = 0
                return PruneResult()
            self._scan = _Scan(self._spool.archived(), self._oldest_kept, self._excess_bytes)
        result, is_complete = self._read_piece(self._scan, limits, is_needed, now)
        self._owed = 0 if is_complete else max(0, self._owed - STEP_ATTEMPTS)
        if is_complete:
            self._end_scan(self._scan, limits, now)
        return msgspec.structs.replace(result, is_behind=self._owed >= STEP_ATTEMPTS)

    def prune_all(self, limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        """Remove all that is beyond the limits, at once: a scan for the age, and one for the size."""
        result = PruneResult()
        for _ in range(2):
            self._next_scan_at = now - 1.0
            result += self.prune_step(limits, is_needed, now)
            while self._scan is not None:
                result += self.prune_step(limits, is_needed, now)
        return result

    def _read_piece(
        self, scan: _Scan, limits: OutputLimits, is_needed: IsNeeded, now: float
    ) -> tuple[PruneResult, bool]:
        """Read the next attempts of the scan. Return what was removed, and whether the scan is complete."""
        too_old = now - limits.max_age if limits.max_age is not None else float("-inf")
        names = list(itertools.islice(scan.names, STEP_ATTEMPTS))
        present = (name for name in names if name not in self._would_remove)
        result = PruneResult()
        for attempt in filter(None, map(self._spool.archived_attempt, present)):
            is_excess = attempt.ended_at < scan.oldest_kept and scan.excess_bytes > 0
            is_beyond = attempt.ended_at < too_old or is_excess
            if not is_beyond or is_needed(attempt.name, self._spool.unit_of(attempt.name)):
                scan.count(attempt)
                continue
            scan.excess_bytes -= attempt.disk_bytes
            result += PruneResult(1, attempt.disk_bytes)
            if self._is_dry_run:
                self._would_remove.add(attempt.name)
            else:
                self._spool.remove_archived(attempt.name)
        return result, len(names) < STEP_ATTEMPTS

    def _end_scan(self, scan: _Scan, limits: OutputLimits, now: float) -> None:
        """Find out how much must go for the size, and set the time of the next scan."""
        self._scan = None
        self._oldest_kept, self._excess_bytes = 0.0, 0
        self._next_scan_at = now + min(SCAN_SECONDS, (limits.max_age or SCAN_SECONDS) / 4)
        if limits.max_bytes is None:
            return
        total = sum(scan.bytes_by_minute.values()) + _other_bytes(os.path.dirname(self._spool.root))
        if total <= limits.max_bytes:
            return
        self._excess_bytes = total - int(limits.max_bytes * ROOM_RATIO)
        found = 0
        for minute in sorted(scan.bytes_by_minute):
            found += scan.bytes_by_minute[minute]
            self._oldest_kept = (minute + 1) * _BUCKET_SECONDS
            if found >= self._excess_bytes:
                break
        self._next_scan_at = now


def _other_bytes(home: str) -> int:
    """Return what the files of the home itself use: the database and the log."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                total += disk_bytes(entry.stat(follow_symlinks=False))
    return total
