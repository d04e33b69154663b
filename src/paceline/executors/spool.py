"""The spool: one folder for each attempt, written by its supervisor and read by the engine.

    spool/ATTEMPT/             an attempt whose outcome is not stored yet
        lock                   held by the supervisor for its whole life; it has a copy of the status
        stdin                  the agent's input, if there is any
        stdout stderr          what it printed; `stdout.4194304` continues at that offset (`screen`: in a terminal)
        status.json            `running`, `ended` or `not_started`, with pids, times and usage
        stop                   written by the engine to end the session; holds the seconds of grace
        supervisor.log         empty unless the supervisor itself failed
    spool/.settled/ATTEMPT/    the archive: an attempt whose outcome is stored, kept for its output

Here: names, locks, reading, and the removal of archived output. Only their owner can enter the home and the spool: they
hold prompts, output and control files. Whoever can write there can end processes of the owner and overwrite files. So
an existing folder is made private too, and a folder of somebody else, or a symbolic link in its place, is refused.
Never here: a process.
"""

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import pwd
import re
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from paceline.core.values.session_output import Channel
from paceline.errors import AttemptInUse, InvalidInput, NoRoomForSession, SpoolError
from paceline.executors import spool_writer
from paceline.executors.interface import DEFAULT_GRACE_SECONDS, IsNeeded, OutputLimits, PruneResult, SessionState

PRIVATE_MODE = 0o700
_OTHERS = 0o077


