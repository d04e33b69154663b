"""Locks that hold between threads and between processes, and that the kernel releases when their holders end."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final

from paceline.errors import WorkspaceError

LOCK_SECONDS: Final = 300.0
"""How long to wait for a lock. Its holders keep it for seconds; one that keeps it for minutes hangs."""
_FIRST_NAP: Final = 0.002
_LONGEST_NAP: Final = 0.05
"""Registering a worktree takes about 10 ms, so a waiter that naps this long loses little."""


@contextlib.contextmanager
def locked(file: str, *, seconds: float = LOCK_SECONDS) -> Iterator[int]:
    """Hold the lock of that file while the block runs. Yield its descriptor, for processes that must hold it too.

    The folder is created if it is missing. Raise `WorkspaceError` if the lock is not free in time.
    """
    give_up_at = time.monotonic() + seconds
    nap = _FIRST_NAP
    while (fd := _try_lock(file)) is None:
        if time.monotonic() > give_up_at:
            raise WorkspaceError(
                f"another process has held {file} for more than {seconds:g} s;"
                " find it with `fuser` on this file and end it, or wait for it"
            )
        time.sleep(nap)
        nap = min(nap * 2, _LONGEST_NAP)
    try:
        yield fd
    finally:
        os.close(fd)


def _try_lock(file: str) -> int | None:
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WorkspaceError(f"cannot write {file}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(file)):
            return fd
    except (BlockingIOError, FileNotFoundError):  # held by another, or removed by its last holder
        pass
    os.close(fd)
    return None
