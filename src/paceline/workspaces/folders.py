"""Where the workspace of a unit lies, and what it has on the disk besides git: its folder, its record, and its lock.

A unit's id may contain what git and file systems refuse, so folders and branches are named by a slug of it. Locks hold
between threads and processes, and the kernel releases them when their holders end.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from paceline.core.values.fields import fields_of
from paceline.errors import NoRoomForSession, WorkspaceError
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import GitSettings, UnitResult

LONGEST_SLUG: Final = 80
"""Branch and folder names of this length stay readable, and leave room in a path for the files of the repository."""
_REFUSED: Final = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS: Final = re.compile(r"-[0-9a-f]{8}$")
_FORBIDDEN_IN_BRANCH: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-/.]|[/.]$|^@$")


class WorkspaceLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the workspace of a unit is.

    `cwd` is the unit's own folder, mapped into `path`. `repository` is the top folder that the workspace is made from.
    A copy has no branch and no base; its `repository` is the folder that was copied.
    """

    path: str
    cwd: str
    branch: str | None
    base: str | None
    repository: str | None
    git: GitSettings | None = None
    """What git may use of the user's configuration there. None for a copy."""
    uncommitted: tuple[str, ...] | None = None
    """Included files that are never committed, as stored with the unit: an agent can write to the record of the
    workspace. None: it is not made yet."""


def location_of(
    settings: WorkspaceSettings,
    campaign_name: str,
    unit_name: str,
    unit_cwd: str,
    home: Path,
    stored: UnitResult,
) -> WorkspaceLocation:
    """Return where the workspace of the unit is. What is stored with the unit wins: a workspace never moves."""
    known = stored_location(stored)
    if known is not None:
        return msgspec.structs.replace(known, cwd=_mapped(unit_cwd, known.repository or "", known.path))
    root = os.path.abspath(os.path.expanduser(settings.root)) if settings.root else str(home / "workspaces")
    path = os.path.join(root, slug_of(campaign_name), slug_of(unit_name))
    if settings.kind == "copy":
        return WorkspaceLocation(path=path, cwd=path, branch=None, base=None, repository=os.path.abspath(unit_cwd))
    top, base = _base_of(settings, unit_cwd)
    branch = settings.branch.replace("{campaign}", slug_of(campaign_name)).replace("{id}", slug_of(unit_name))
    return WorkspaceLocation(
        path=path, cwd=_mapped(unit_cwd, top, path), branch=branch, base=base, repository=top, git=settings.git.get(top)
    )


def stored_location(stored: UnitResult) -> WorkspaceLocation | None:
    """Return where the workspace of a unit is, from what is stored alone; None if it has none."""
    if stored.workspace is None or stored.repository is None:
        return None
    return WorkspaceLocation(path=stored.workspace, cwd=stored.workspace, **fields_of(WorkspaceLocation, stored))


def mapped_path(location: WorkspaceLocation, path: str) -> str:
    """Return where a file or folder of the repository lies in the workspace. A path outside of it stays as it is."""
    top = location.repository
    return path if top is None or not is_inside(path, top) else _mapped(path, top, location.path)


def patch_file(home: Path, campaign_name: str, unit_name: str) -> Path:
    """Return the file that the change of the unit is delivered to, where the plan asks for patches."""
    return home / "patches" / slug_of(campaign_name) / f"{slug_of(unit_name)}.patch"


def slug_of(name: str) -> str:
    """Return the name as one part of a path and of a branch.

    A name that must be altered gets 8 hex digits of its hash. So do names with capitals, which some file systems
    confuse, and names that already end like that. So two names never have the same slug.
    """
    slug = _REFUSED.sub("-", name)
    slug = re.sub(r"\.\.+", ".", slug).strip(".-")
    slug = re.sub(r"(?i:\.lock)+$", "", slug)[:LONGEST_SLUG].strip(".-")
    if slug == name and slug == slug.lower() and not _DIGITS.search(slug):
        return slug
    return f"{slug or 'unit'}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:8]}"


def branch_mistake(template: str) -> str | None:
    """Return what is wrong with the template of a branch name, or None."""
    if "{id}" not in template:
        return "it must contain {id}: each unit needs a branch of its own"
    filled = template.replace("{campaign}", "campaign").replace("{id}", "id")
    if "{" in filled or "}" in filled:
        return "only {campaign} and {id} are filled in"
    found = _FORBIDDEN_IN_BRANCH.search(filled)
    return f"git refuses {found[0]!r} at this place in the name of a branch" if found else None


