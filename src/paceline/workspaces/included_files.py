"""Files outside of git that a worktree needs as well, such as `.env`: found by patterns, copied from the main tree."""

import os
import shutil
from collections.abc import Sequence

from paceline.workspaces.git import run_git


def copy_included(top: str, workspace: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Copy the untracked files of the main tree that match a pattern. Return those that git does not ignore.

    A pattern names files or folders relative to the top; one without a slash matches in every folder. Links are copied
    as links if they stay inside of the tree, and left out otherwise.
    """
    if not patterns:
        return ()
    ignored, untracked = _listed(top, patterns, "--ignored"), _listed(top, patterns)
    for path in (*ignored, *untracked):
        _copy(top, workspace, path)
    return untracked


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
    source, target = os.path.join(top, path), os.path.join(workspace, path)
    folder = os.path.realpath(os.path.dirname(target))
    if not _is_below(folder, os.path.realpath(workspace)) or os.path.lexists(target):
        return  # a folder of the base that is a link, or a file that the base itself has
    if os.path.islink(source):
        if _is_below(os.path.realpath(source), os.path.realpath(top)) and not os.path.isabs(os.readlink(source)):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(source), target)
    elif os.path.isfile(source) and _is_below(os.path.realpath(source), os.path.realpath(top)):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
