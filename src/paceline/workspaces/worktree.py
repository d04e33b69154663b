"""The git worktree of a unit: its registration in the repository, its files, and what a crash leaves of both.

A worktree is two things that must agree: a folder with a file `.git`, and an entry in `worktrees/` of the repository's
git folder. An agent can write to both. `Worktree.git` is the only way to git in a workspace: it names the folders
itself, and raises if the entry is not that of the workspace.

Callers hold the lock of the workspace. Registrations take the repository's lock as well; checkouts do not, because each
writes only its own index and files.
"""

import contextlib
import os
import shutil
import stat
from typing import Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.workspaces.folders import (
    WorkspaceLocation,
    check_no_link,
    delete_folder,
    files_below,
    is_empty_or_missing,
    write_whole,
)
from paceline.workspaces.repository import GitCall, GitFolder, Repository, file_of_entry, line_of_file, run_git

_LOCK_FILES: Final = ("index.lock", "HEAD.lock")
"""Left behind by a git that was killed. Nobody works in the folder while we hold the lock of the workspace."""
_MADE: Final = "paceline-workspace"
"""A file in the registration: it names the folder that it is for, once that is made."""
_WITHOUT_DOWNLOADS: Final = {"GIT_LFS_SKIP_SMUDGE": "1"}
"""Every workspace would load all large files. Their pointers are enough for most work."""