def make_private(folder: str) -> None:
    """Create the folder, or make the existing one private. Raise `SpoolError` if it is not ours."""
    try:
        os.makedirs(folder, mode=PRIVATE_MODE, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(folder):
            raise SpoolError(
                f"{folder} is a symbolic link to {os.path.realpath(folder)}; set PACELINE_HOME to a folder itself"
            ) from error
        raise SpoolError(
            f"cannot create the folder {folder}: {error.strerror}; set PACELINE_HOME to a folder of yours"
        ) from error
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise SpoolError(
                f"{folder} belongs to {_user_name(found.st_uid)}, not to you ({_user_name(os.geteuid())});"
                " set PACELINE_HOME to a folder of yours, or run as its owner"
            )
        if stat.S_IMODE(found.st_mode) & _OTHERS:
            os.fchmod(fd, PRIVATE_MODE)
    finally:
        os.close(fd)


def is_open_to_others(folder: str) -> bool:
    """Return whether other users can enter an existing folder."""
    try:
        return bool(stat.S_IMODE(os.lstat(folder).st_mode) & _OTHERS)
    except OSError:
        return False


def can_be_used(folder: str) -> bool:
    """Return whether a folder of ours is there, or none at all. False for one of another user."""
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def is_own_folder(path: str) -> bool:
    """Return whether the path is a folder of ours, and no link to one."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# -- the spool ---------------------------------------------------------------------------------------

log = logging.getLogger("paceline.executors")

PIECE_BYTES = 1 << 16
"""The most that one read returns. Others have their turn between two pieces, so one must take only milliseconds."""
_ATTEMPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)
_NO_ROOM = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "your disk quota is used up; free some space",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n), or lower the pool",
    errno.ENFILE: "the machine has too many open files; lower the pool",
    errno.EAGAIN: "too many processes run; raise the limit (ulimit -u), or lower the pool",
    errno.ENOMEM: "there is not enough memory; lower the pool",
}
"""What is missing on this machine, by error. Such an error says nothing about the unit."""
_NO_FILE_FREE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of opening a file that say nothing about the file. It may be opened again in a moment."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ARCHIVE = ".settled"
"""Part of the format of a home: earlier versions archived under this name."""


class SessionStatus(SessionState, frozen=True, kw_only=True):
    """The last status that a supervisor wrote. Unknown fields of other versions are ignored."""

    boot_id: str
    supervisor_pid: int | None = None
    supervisor_ticks: int | None = None
    ticks: int | None = None
    unit: str | None = None
    """The unit that the attempt was made for."""
    monotonic_at: float | None = None
    """When it began on the monotonic clock, later by the time in which its supervisor could not run."""
    timeout: float | None = None
    stall: float | None = None
    grace: float = DEFAULT_GRACE_SECONDS


_decode_status = msgspec.json.Decoder(SessionStatus).decode


class ArchivedAttempt(msgspec.Struct, frozen=True):
    """An attempt in the archive."""

    name: str
    ended_at: float
    disk_bytes: int


class Spool:
    """The folders of all attempts.

    `neighbours` are the spools of other homes on this machine whose engines have led the same store: attempts whose
    names begin with the key are in that spool.
    """

    def __init__(self, root: str, neighbours: Mapping[str, str] | None = None) -> None:
        self.root = os.path.abspath(root)
        self.neighbours = dict(neighbours or {})
        self._make_folders()

    def _make_folders(self) -> None:
        make_private(self.root)
        make_private(os.path.join(self.root, _ARCHIVE))

    def create(self, attempt_id: str) -> str:
        """Create the folder of an attempt that was never started."""
        if not _ATTEMPT.fullmatch(attempt_id):
            raise InvalidInput(f"not a valid attempt id: {attempt_id!r}; use letters, digits, '.', '_' and '-'")
        folder = os.path.join(self.root, attempt_id)
        try:
            if os.path.lexists(self._archived(attempt_id)):
                raise FileExistsError
            self._make_attempt(folder)
        except FileExistsError:
            how = "is running" if is_locked(folder) else "has been started before"
            raise AttemptInUse(f"attempt {attempt_id} {how}") from None
        except OSError as error:
            raise spool_error(self.root, error) from error
        return folder

    def _make_attempt(self, folder: str) -> None:
        """Create the folder of an attempt. A spool that was deleted while the engine runs is created again."""
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            log.warning("the spool %s was deleted while the engine runs; it is created again", self.root)
            self._make_folders()
            os.mkdir(folder, 0o700)

    def folder(self, attempt_id: str) -> str | None:
        """Return the folder of the attempt, archived or not; None if there is none."""
        if not _ATTEMPT.fullmatch(attempt_id):
            return None
        by_name = next((root for prefix, root in self.neighbours.items() if attempt_id.startswith(prefix)), self.root)
        for root in dict.fromkeys((self.root, by_name)):
            for folder in (os.path.join(root, attempt_id), os.path.join(root, _ARCHIVE, attempt_id)):
                if is_own_folder(folder):
                    return folder
        return None

    def unarchived(self) -> list[str]:
        """Return the attempts whose outcome is not stored. What another user put there is ignored."""
        found = _attempts_in(self.root)
        for prefix, root in self.neighbours.items():
            with contextlib.suppress(OSError):  # that home was deleted, or is not ours
                found += [name for name in _attempts_in(root) if name.startswith(prefix)]
        return found

    def archive(self, attempt_id: str) -> None:
        """Move the attempt to the archive. No-op the second time."""
        folder = self.folder(attempt_id)
        if folder is None or os.path.basename(root := os.path.dirname(folder)) == _ARCHIVE:
            return
        os.makedirs(os.path.join(root, _ARCHIVE), mode=0o700, exist_ok=True)  # a person may have removed it
        os.rename(folder, os.path.join(root, _ARCHIVE, attempt_id))

    def archived(self) -> Iterator[str]:
        """Yield the attempts in the archive, in no order. They are read piece by piece as they are asked for."""
        with contextlib.suppress(OSError), os.scandir(os.path.join(self.root, _ARCHIVE)) as entries:
            for entry in entries:
                if _ATTEMPT.fullmatch(entry.name):
                    yield entry.name

    def archived_attempt(self, attempt_id: str) -> ArchivedAttempt | None:
        """Return age and size of an attempt in the archive; None if it is gone or not ours."""
        folder = self._archived(attempt_id)
        if not is_own_folder(folder):
            return None
        try:
            ended_at = os.lstat(folder).st_mtime
            with os.scandir(folder) as entries:
                used = sum(disk_bytes(entry.stat(follow_symlinks=False)) for entry in entries)
        except OSError:
            return None
        return ArchivedAttempt(attempt_id, ended_at, used)

    def unit_of(self, attempt_id: str) -> str | None:
        """Return the unit of an archived attempt; None if it is unknown, as in those of earlier versions."""
        try:
            status = read_session_status(self._archived(attempt_id))
        except OSError:
            return None
        return None if status is None else status.unit

    def remove_archived(self, attempt_id: str) -> None:
        """Delete an attempt from the archive: its prompt, its output and its status."""
        if _ATTEMPT.fullmatch(attempt_id):
            shutil.rmtree(self._archived(attempt_id), ignore_errors=True)

    def _archived(self, attempt_id: str) -> str:
        return os.path.join(self.root, _ARCHIVE, attempt_id)


def spool_root(home: Path) -> str:
    """Return the spool of a home."""
    return str(home / "spool")


def _attempts_in(root: str) -> list[str]:
    names = sorted(name for name in os.listdir(root) if _ATTEMPT.fullmatch(name))
    return [name for name in names if is_own_folder(os.path.join(root, name))]


def count_attempts(root: str) -> int:
    """Return the number of attempts in a spool, archived or not; 0 if there is no spool."""
    count = 0
    for folder in (root, os.path.join(root, _ARCHIVE)):
        with contextlib.suppress(OSError):
            count += sum(1 for name in os.listdir(folder) if _ATTEMPT.fullmatch(name))
    return count


class OutputReader:
    """A reader of one recording, from its beginning or a position, and while it grows."""

    def __init__(self, folder: str, channel: Channel, position: int = 0) -> None:
        self._folder = folder
        self._channel = channel
        self._position = position
        starts = _later_starts(folder, channel) if position > 0 else []
        self._start = max((start for start in starts if start <= position), default=0)
        self._path = os.path.join(folder, f"{channel}.{self._start}" if self._start else channel)
        self._is_tail_read = False
        self.written_at: float | None = None
        """When the piece that was read last had been written, at the latest."""

    @property
    def position(self) -> int:
        """Where a later reader continues."""
        return self._position

    def read(self, *, is_over: bool = True) -> bytes:
        """Return the next piece. A line stands in place of dropped output.

        Costs one `stat` if there is nothing new and the session is not over.
        """
        try:
            if os.stat(self._path).st_size > self._position - self._start:
                return self._read_piece()
            is_complete = self._position - self._start >= spool_writer.SEGMENT_BYTES
        except FileNotFoundError:
            is_complete = True
        return (self._read_next_file() if is_complete else b"") or (self._read_tail_part() if is_over else b"")

    def continue_in(self, folder: str) -> None:
        """Read on in another folder: that of an attempt moves to the archive when its outcome is stored."""
        self._path = os.path.join(folder, os.path.basename(self._path))
        self._folder = folder

    def _read_tail_part(self) -> bytes:
        """Return the last output, if there was no room for it in its own file."""
        if self._is_tail_read:
            return b""
        dropped, data = spool_writer.read_tail_part(self._folder, self._channel)
        self._is_tail_read = bool(data)
        return (spool_writer.dropped_line(dropped) if dropped else b"") + data

    def _read_piece(self) -> bytes:
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._position - self._start)
            data = file.read(PIECE_BYTES)
            self.written_at = os.fstat(file.fileno()).st_mtime
        self._position += len(data)
        return data

    def _read_next_file(self) -> bytes:
        """Continue with the next file of the recording: this one is complete or was dropped."""
        following = self._next_start()
        if following is not None and following > self._position:
            # A listing may have a file that came while it was made, and not the one before it. The next one has both.
            following = self._next_start()
        if following is None:
            return b""
        dropped = following - self._position
        self._start = self._position = following
        self._path = os.path.join(self._folder, f"{self._channel}.{following}")
        return spool_writer.dropped_line(dropped) if dropped else self.read()

    def _next_start(self) -> int | None:
        starts = _later_starts(self._folder, self._channel)
        return min((start for start in starts if start >= self._position and start > 0), default=None)


def spool_error(root: str, error: OSError) -> SpoolError:
    """Return the error to raise where the spool cannot be written, with what to do about it."""
    advice = _NO_ROOM.get(error.errno or 0)
    if advice is not None:
        return NoRoomForSession(f"no session can be started now: {advice} ({error.strerror}, spool {root})")
    return SpoolError(f"cannot write to the spool {root}: {error.strerror}")


def disk_bytes(found: os.stat_result) -> int:
    """Return what a file takes on the disk: whole blocks. A small file may lie in its directory entry, without any."""
    return max(found.st_blocks * 512, found.st_size)


def read_tail(folder: str, channel: Channel, most: int) -> bytes:
    """Return the last bytes of a recording without reading the rest."""
    later = sorted(_later_starts(folder, channel), reverse=True)
    dropped, data = spool_writer.read_tail_part(folder, channel)
    data = ((spool_writer.dropped_line(dropped) if dropped else b"") + data)[-most:]
    for name in (*(f"{channel}.{start}" for start in later), channel):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "rb", buffering=0) as file:
            missing = most - len(data)
            file.seek(-min(missing, os.fstat(file.fileno()).st_size), os.SEEK_END)
            data = file.read(missing) + data
        if len(data) >= most:
            break
    return data


def _later_starts(folder: str, channel: Channel) -> list[int]:
    prefix = channel + "."
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    starts = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return [int(start) for start in starts if start.isdecimal()]


def read_session_status(folder: str) -> SessionStatus | None:
    """Return the last status; None if there is none or it cannot be read.

    The emergency record has a copy, for a file that could not be written or is damaged. Raises `OSError` while the
    machine can open no file (`is_no_file_free`): then nothing is known.
    """
    status = _decoded(_read_status, os.path.join(folder, spool_writer.STATUS))
    if status is not None and status.phase != "running":
        return status
    for is_final in (True, False):
        copy = _decoded(spool_writer.read_emergency_record, folder, is_final=is_final)
        if copy is not None:
            return copy
    return status


def is_no_file_free(error: OSError) -> bool:
    """Return whether a file could not be opened because too many are open, or memory is short."""
    return error.errno in _NO_FILE_FREE


def _read_status(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()


def _decoded(read: Callable[..., bytes], path: str, **which: bool) -> SessionStatus | None:
    try:
        return _decode_status(read(path, **which))
    except OSError as error:
        if is_no_file_free(error):
            raise
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_input(folder: str, data: bytes) -> None:
    """Write the agent's standard input, readable by its owner only: it may contain secrets."""
    with open(os.open(os.path.join(folder, "stdin"), _NEW_FILE, 0o600), "wb") as file:
        file.write(data)


def request_stop(folder: str, grace: float) -> None:
    """Mark the coming TERM as a stop by the engine, with its seconds of grace.

    Without room on the disk the TERM must do without its mark: the supervisor then uses its own grace.
    """
    with contextlib.suppress(OSError):
        spool_writer.replace_file(
            os.path.join(folder, "stop"), f"{grace}\n".encode(), fresh=os.path.join(folder, "stop.tmp")
        )


def take_lock(folder: str) -> int:
    """Return an open file that holds the attempt's lock, for the supervisor to inherit, with room for the end."""
    fd = os.open(os.path.join(folder, spool_writer.LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        spool_writer.reserve(fd)
    except BlockingIOError:
        os.close(fd)
        raise AttemptInUse(f"attempt {os.path.basename(folder)} is running") from None
    except OSError:
        os.close(fd)
        raise
    return fd


def is_locked(folder: str) -> bool:
    """Return whether a supervisor is alive here, or may be. The lock ends with the process that holds it."""
    try:
        fd = os.open(os.path.join(folder, spool_writer.LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return is_no_file_free(error)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def last_log_line(folder: str) -> str:
    """Return the last line that a failed supervisor logged."""
    try:
        with open(os.path.join(folder, "supervisor.log"), encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


# -- the removal of archived output ----------------------------------------------------------------

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


class ArchivePruner:
    """Keeps the archive of one spool within its limits. The caller knows which attempts a unit still needs.

    The archive may hold a hundred thousand attempts, and the engine must not stand still while it reads them. So a scan
    continues where the last call ended. Ages and sizes are added up by the minute, not by attempt, so that memory does
    not grow with the archive: if the total is too large, the next scan removes what is older than the minute at which
    enough is removed.
    """

    def __init__(self, spool: Spool, *, is_dry_run: bool = False) -> None:
        self._spool = spool
        self._is_dry_run = is_dry_run
        self._unread: Iterator[str] | None = None
        """What the present scan has not read."""
        self._bytes_by_minute: Counter[int] = Counter()
        """What it leaves, by the minute of its end."""
        self._next_scan_at = 0.0
        self._oldest_kept = 0.0
        self._excess_bytes = 0
        """What must go for the size, of what has ended before the oldest that is kept."""
        self._owed = 0
        """How many attempts are to be read for those that were archived since."""
        self._would_remove: set[str] = set()
        """What a dry run has found: it is still there at the next scan."""

    def note_archived(self) -> None:
        """Take note that the archive has grown by an attempt."""
        self._owed += READ_PER_ARCHIVED

    def prune_step(self, limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        """Read a piece of the archive, and remove what is beyond the limits. Does nothing between two scans."""
        if self._unread is None:
            if 0 <= self._next_scan_at - now <= SCAN_SECONDS:  # else the clock was set back
                self._owed = 0
                return PruneResult()
            self._unread = self._spool.archived()
            self._bytes_by_minute.clear()
        names = list(itertools.islice(self._unread, STEP_ATTEMPTS))
        result = self._prune(names, limits, is_needed, now)
        if len(names) < STEP_ATTEMPTS:
            self._owed = 0
            self._end_scan(limits, now)
        self._owed = max(0, self._owed - STEP_ATTEMPTS)
        return msgspec.structs.replace(result, is_behind=self._owed >= STEP_ATTEMPTS)

    def prune_all(self, limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        """Remove all that is beyond the limits, at once: a scan for the age, and one for the size."""
        result = PruneResult()
        for _ in range(2):
            self._next_scan_at = now - 1.0
            result += self.prune_step(limits, is_needed, now)
            while self._unread is not None:
                result += self.prune_step(limits, is_needed, now)
        return result

    def _prune(self, names: list[str], limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        too_old = now - limits.max_age if limits.max_age is not None else float("-inf")
        present = (name for name in names if name not in self._would_remove)
        result = PruneResult()
        for attempt in filter(None, map(self._spool.archived_attempt, present)):
            is_excess = attempt.ended_at < self._oldest_kept and self._excess_bytes > 0
            is_beyond = attempt.ended_at < too_old or is_excess
            if not is_beyond or is_needed(attempt.name, self._spool.unit_of(attempt.name)):
                self._bytes_by_minute[int(attempt.ended_at // _BUCKET_SECONDS)] += attempt.disk_bytes
                continue
            self._excess_bytes -= attempt.disk_bytes
            result += PruneResult(1, attempt.disk_bytes)
            if self._is_dry_run:
                self._would_remove.add(attempt.name)
            else:
                self._spool.remove_archived(attempt.name)
        return result

    def _end_scan(self, limits: OutputLimits, now: float) -> None:
        """Find out how much must go for the size, and set the time of the next scan."""
        self._unread = None
        self._oldest_kept, self._excess_bytes = 0.0, 0
        self._next_scan_at = now + min(SCAN_SECONDS, (limits.max_age or SCAN_SECONDS) / 4)
        if limits.max_bytes is None:
            return
        total = self._bytes_by_minute.total() + _other_bytes(os.path.dirname(self._spool.root))
        if total <= limits.max_bytes:
            return
        self._excess_bytes = total - int(limits.max_bytes * ROOM_RATIO)
        found = 0
        for minute in sorted(self._bytes_by_minute):
            found += self._bytes_by_minute[minute]
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
