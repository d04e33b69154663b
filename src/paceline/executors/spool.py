"""The spool: one folder for each attempt, written by its supervisor and read by the engine.

    spool/ATTEMPT/             an attempt whose outcome is not stored yet
        lock                   held by the supervisor for its whole life
        stdin                  the agent's input, if there is any
        stdout stderr          what it printed; `stdout.4194304` continues at that offset (`screen`: in a terminal)
        status.json            `running`, `ended` or `not_started`, with pids, times and usage
        stop                   written by the engine to end the session; holds the seconds of grace
        supervisor.log         empty unless the supervisor itself failed
    spool/.settled/ATTEMPT/    the archive: an attempt whose outcome is stored, kept for its output

Here: names, locks and reading. Never here: a process.
"""

import contextlib
import fcntl
import os
import re
import shutil

import msgspec

from paceline.detect.stream import Channel
from paceline.errors import AttemptInUse, InvalidInput, SpoolError
from paceline.executors.interface import Cause, SessionPhase
from paceline.executors.spool_writer import SEGMENT_BYTES, STATUS

PIECE_BYTES = 1 << 20
"""The most that one read returns: bounds memory and the time of a pass."""
_ATTEMPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", re.ASCII)
_ARCHIVE = ".settled"
"""Part of the format of a home: earlier versions archived under this name."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last status that a supervisor wrote. Unknown fields of other versions are ignored."""

    phase: SessionPhase
    boot_id: str
    started_at: float
    supervisor_pid: int | None = None
    supervisor_ticks: int | None = None
    pid: int | None = None
    ticks: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None
    message: str = ""
    ended_at: float | None = None
    max_rss_bytes: int | None = None
    cpu_seconds: float | None = None
    rows: int | None = None
    columns: int | None = None


_decode_status = msgspec.json.Decoder(SessionStatus).decode


class Spool:
    """The folders of all attempts."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        try:
            os.makedirs(os.path.join(self.root, _ARCHIVE), mode=0o700, exist_ok=True)
        except OSError as error:
            raise SpoolError(f"cannot create the spool folder {self.root}: {error.strerror}") from error

    def create(self, attempt_id: str) -> str:
        """Create the folder of an attempt that was never started."""
        if not _ATTEMPT.fullmatch(attempt_id):
            raise InvalidInput(f"not a valid attempt id: {attempt_id!r}; use letters, digits, '.', '_' and '-'")
        folder = os.path.join(self.root, attempt_id)
        try:
            if os.path.lexists(self._archived(attempt_id)):
                raise FileExistsError
            os.mkdir(folder, 0o700)
        except FileExistsError:
            how = "is running" if is_locked(folder) else "has been started before"
            raise AttemptInUse(f"attempt {attempt_id} {how}") from None
        except OSError as error:
            raise SpoolError(f"cannot write to the spool {self.root}: {error.strerror}") from error
        return folder

    def folder(self, attempt_id: str) -> str | None:
        """Return the folder of the attempt, archived or not; None if there is none."""
        for folder in (os.path.join(self.root, attempt_id), self._archived(attempt_id)):
            if _ATTEMPT.fullmatch(attempt_id) and os.path.isdir(folder):
                return folder
        return None

    def unarchived(self) -> list[str]:
        """Return the attempts whose outcome is not stored."""
        return sorted(name for name in os.listdir(self.root) if _ATTEMPT.fullmatch(name))

    def archive(self, attempt_id: str, *, keep_output: bool) -> None:
        """Move the attempt to the archive, or delete it. No-op the second time."""
        folder = os.path.join(self.root, attempt_id)
        if not keep_output:
            shutil.rmtree(folder, ignore_errors=True)
        elif os.path.isdir(folder):
            os.rename(folder, self._archived(attempt_id))

    def _archived(self, attempt_id: str) -> str:
        return os.path.join(self.root, _ARCHIVE, attempt_id)


class OutputReader:
    """A reader of one recording, from its beginning and while it grows."""

    def __init__(self, folder: str, channel: Channel) -> None:
        self._folder = folder
        self._channel = channel
        self._start = self._position = 0
        self._path = os.path.join(folder, channel)

    def read(self) -> bytes:
        """Return the next piece. A line stands in place of dropped output. Costs one `stat` if there is nothing new."""
        try:
            if os.stat(self._path).st_size > self._position - self._start:
                return self._read_piece()
        except FileNotFoundError:
            return self._read_next_file()
        is_complete = self._position - self._start >= SEGMENT_BYTES
        return self._read_next_file() if is_complete else b""

    def _read_piece(self) -> bytes:
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._position - self._start)
            data = file.read(PIECE_BYTES)
        self._position += len(data)
        return data

    def _read_next_file(self) -> bytes:
        """Continue with the next file of the recording: this one is complete or was dropped."""
        following = min((start for start in self._starts() if start >= self._position and start > 0), default=None)
        if following is None:
            return b""
        dropped = following - self._position
        self._start = self._position = following
        self._path = os.path.join(self._folder, f"{self._channel}.{following}")
        return dropped_line(dropped) if dropped else self.read()

    def _starts(self) -> list[int]:
        return _later_starts(self._folder, self._channel)


def read_tail(folder: str, channel: Channel, most: int) -> bytes:
    """Return the last bytes of a recording without reading the rest."""
    later = sorted(_later_starts(folder, channel), reverse=True)
    data = b""
    for name in (*(f"{channel}.{start}" for start in later), channel):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "rb", buffering=0) as file:
            missing = most - len(data)
            file.seek(-min(missing, os.fstat(file.fileno()).st_size), os.SEEK_END)
            data = file.read(missing) + data
        if len(data) >= most:
            break
    return data


def _later_starts(folder: str, channel: Channel) -> list[int]:
    """Return the offsets at which the later files of a recording begin."""
    prefix = channel + "."
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    starts = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return [int(start) for start in starts if start.isdecimal()]


def dropped_line(count: int) -> bytes:
    """Return the line that stands in place of dropped output."""
    return f"\n[paceline: {count} bytes of output were dropped here]\n".encode()


def read_session_status(folder: str) -> SessionStatus | None:
    """Return the last status; None if there is none or it cannot be read."""
    try:
        with open(os.path.join(folder, STATUS), "rb") as file:
            return _decode_status(file.read())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_input(folder: str, data: bytes) -> None:
    """Write the agent's standard input, readable by its owner only: it may contain secrets."""
    fd = os.open(os.path.join(folder, "stdin"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def request_stop(folder: str, grace: float) -> None:
    """Mark the coming TERM as a stop by the engine, with its seconds of grace."""
    fresh = os.path.join(folder, "stop.tmp")
    with open(fresh, "w") as file:
        file.write(f"{grace}\n")
    os.rename(fresh, os.path.join(folder, "stop"))


def take_lock(folder: str) -> int:
    """Return an open file that holds the attempt's lock, for the supervisor to inherit."""
    fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AttemptInUse(f"attempt {os.path.basename(folder)} is running") from None
    return fd


def is_locked(folder: str) -> bool:
    """Return whether a supervisor is alive here. The lock ends with the process that holds it."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
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
