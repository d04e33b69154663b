"""A git repository that workspaces are made from: where it is, what it contains, and its lock."""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from paceline.errors import InvalidInput, WorkspaceError
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.locks import locked

OWN_FOLDER: Final = "paceline"
"""Our files inside of the git folder that all worktrees of a repository share."""
_ABSOLUTE: Final = ("--path-format=absolute",)


class Repository(msgspec.Struct, frozen=True):
    """A repository with its main tree (`top`) and the git folder that all its worktrees share (`common`)."""

    top: str
    common: str

    @property
    def own_folder(self) -> str:
        """Where our records and locks of this repository lie."""
        return os.path.join(self.common, OWN_FOLDER)

    @contextlib.contextmanager
    def locked(self) -> Iterator[GitCall]:
        """Hold the lock of the repository. Yield how to call git so that the lock lasts as long as that call."""
        with locked(os.path.join(self.own_folder, "repository.lock")) as fd:
            yield GitCall(pass_fds=(fd,))

    def commit_of(self, revision: str) -> str | None:
        """Return the commit that the revision means, or None."""
        return commit_in(self.top, revision)

    def branch_tip(self, branch: str) -> str | None:
        """Return the last commit of the branch, or None if there is no such branch."""
        return self.commit_of(f"refs/heads/{branch}")


def open_repository(top: str) -> Repository:
    """Return the repository with that top folder. Raise `WorkspaceError` if it is gone or is no repository."""
    if not os.path.isdir(top):
        raise WorkspaceError(f"the repository {top} is gone: there is no such folder; put it back and retry")
    return Repository(top, _common_folder(top) or run_git(top, "rev-parse", *_ABSOLUTE, "--git-common-dir").line)


def _common_folder(top: str) -> str | None:
    """Return the git folder that all worktrees share, without a process: it is needed for every step of every unit.

    None if the folder is not laid out as usual; git then knows better, or explains what is wrong.
    """
    found = os.path.join(top, ".git")
    try:
        if os.path.isfile(found):
            found = os.path.join(top, _line_of(found).removeprefix("gitdir: "))
        if os.path.isfile(os.path.join(found, "commondir")):
            found = os.path.join(found, _line_of(os.path.join(found, "commondir")))
    except OSError:
        return None
    is_whole = all(os.path.exists(os.path.join(found, name)) for name in ("HEAD", "objects", "refs"))
    return os.path.realpath(found) if is_whole else None


def _line_of(file: str) -> str:
    with open(file, encoding="utf-8", errors="surrogateescape") as opened:
        return opened.read().rstrip("\n")


def resolve_base(cwd: str, base: str) -> tuple[str, str]:
    """Return the top folder of the repository that `cwd` lies in, and the commit that `base` means there.

    Raise `InvalidInput` if there is no work tree, no commit, or no such revision.
    """
    top = _top_of(cwd)
    if commit_in(top, "HEAD") is None and base == "HEAD":
        raise InvalidInput(f"the repository {top} has no commits; a worktree needs one: commit something first")
    commit = commit_in(top, base)
    if commit is None:
        raise InvalidInput(f"base {base!r} is no commit, branch or tag of the repository {top}")
    return top, commit


def commit_in(folder: str, revision: str) -> str | None:
    """Return the commit that the revision means in the folder's repository, or None."""
    if not revision or revision.startswith("-") or "\0" in revision:
        return None
    named = f"{revision}^{{commit}}"
    answer = run_git(folder, "rev-parse", "--verify", "--quiet", named, call=GitCall(accepted=(0, 1, 128)))
    return answer.line or None if answer.code == 0 else None


def count_uncommitted(top: str) -> int:
    """Return how many files of the work tree differ from its last commit. Workspaces do not contain these changes."""
    out = run_git(top, "status", "--porcelain=v1", "-z", "--no-renames").out
    return out.count(b"\0")


def _top_of(cwd: str) -> str:
    if not os.path.isdir(cwd):
        raise InvalidInput(f"there is no folder {cwd}")
    try:
        answer = run_git(
            cwd, "rev-parse", "--is-bare-repository", "--is-inside-work-tree", call=GitCall(accepted=(0, 128))
        )
        if answer.code == 0 and answer.line.split()[-1] == "true":
            return (
                run_git(cwd, "rev-parse", *_ABSOLUTE, "--show-toplevel")
                .out.decode(errors="surrogateescape")
                .removesuffix("\n")
            )
    except WorkspaceError as error:
        raise InvalidInput(str(error)) from error
    if answer.code != 0 and "not a git repository" not in answer.error:
        raise InvalidInput(f"git cannot use {cwd}: {answer.error}")
    if answer.code != 0:
        raise InvalidInput(
            f"{cwd} is in no git repository; run `git init` and commit there,"
            ' or set kind = "copy" in [campaign.workspace]'
        )
    what = "a bare repository" if answer.line.startswith("true") else "the git folder of a repository"
    raise InvalidInput(f"{cwd} is {what}, without files to work on; name a folder of a clone with a work tree")
