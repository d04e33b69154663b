"""The writing side of the spool: outputs in bounded files, a status that is replaced atomically, and a reserve.

The emergency record is room on the disk that is reserved before the agent starts, inside the lock file of its session:

    0       the final status, one line of JSON
    4096    the status while it runs
    8192    the last output of `stdout` or `screen`, if it could not be written to its own file
    73728   the same for `stderr`

A session that ends while the disk is full was paid for, so its end must be recorded all the same. The lock file is the
right place: the supervisor has it open from the start, and its blocks exist. Each part is written once, because a file
system that copies on write needs new room for a second time.

Here: the standard library only, because the supervisor imports this. Never here: what a status means (spool.py).
"""

import os
import time
from collections.abc import Sequence

STATUS = "status.json"
SEGMENT_BYTES = 4 << 20
"""Part of the format: a reader knows by this size that a file is complete."""
LAST_SEGMENTS = 7
"""With the first one, 32 MB for each output: the beginning and the end of a long output are what people need."""

RECORD_SECONDS = 600.0
"""How long an end that cannot be recorded anywhere is tried again: an end without a record is work that is repeated."""
MESSAGE_CHARACTERS = 500
"""The part of a message that fits into the emergency record, where each character takes up to six bytes."""

Value = str | int | float | None
LOCK = "lock"
RECORD_BYTES = 4096
"""One block of most file systems. A status has about 400 bytes; its message is cut so that it fits."""
TAIL_BYTES = 1 << 16
"""Holds the last event of an agent, which has its answer: without it, a finished attempt looks like a broken one."""
KEPT_BYTES = TAIL_BYTES - 64
"""The output in one part; the rest is for the line in front of it."""
RESERVED_BYTES = 2 * RECORD_BYTES + 2 * TAIL_BYTES


