"""Leadership of a home on this machine: a locked file that names its owner.

The kernel releases the lock when the process ends, in whatever way. So a killed leader is replaced at once. A store
that several machines share has no such file: there the lease in the store decides (`leadership/fleet.py`). Never
here: what a leader does.
"""

import contextlib
import fcntl
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from paceline.errors import EngineBusy, StoreError
from paceline.store import Store

ENGINE = "engine.lock"
"""Held by the engine."""


TURN_SECONDS = 2.0
"""How long `no_leader` waits for a lock: another command that does the same holds it for less."""


class Leader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that leads, as others see it. `url` is where its daemon listens.

    `machine` identifies the machine; `host` is its name for people.
    """

    owner: str
    pid: int
    since: float
    host: str = ""
    machine: str = ""
    home: str = ""
    url: str | None = None
    only_slots: bool = False
    """Whether it is an engine that an `exec` has started: it starts no work, and makes way for one that does."""

    def __str__(self) -> str:
        return f"process {self.pid}" if not self.host else f"process {self.pid} on {self.host}"


def new_owner() -> str:
    """Return a name that was never used before: attempt ids contain it."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")[:40] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


class LeaderLock:
    """The lock of a home. `previous` is the last holder before `take`, if it did not release.

    The file always names the owner of a lease that may be in the store: a new owner is written by `announce`, after
    the lease of the previous one was resigned and before it takes the lead. So whenever processes are killed, the next
    one knows whose lease it must end.
    """

    def __init__(self, home: Path, name: str) -> None:
        self.previous: Leader | None = None
        self._path = home / name
        self._fd: int | None = None

    def take(self) -> bool:
        """Take the lock. Returns False while another process holds it."""
        fd = self._open()
        if not _lock(fd):
            os.close(fd)
            return False
        self.previous = _read(fd)
        self._fd = fd
        return True

    def announce(self, leader: Leader) -> None:
        """Write the leader into the file that this process has locked, in place of the previous one."""
        assert self._fd is not None
        text = msgspec.json.encode(leader)
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def holder(self) -> Leader | None:
        """Return the present holder."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return None if _can_share(fd) else _read(fd)
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error


@contextlib.contextmanager
def no_leader(home: Path, purpose: str) -> Iterator[None]:
    """Keep engines out of the home while the block runs. Raise `EngineBusy` if one leads it."""
    lock = LeaderLock(home, ENGINE)
    give_up_at = time.monotonic() + TURN_SECONDS
    while not lock.take():
        if time.monotonic() > give_up_at:
            raise EngineBusy(_in_the_way(lock, home, purpose))
    try:
        yield
    finally:
        lock.release()


def _in_the_way(lock: LeaderLock, home: Path, purpose: str) -> str:
    leader = lock.holder()
    process = f" ({leader})" if leader else ""
    if leader is not None and leader.only_slots:
        what = f"an engine that `paceline exec` has started{process} serves {home}"
        return f"{what}: wait until its programs have ended, or stop it; {purpose}"
    return f"an engine{process} runs {home}: stop it first; {purpose}"


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
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def resign(store: Store, gone: Leader | None) -> None:
    """Remove the lease that a killed leader of this machine left in the store: the next leader need not wait for it."""
    if gone is not None:
        store.resign(gone.owner)