def _base_of(settings: WorkspaceSettings, cwd: str) -> tuple[str, str]:
    """Return the innermost repository that `cwd` lies in, and its base commit."""
    for folder in (os.path.abspath(cwd), os.path.realpath(cwd)):
        tops = [top for top in settings.bases if is_inside(folder, top)]
        if tops:
            top = max(tops, key=len)
            return top, settings.bases[top]
    raise WorkspaceError(f"no base commit is known for the repository of {cwd}; add the plan again")


def _mapped(path: str, top: str, workspace: str) -> str:
    for each in (os.path.abspath(path), os.path.realpath(path)):
        if is_inside(each, top):
            return os.path.normpath(os.path.join(workspace, os.path.relpath(each, top)))
    return workspace


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# -- locks -------------------------------------------------------------------------------------------

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
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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


# -- folders ------------------------------------------------------------------------------------------

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


def check_no_link(path: str) -> None:
    """Raise `WorkspaceError` if the workspace, or the folder of its campaign, is a link: it may lead anywhere."""
    for each in (os.path.dirname(path), path):
        if os.path.islink(each):
            raise WorkspaceError(
                f"the workspace {path} cannot be used: {each} is a symbolic link now, to {os.readlink(each)}; what it"
                " leads to is left alone: remove the link, and start the unit over with `paceline retry UNIT --fresh`",
                is_campaigns=False,
            )


def delete_folder(path: str) -> None:
    """Delete the folder with everything in it, also in folders that were made read-only. Links are not followed."""
    check_no_link(path)
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


# -- records ------------------------------------------------------------------------------------------
#
# The record of a worktree lies in the git folder of its repository, that of a copy beside it. So it outlives the
# workspace. It is written before anything is made, and again when all is made. So what a crash left half-made is known.

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class WorkspaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one workspace. `was_lost`: it had been made before, and its folder disappeared."""

    path: str
    branch: str | None = None
    phase: Literal["making", "made"] = "making"
    was_lost: bool = False
    is_set_up: bool = False
    uncommitted: tuple[str, ...] = ()
    """Included files that git does not ignore. Only until they are stored with the unit: an agent can write here."""


class RecordFile:
    """The file with the record of one workspace, and the lock of that workspace."""

    def __init__(self, folder: str, location: WorkspaceLocation) -> None:
        digest = hashlib.sha256(os.fsencode(location.path)).hexdigest()[:16]
        self._location = location
        self._file = os.path.join(folder, f"{os.path.basename(location.path)[:100]}-{digest}.json")

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock of the workspace. Yield its descriptor, for processes that must hold it too."""
        with locked(f"{self._file}.lock") as fd:
            yield fd

    def read(self) -> WorkspaceRecord | None:
        """Return the record, or None if there is none or it is damaged."""
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                record = msgspec.json.decode(file.read(), type=WorkspaceRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        except OSError as error:
            raise WorkspaceError(f"cannot read {self._file}: {error.strerror}", is_campaigns=False) from error
        return record if record.path == self._location.path else None

    def write(self, record: WorkspaceRecord) -> None:
        """Replace the record."""
        try:
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            write_whole(self._file, [msgspec.json.encode(record)])
        except OSError as error:
            raise folder_error(self._file, error) from error

    def delete(self) -> None:
        """Delete the record and its lock. Only the holder of the lock may do this."""
        for file in (self._file, f"{self._file}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)


def write_whole(file: str, pieces: Iterable[bytes], mode: int = 0o600) -> None:
    """Replace the file. A crash leaves the old one or the new one, whole; an error leaves the old one.

    An agent can put a link where the file goes: it is replaced, and not followed. Nobody knows the name of the new
    version in advance.
    """
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(file), prefix=".paceline-")
    try:
        with open(fd, "wb") as opened:
            opened.writelines(pieces)
            opened.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def folder_error(path: str, error: OSError) -> WorkspaceError | NoRoomForSession:
    """Return the error to raise where a file of a workspace cannot be written."""
    if error.errno in _NO_ROOM:
        return NoRoomForSession(f"no workspace can be made now: {error.strerror} ({path}); free some disk space")
    return WorkspaceError(f"cannot write {error.filename or path}: {error.strerror}")
