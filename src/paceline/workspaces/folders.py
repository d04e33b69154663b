"""Folders on the disk: how much room they need, how they are copied, and how they are deleted."""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import Any, Final

from paceline.errors import NoRoomForSession, WorkspaceError
from paceline.workspaces.records import folder_error

RESERVE_BYTES: Final = 256 << 20
"""What a new workspace must leave free: room for the store, the spool, and what agents write meanwhile."""


def check_room(path: str, needed_bytes: int) -> None:
    """Raise `NoRoomForSession` if the disk of the folder cannot take that much and keep the reserve."""
    folder = path
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + RESERVE_BYTES:
        raise NoRoomForSession(
            f"no workspace can be made now: it needs {_megabytes(needed_bytes)}, and {_megabytes(RESERVE_BYTES)} must"
            f" stay free, but the disk of {folder} has {_megabytes(free)}; free some space, or run `paceline gc`"
        )


def make_parent(path: str) -> None:
    """Create the folder that the workspace will lie in. Raise `WorkspaceError` if that is not possible."""
    parent = os.path.dirname(path)
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
    except OSError as error:
        raise folder_error(parent, error) from error
    if not os.access(parent, os.W_OK | os.X_OK):
        raise WorkspaceError(f"cannot write to {parent}; set `root` in [campaign.workspace] to a folder of yours")


def is_empty_or_missing(path: str) -> bool:
    """Return whether nothing is there that could be lost."""
    if os.path.islink(path):
        return False
    try:
        return not os.listdir(path)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False


def delete_folder(path: str) -> None:
    """Delete the folder with everything in it, also in folders that were made read-only. Links are not followed."""
    if os.path.islink(path):
        raise WorkspaceError(f"{path} is a symbolic link, not a workspace; remove it", is_campaigns=False)
    try:
        shutil.rmtree(path, onerror=_make_writable)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WorkspaceError(f"cannot delete {error.filename or path}: {error.strerror}", is_campaigns=False) from error


def _make_writable(function: Callable[..., Any], path: str, details: Any) -> None:
    """Try once more with a writable parent. Module caches make their folders read-only."""
    if isinstance(details[1], FileNotFoundError):
        return
    for folder in (os.path.dirname(path), path):
        with contextlib.suppress(OSError):
            if not os.path.islink(folder):
                os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) | stat.S_IRWXU)
    if function in (os.unlink, os.rmdir):
        function(path)
    else:
        shutil.rmtree(path)


def files_below(folder: str, left_out: str | None = None) -> Iterator[os.DirEntry[str]]:
    """Yield every entry below the folder, parents first. Links are not followed; `left_out` is not entered."""
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if left_out is not None and os.path.realpath(entry.path) == left_out:
                    continue
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def size_of(folder: str, left_out: str | None = None) -> int:
    """Return the sum of the sizes of all files below the folder."""
    return sum(
        entry.stat(follow_symlinks=False).st_size
        for entry in files_below(folder, left_out)
        if entry.is_file(follow_symlinks=False)
    )


def copy_folder(source: str, target: str, left_out: str) -> None:
    """Copy the folder without `left_out`, where workspaces lie. Links stay links; sockets and pipes are skipped."""
    os.makedirs(target, mode=0o700)
    folders = [(source, target)]
    for entry in files_below(source, os.path.realpath(left_out)):
        copy = os.path.join(target, os.path.relpath(entry.path, source))
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), copy)
        elif entry.is_dir(follow_symlinks=False):
            os.mkdir(copy, 0o700)
            folders.append((entry.path, copy))
        elif entry.is_file(follow_symlinks=False):
            shutil.copy2(entry.path, copy, follow_symlinks=False)
    for original, copy in reversed(folders):  # last, because a read-only folder takes no files
        shutil.copystat(original, copy)


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MB"
