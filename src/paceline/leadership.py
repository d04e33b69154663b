"""Leadership of a home on this machine: a locked file that names its owner.

The kernel releases the lock when the process ends, in whatever way. So a killed leader is replaced at once. Other
machines go by the lease in the store. Never here: what a leader does.
"""

import fcntl
import os
import re
import secrets
import socket
import time
from pathlib import Path

import msgspec

from paceline.errors import StoreError
from paceline.store import Store

ENGINE = "engine.lock"
"""Held by the engine."""
HOST = "host.lock"
"""Held by an `exec` that hands out slots while no engine runs."""


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the lock file."""

    owner: str
    pid: int
    since: float


def new_owner() -> str:
    """Return a name that was never used before: attempt ids contain it."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")[:40] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


class LeaderLock:
    """One of the two locks of a home. `previous` is the last holder before `take`, if it did not release."""

    def __init__(self, home: Path, name: str) -> None:
        self.previous: Leader | None = None
        self._path = home / name
        self._fd: int | None = None

    def take(self, leader: Leader) -> bool:
        """Take the lock and write the leader into the file. Returns False while another process holds it."""
        fd = self._open()
        if not _lock(fd):
            os.close(fd)
            return False
        self.previous = _read(fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(leader), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def holder(self) -> Leader | None:
        """Return the present holder."""
        leader, is_held = self._inspect()
        return leader if is_held else None

    def left_behind(self) -> Leader | None:
        """Return the last holder if it is gone."""
        leader, is_held = self._inspect()
        return None if is_held else leader

    def _inspect(self) -> tuple[Leader | None, bool]:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None, False
        try:
            is_held = not _can_share(fd)
            return _read(fd), is_held
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error


def _lock(fd: int) -> bool:
    """Lock the file. Tries a few times, because a process that only inspects it holds it for a moment, too."""
    for nap in (0.0, 0.01, 0.02, 0.05, 0.1):
        time.sleep(nap)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def _can_share(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> Leader | None:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=Leader)
    except msgspec.MsgspecError:
        return None


def resign(store: Store, gone: Leader | None) -> None:
    """Remove the lease that a killed leader of this machine left in the store: the next leader need not wait for it."""
    if gone is not None:
        store.resign(gone.owner)