class Recording:
    """One output in files of bounded size, named by their first offset. The first and the last few are kept.

    A full disk must not end the agent. Its last output then waits in memory for room, and a line stands in place of
    what was dropped before it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.error = ""
        self.received_bytes = 0
        self.dropped_bytes = 0
        self.unwritten = b""
        self._size = 0
        self._starts = [0]
        self._fd = -1
        self._write(b"")

    def write(self, data: bytes) -> None:
        """Record output, and what could not be written before it."""
        self.received_bytes += len(data)
        self.unwritten += data
        line = dropped_line(self.dropped_bytes) if self.dropped_bytes else b""
        left = self._write(line + self.unwritten)
        if len(left) <= len(self.unwritten):
            self.dropped_bytes, self.unwritten = 0, left
        excess = len(self.unwritten) - KEPT_BYTES
        if excess > 0:
            self.dropped_bytes += excess
            self.unwritten = self.unwritten[excess:]

    def close(self) -> None:
        """Write what waits, if there is room now. `unwritten` and `dropped_bytes` say what is missing on disk."""
        self.write(b"")
        if self._fd < 0:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._note(error)
        os.close(self._fd)

    def _write(self, data: bytes) -> bytes:
        """Write as much as possible. Return the rest, which is empty unless there is an error."""
        try:
            if self._fd < 0:
                self._fd = _create(self.name)
            while data:
                if self._size >= SEGMENT_BYTES:
                    self._begin_segment()
                written = os.write(self._fd, data[: SEGMENT_BYTES - self._size])
                self._size += written
                data = data[written:]
        except OSError as error:
            self._note(error)
        return data

    def _note(self, error: OSError) -> None:
        self.error = f"{self.name}: {error.strerror}"

    def _begin_segment(self) -> None:
        start = self._starts[-1] + self._size
        fd = _create(f"{self.name}.{start}")
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd, self._size = fd, 0
        self._starts.append(start)
        if len(self._starts) > LAST_SEGMENTS + 1:
            os.unlink(f"{self.name}.{self._starts.pop(1)}")


def write_status(status: dict[str, Value], *, folder: str = ".", sync: bool = True) -> None:
    """Replace the status file atomically."""
    text = (json_of(status) + "\n").encode()
    replace_file(os.path.join(folder, STATUS), text, fresh=os.path.join(folder, "status.tmp"), sync=sync)
    if sync:
        _sync_folder(folder)


def replace_file(path: str, text: bytes, *, fresh: str, sync: bool = False) -> None:
    """Write `fresh`, which must be a new file and no link that somebody put there, and rename it to `path`."""
    _remove(fresh)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(fresh, path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return  # as it should be; else a writer was killed half-way


def write_emergency_record(lock_fd: int, status: dict[str, Value], *, is_final: bool) -> None:
    """Write a copy of the status to the room that was reserved for it: one line of ASCII that fits."""
    message = status.get("message")
    if isinstance(message, str):
        status = {**status, "message": message[:MESSAGE_CHARACTERS]}
    os.pwrite(lock_fd, (json_of(status) + "\n").encode()[:RECORD_BYTES], 0 if is_final else RECORD_BYTES)


def dropped_line(count: int) -> bytes:
    """Return the line that stands in place of dropped output."""
    return f"\n[paceline: {count} bytes of output were dropped here]\n".encode()


def record_running(lock_fd: int, status: dict[str, Value]) -> None:
    """Write the status of a running session. Without room for the file, the emergency record is enough."""
    try:
        write_emergency_record(lock_fd, status, is_final=False)
        # Not synced: after a power failure it is useless, and the agent's first output must not wait for the disk.
        write_status(status, sync=False)
    except OSError:
        return


def record_end(lock_fd: int, status: dict[str, Value], recordings: Sequence[Recording] = ()) -> None:
    """Write the final status in two places. One of them is enough; without both, try again until there is room."""
    give_up_at = time.monotonic() + RECORD_SECONDS
    while not is_end_recorded(lock_fd, status, [recording for recording in recordings if recording.unwritten]):
        if time.monotonic() > give_up_at:
            raise OSError("its end could not be written to the disk")
        time.sleep(1.0)


def is_end_recorded(lock_fd: int, status: dict[str, Value], unwritten: list[Recording]) -> bool:
    """Write both records of the end, and the output that has no file. Return whether one record is on the disk."""
    try:
        write_emergency_record(lock_fd, status, is_final=True)
        for recording in unwritten:
            write_tail(lock_fd, recording.name, recording.dropped_bytes, recording.unwritten)
        if unwritten:
            os.fsync(lock_fd)
        else:
            shrink(lock_fd)
        is_in_reserve = True
    except OSError:
        is_in_reserve = False
    try:
        write_status(status)
    except OSError:
        if not is_in_reserve:
            return False
        os.fsync(lock_fd)
    return True


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(fd)
    os.close(fd)


def json_of(status: dict[str, Value]) -> str:
    """Encode a flat object as JSON. Importing the json module would cost more than the rest of this file."""
    return "{" + ", ".join(f'"{key}": {_json_value(value)}' for key, value in status.items()) + "}"


def _json_value(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + "".join(map(_json_character, value)) + '"'
    return repr(value)


def _json_character(char: str) -> str:
    if char in '"\\' or not " " <= char <= "~":
        return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF and not 0xD800 <= ord(char) <= 0xDFFF else "?"
    return char


def _create(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def reserve(lock_fd: int) -> None:
    """Allocate the room. Raise `OSError` if the disk is full."""
    os.posix_fallocate(lock_fd, 0, RESERVED_BYTES)


def read_emergency_record(folder: str, *, is_final: bool) -> bytes:
    """Return a status; empty if none was written."""
    piece = _read(folder, RECORD_BYTES, 0 if is_final else RECORD_BYTES)
    line, end, _ = piece.partition(b"\n")
    return line if end and not line.startswith(b"\0") else b""


def write_tail(lock_fd: int, channel: str, dropped_bytes: int, data: bytes) -> None:
    """Write the last output of a channel, and how many bytes before it are gone."""
    os.pwrite(lock_fd, f"{dropped_bytes} {len(data)}\n".encode() + data, _tail_offset(channel))


def read_tail_part(folder: str, channel: str) -> tuple[int, bytes]:
    """Return how many bytes of output are gone, and the output after them; `(0, b"")` if all of it has its own file."""
    head, _, data = _read(folder, TAIL_BYTES, _tail_offset(channel)).partition(b"\n")
    numbers = head.split(b" ")
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        return 0, b""
    return int(numbers[0]), data[: int(numbers[1])]


def shrink(lock_fd: int) -> None:
    """Give back the room that a recorded end does not need."""
    os.ftruncate(lock_fd, RECORD_BYTES)


def _tail_offset(channel: str) -> int:
    return 2 * RECORD_BYTES + (TAIL_BYTES if channel == "stderr" else 0)


def _read(folder: str, size: int, offset: int) -> bytes:
    try:
        fd = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
