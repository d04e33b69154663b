"""A disk that can be filled: a real small file system where we may mount one, else faults of the same effect."""

import contextlib
import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from tests.executors.conftest import Sandbox, until

from paceline.executors.spool_writer import RESERVED_BYTES

DISK_BYTES = 2 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_MS_RDONLY, _MS_REMOUNT = 1, 32


class SmallDisk:
    """A mounted file system of two megabytes."""

    reason = os.strerror(errno.ENOSPC)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._filler = path / "filler"

    def set_read_only(self) -> None:
        assert _LIBC.mount(b"none", os.fsencode(self._path), b"tmpfs", _MS_REMOUNT | _MS_RDONLY, b"") == 0

    def fill(self, _sandbox: Sandbox | None = None) -> None:
        with open(self._filler, "ab", buffering=0) as file:
            for size in (1 << 16, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def free(self, _sandbox: Sandbox | None = None) -> None:
        self._filler.unlink()


class FaultyDisk:
    """A folder in which no status file can be replaced, and a bound on the size of files that sessions write."""

    reason = os.strerror(errno.EFBIG)

    def fill(self, sandbox: Sandbox) -> None:
        for folder in sandbox.spool.glob("[a-z]*"):
            until((folder / "status.json").exists)
            (folder / "status.tmp").mkdir()
        for pid in sandbox.processes():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (RESERVED_BYTES, resource.RLIM_INFINITY))

    def free(self, sandbox: Sandbox) -> None:
        for folder in sandbox.spool.glob("[a-z]*"):
            (folder / "status.tmp").rmdir()
        for pid in sandbox.processes():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextlib.contextmanager
def small_disk(path: Path, *, may_mount: bool) -> Iterator[SmallDisk | FaultyDisk]:
    """A disk below `path` that is filled and freed at will."""
    path.mkdir()
    if not may_mount or _LIBC.mount(b"none", os.fsencode(path), b"tmpfs", 0, f"size={DISK_BYTES}".encode()) != 0:
        yield FaultyDisk()
        return
    try:
        yield SmallDisk(path)
    finally:
        _LIBC.umount2(os.fsencode(path), _MNT_DETACH)
