"""The black box of a session: room on the disk that is reserved before the agent starts, inside its lock file.

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

LOCK = "lock"
RECORD_BYTES = 4096
"""One block of most file systems. A status has about 400 bytes; its message is cut so that it fits."""
TAIL_BYTES = 1 << 16
"""Holds the last event of an agent, which has its answer: without it, a finished attempt looks like a broken one."""
KEPT_BYTES = TAIL_BYTES - 64
"""The output in one part; the rest is for the line in front of it."""
RESERVED_BYTES = 2 * RECORD_BYTES + 2 * TAIL_BYTES


def reserve(lock_fd: int) -> None:
    """Allocate the room. Raise `OSError` if the disk is full."""
    os.posix_fallocate(lock_fd, 0, RESERVED_BYTES)


def write_record(lock_fd: int, line: str, *, is_final: bool) -> None:
    """Write a status, which must be one line of ASCII and fit."""
    os.pwrite(lock_fd, (line + "\n").encode()[:RECORD_BYTES], 0 if is_final else RECORD_BYTES)


def read_record(folder: str, *, is_final: bool) -> bytes:
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
