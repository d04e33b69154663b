"""The git worktree of a unit: its registration in the repository, its files, and what a crash leaves of both.

A worktree is two things that must agree: a folder with a file `.git`, and an entry in `worktrees/` of the repository's
git folder. Callers hold the lock of the workspace. Registrations take the repository's lock as well; checkouts do not,
because each writes only its own index and files.
"""

import contextlib
import os
import shutil
from typing import Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.workspaces.folders import delete_folder, is_empty_or_missing
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.places import WorkspacePlace
from paceline.workspaces.repository import Repository

_LOCK_FILES: Final = ("index.lock", "HEAD.lock")
"""Left behind by a git that was killed. Nobody works in the folder while we hold the lock of the workspace."""


class Worktree:
    """The worktree of one place."""

    def __init__(self, repository: Repository, place: WorkspacePlace, lock_fd: int) -> None:
        assert place.branch is not None
        self._repository = repository
        self._path = place.path
        self._branch = place.branch
        self._base = place.base
        self._call = GitCall(pass_fds=(lock_fd,))

    def is_linked(self) -> bool:
        """Return whether folder and registration agree."""
        entry = linked_entry(self._repository, self._path)
        if entry is None:
            return False
        if not _same_path(_folder_link(entry), os.path.join(self._path, ".git")):
            _write(os.path.join(entry, "gitdir"), os.path.join(self._path, ".git"))  # the folder was moved back
        return True

    def create(self, *, has_branch: bool) -> None:
        """Register the worktree with its branch, which is created at the base if it is missing, and check it out."""
        self._check_place()
        with self._repository.locked() as call:
            self._drop_entries()
            self._drop_branch_lock()
            self._register(self._path, call, has_branch=has_branch)
        run_git(self._path, "reset", "--hard", "--quiet", "--no-recurse-submodules", call=self._call)

    def relink(self) -> None:
        """Register an existing folder again, whose registration is gone. Its files stay as they are."""
        if os.path.isdir(os.path.join(self._path, ".git")):
            raise WorkspaceError(
                f"{self._path} is no longer a worktree: it has a repository of its own; move it away and retry",
                is_campaigns=False,
            )
        temporary = f"{self._path}.relink"
        with self._repository.locked() as call:
            delete_folder(temporary)
            self._drop_entries()
            self._drop_entries(temporary)
            has_branch = self._repository.branch_tip(self._branch) is not None
            self._register(temporary, call, has_branch=has_branch)
            entry = linked_entry(self._repository, temporary)
            assert entry is not None
            _write(os.path.join(entry, "gitdir"), os.path.join(self._path, ".git"))
            _write(os.path.join(self._path, ".git"), f"gitdir: {entry}")
            delete_folder(temporary)
        run_git(self._path, "reset", "--quiet", "--no-recurse-submodules", call=self._call)

    def clear_locks(self) -> None:
        """Delete lock files of a git that was killed in this worktree."""
        entry = linked_entry(self._repository, self._path)
        for name in _LOCK_FILES if entry else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(entry or "", name))
        self._drop_branch_lock()

    def delete(self) -> None:
        """Delete the folder and its registration. The branch stays."""
        delete_folder(self._path)
        with self._repository.locked():
            self._drop_entries()

    def _check_place(self) -> None:
        if not is_empty_or_missing(self._path):
            raise WorkspaceError(
                f"{self._path} exists already and is not a workspace of Paceline; move it away, or set `root`",
                is_campaigns=False,
            )

    def _register(self, path: str, call: GitCall, *, has_branch: bool) -> None:
        # Both locks last until git has ended: if we are killed now, whoever makes the workspace again waits for it.
        call = msgspec.structs.replace(call, pass_fds=(*call.pass_fds, *self._call.pass_fds))
        how = (path, self._branch) if has_branch else ("--no-track", "-b", self._branch, path, self._base or "HEAD")
        try:
            run_git(self._repository.top, "worktree", "add", "--quiet", "--no-checkout", *how, call=call)
        except WorkspaceError as error:
            is_in_use = "already checked out" in str(error) or "already used by worktree" in str(error)
            raise WorkspaceError(str(error), is_campaigns=not is_in_use) from error

    def _drop_entries(self, path: str | None = None) -> None:
        """Delete all registrations of the folder, also locked and half-made ones."""
        link = os.path.join(path or self._path, ".git")
        folder = os.path.join(self._repository.common, "worktrees")
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(folder):
                entry = os.path.join(folder, name)
                if _same_path(_folder_link(entry), link):
                    shutil.rmtree(entry)

    def _drop_branch_lock(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._repository.common, "refs", "heads", f"{self._branch}.lock"))


def linked_entry(repository: Repository, path: str) -> str | None:
    """Return the registration that the folder's `.git` names, if it exists and belongs to this repository."""
    named = (_read(os.path.join(path, ".git")) or "").removeprefix("gitdir: ")
    entry = os.path.join(path, named)  # newer versions of git can write a relative path
    folder = os.path.realpath(os.path.join(repository.common, "worktrees"))
    if not named or os.path.dirname(os.path.realpath(entry)) != folder:
        return None
    is_whole = all(os.path.isfile(os.path.join(entry, name)) for name in ("HEAD", "commondir"))
    return entry if is_whole else None


def _folder_link(entry: str) -> str | None:
    """Return the `.git` file that the registration names."""
    named = _read(os.path.join(entry, "gitdir"))
    return None if named is None else os.path.join(entry, named)


def _same_path(one: str | None, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


def _read(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read().rstrip("\n")
    except OSError:
        return None


def _write(file: str, line: str) -> None:
    with open(f"{file}.new", "w", encoding="utf-8", errors="surrogateescape") as opened:
        opened.write(f"{line}\n")
    os.replace(f"{file}.new", file)
