"""Files outside of git that a worktree needs as well, such as `.env`: found by patterns, copied from the main tree."""

import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.workspaces.git import run_git

MOST_BYTES: Final = 1 << 20
"""What files that are sent to another machine may take together, for each unit. Configuration is far smaller."""


class IncludedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file outside of git on its way to another machine. Its path is relative to the top of the repository."""

    path: bytes
    data: bytes = b""
    mode: int = 0o600
    link: bytes | None = None
    """What it points to, if it is a link."""
    is_ignored: bool = True
    """Whether git ignores it. Else it is kept out of commits."""


def copy_included(top: str, workspace: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Copy the untracked files of the main tree that match a pattern. Return those that git does not ignore.

    A pattern names files or folders relative to the top; one without a slash matches in every folder. Links are copied
    as links if they stay inside of the tree, and left out otherwise.
    """
    if not patterns or is_bare(top):
        return ()
    ignored, untracked = _listed(top, patterns, "--ignored"), _listed(top, patterns)
    for path in (*ignored, *untracked):
        _copy(top, workspace, path)
    return untracked


def read_included(top: str, patterns: Sequence[str]) -> tuple[IncludedFile, ...]:
    """Read the untracked files of the main tree that match a pattern, for a workspace on another machine."""
    if not patterns or is_bare(top):
        return ()
    found: list[IncludedFile] = []
    ignored = set(_listed(top, patterns, "--ignored"))
    left = MOST_BYTES
    for path in (*ignored, *_listed(top, patterns)):
        file = _read(top, path, most=left, is_ignored=path in ignored)
        if file is not None:
            left -= len(file.data)
            found.append(file)
    return tuple(sorted(found, key=lambda file: file.path))


def write_included(workspace: str, files: Iterable[IncludedFile]) -> tuple[str, ...]:
    """Write files of another machine into the workspace. Return those that git does not ignore.

    What the workspace has already stays as it is.
    """
    untracked = []
    for file in files:
        path = os.fsdecode(file.path)
        target = _target(workspace, path)
        if target is None:
            continue
        if file.link is None:
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, file.mode & 0o777)
            with open(fd, "wb") as opened:
                opened.write(file.data)
        elif not os.path.isabs(file.link):
            os.symlink(file.link, os.fsencode(target))
        untracked += [] if file.is_ignored else [path]
    return tuple(untracked)


def is_bare(top: str) -> bool:
    """Return whether the repository has no main tree, such as a mirror."""
    return not os.path.lexists(os.path.join(top, ".git"))


def include_mistake(pattern: str) -> str | None:
    """Return what is wrong with a pattern, or None."""
    if not pattern.strip() or "\0" in pattern:
        return "it is empty"
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        return "it must be relative to the top of the repository, and stay inside of it"
    return None


def _listed(top: str, patterns: Sequence[str], *options: str) -> tuple[str, ...]:
    """Return the matching files that git does not track, relative to the top."""
    wanted = [pathspec for pattern in patterns for pathspec in _pathspecs(pattern)]
    out = run_git(top, "ls-files", "--others", "--exclude-standard", *options, "-z", "--", *wanted).out
    return tuple(sorted(os.fsdecode(path) for path in out.split(b"\0") if path and not path.endswith(b"/")))


def _pathspecs(pattern: str) -> tuple[str, str]:
    """Return the pattern in git's own words: the file itself, and everything in a folder of that name."""
    pattern = pattern.removeprefix("./").rstrip("/")
    glob = f":(glob){pattern}" if "/" in pattern else f":(glob)**/{pattern}"
    return glob, f"{glob}/**"


def _copy(top: str, workspace: str, path: str) -> None:
    source, target = os.path.join(top, path), _target(workspace, path)
    if target is None or not _stays_inside(top, source):
        return
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isfile(source):
        shutil.copy2(source, target, follow_symlinks=False)


def _read(top: str, path: str, *, most: int, is_ignored: bool) -> IncludedFile | None:
    source, name = os.path.join(top, path), os.fsencode(path)
    if not _stays_inside(top, source):
        return None
    if os.path.islink(source):
        return IncludedFile(path=name, link=os.fsencode(os.readlink(source)), is_ignored=is_ignored)
    if not os.path.isfile(source):
        return None
    try:
        with open(source, "rb") as opened:
            data = opened.read(most + 1)
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
    except OSError as error:
        raise WorkspaceError(f"cannot read {source}, which `include` names: {error.strerror}") from error
    if len(data) > most:
        raise WorkspaceError(
            f"the files that `include` names in {top} take more than {MOST_BYTES >> 20} MB, too much to send to another"
            f" host ({path} is one of them); include less, or let `setup` fetch them there"
        )
    return IncludedFile(path=name, data=data, mode=mode, is_ignored=is_ignored)


def _stays_inside(top: str, source: str) -> bool:
    """Return whether the file lies in the tree, and points into it if it is a link."""
    is_absolute = os.path.islink(source) and os.path.isabs(os.readlink(source))
    return not is_absolute and _is_below(os.path.realpath(source), os.path.realpath(top))


def _target(workspace: str, path: str) -> str | None:
    """Return where the file goes, with its folder made; None if it must not go there.

    A folder of the base may be a link that leads out of the workspace, and a file of the base is not replaced.
    """
    target = os.path.join(workspace, path)
    folder = os.path.realpath(os.path.dirname(target))
    if not _is_below(folder, os.path.realpath(workspace)) or os.path.lexists(target):
        return None
    os.makedirs(os.path.dirname(target), exist_ok=True)
    return target


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