class Worktree:
    """The worktree of one location."""

    def __init__(self, repository: Repository, location: WorkspaceLocation, lock_fd: int | None = None) -> None:
        assert location.branch is not None
        self._repository = repository
        self._path = location.path
        self._branch = location.branch
        self._base = location.base
        self._call = GitCall(pass_fds=() if lock_fd is None else (lock_fd,))

    @property
    def git(self) -> GitFolder:
        """How to call git in the workspace. Raise `WorkspaceError` if it is not as it was made."""
        return GitFolder(
            git_dir=self.entry,
            common=self._repository.common,
            work_tree=self._path,
            settings=self._repository.settings,
            is_units=True,
        )

    @property
    def entry(self) -> str:
        """The registration. Raise `WorkspaceError` if it is gone, or is not that of this workspace."""
        check_no_link(self._path)
        self._check_branch()
        link = os.path.join(self._path, ".git")
        try:
            kind = os.lstat(link).st_mode
        except OSError as error:
            raise self._replaced(f"its file `.git` is gone ({error.strerror})") from error
        if not stat.S_ISREG(kind):
            named = "a folder" if stat.S_ISDIR(kind) else "a link" if stat.S_ISLNK(kind) else "a special file"
            raise self._replaced(f"its `.git` is {named} now, and no longer the file that git wrote")
        entry = named_entry(self._repository, self._path)
        if entry is None:
            raise self._replaced(f"its `.git` names no worktree of {self._repository.top}")
        if not os.path.lexists(entry):
            raise self._replaced(f"its registration {entry} is gone")
        self._check_entry(entry)
        return entry

    def create(self, *, has_branch: bool) -> None:
        """Register the worktree with its branch, which is created at the base if it is missing, and check it out."""
        self._check_location()
        with self._repository.locked() as call:
            self._drop_entries()
            self._drop_branch_lock()
            self._register(call, has_branch=has_branch)
        git = msgspec.structs.replace(self.git, is_units=False)
        call = msgspec.structs.replace(self._call, env=_WITHOUT_DOWNLOADS)
        run_git(git, "reset", "--hard", "--quiet", "--no-recurse-submodules", call=call)

    def note_made(self) -> None:
        """Note that the folder is made. From now on it is not deleted as a half-made one."""
        _write(os.path.join(self.entry, _MADE), self._path)

    def is_made(self) -> bool:
        """Return whether that was noted."""
        entry = linked_entry(self._repository, self._path)
        return entry is not None and line_of_file(os.path.join(entry, _MADE)) == self._path

    def clear_locks(self) -> None:
        """Delete lock files of a git that was killed in this worktree."""
        entry = self.entry
        for name in _LOCK_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(entry, name))
        self._drop_branch_lock()

    def delete(self) -> None:
        """Delete the folder and its registration. The branch stays."""
        delete_folder(self._path)
        with self._repository.locked():
            self._drop_entries()

    def _replaced(self, what: str) -> WorkspaceError:
        return WorkspaceError(
            f"the workspace {self._path} cannot be used: {what}; all its files are kept: look at them, and start the"
            " unit over with `paceline retry UNIT --fresh`",
            is_campaigns=False,
        )

    def _check_entry(self, entry: str) -> None:
        """Raise unless the entry names this folder and this repository, and leads nowhere else."""
        if not os.path.isdir(entry) or os.path.islink(entry):
            raise self._replaced(f"its registration {entry} was replaced")
        link = os.path.join(self._path, ".git")
        found = file_of_entry(entry)
        if not _same_link(found, link):
            if found is None or os.path.lexists(found):
                raise self._replaced(f"its `.git` is that of another workspace ({os.path.dirname(found or '?')})")
            _write(os.path.join(entry, "gitdir"), link)  # the folder was moved back
        if line_of_file(os.path.join(entry, _MADE)) not in (None, self._path):
            raise self._replaced(f"its registration {entry} is that of another workspace")
        common = line_of_file(os.path.join(entry, "commondir"))
        if common is None or os.path.realpath(os.path.join(entry, common)) != self._repository.common:
            raise self._replaced(f"its registration {entry} names another repository")
        modules = os.path.join(entry, "modules")  # git checks these itself
        for each in files_below(entry, left_out=os.path.realpath(modules)):
            if not each.is_file(follow_symlinks=False) and not each.is_dir(follow_symlinks=False):
                raise self._replaced(f"there is a link or a special file in its registration: {each.path}")
        if os.path.islink(modules):
            raise self._replaced(f"there is a link in its registration: {modules}")

    def _check_branch(self) -> None:
        """Raise if the branch is only another name for a branch, or leads out of the repository."""
        path = self._repository.common
        for part in ("refs", "heads", *self._branch.split("/")):
            path = os.path.join(path, part)
            if os.path.islink(path):
                raise self._replaced(f"its branch is a link now ({path})")
        if os.path.isfile(path) and (line_of_file(path) or "").startswith("ref:"):
            raise self._replaced(
                f"its branch {self._branch} is only another name for {(line_of_file(path) or '')[4:].strip()}"
            )

    def _check_location(self) -> None:
        check_no_link(self._path)
        if not is_empty_or_missing(self._path):
            raise WorkspaceError(
                f"{self._path} exists already and is not a workspace of Paceline; move it away, or set `root`",
                is_campaigns=False,
            )

    def _register(self, call: GitCall, *, has_branch: bool) -> None:
        # Both locks last until git has ended: if we are killed now, whoever makes the workspace again waits for it.
        call = msgspec.structs.replace(call, pass_fds=(*call.pass_fds, *self._call.pass_fds))
        new = ("--no-track", "-b", self._branch, self._path, self._base or "HEAD")
        how = (self._path, self._branch) if has_branch else new
        worktrees = os.path.join(self._repository.common, "worktrees")
        try:
            os.makedirs(worktrees, exist_ok=True)
            run_git(self._repository.tree, "worktree", "add", "--quiet", "--no-checkout", *how, call=call)
        except WorkspaceError as error:
            is_in_use = "already checked out" in str(error) or "already used by worktree" in str(error)
            raise WorkspaceError(str(error), is_campaigns=not is_in_use) from error
        # git has named the folder by which it was called, which stands for the repository only during the call.
        link = os.path.join(self._path, ".git")
        name = os.path.basename((line_of_file(link) or "").removeprefix("gitdir: "))
        _write(link, f"gitdir: {os.path.join(worktrees, name)}")

    def _drop_entries(self) -> None:
        """Delete all registrations of the folder, also locked and half-made ones."""
        link = os.path.join(self._path, ".git")
        folder = os.path.join(self._repository.common, "worktrees")
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(folder):
                entry = os.path.join(folder, name)
                is_own = line_of_file(os.path.join(entry, _MADE)) in (None, self._path)
                if is_own and not os.path.islink(entry) and _same_link(file_of_entry(entry), link):
                    shutil.rmtree(entry)

    def _drop_branch_lock(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._repository.common, "refs", "heads", f"{self._branch}.lock"))


def named_entry(repository: Repository, path: str) -> str | None:
    """Return the registration that the folder's `.git` names, if it can be one of this repository."""
    named = (line_of_file(os.path.join(path, ".git")) or "").removeprefix("gitdir: ")
    folder = os.path.join(repository.common, "worktrees")
    entry = os.path.normpath(os.path.join(path, named))  # newer versions of git can write a relative path
    if not named or os.path.realpath(os.path.dirname(entry)) != os.path.realpath(folder):
        return None
    return os.path.join(folder, os.path.basename(entry))


def linked_entry(repository: Repository, path: str) -> str | None:
    """Return the registration that the folder's `.git` names, if it exists."""
    entry = named_entry(repository, path)
    return entry if entry is not None and os.path.isfile(os.path.join(entry, "HEAD")) else None


def _same_link(one: str | None, other: str) -> bool:
    """Return whether both are the same file `.git`, which may be missing. A link there is not followed."""
    if one is None or os.path.basename(one) != ".git":
        return False
    return os.path.realpath(os.path.dirname(one)) == os.path.realpath(os.path.dirname(other))


def _write(file: str, line: str) -> None:
    write_whole(file, [os.fsencode(f"{line}\n")], 0o644)
