"""The change of a unit: what is different in its workspace, as a commit, as numbers, and as a patch."""

import contextlib
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import UncommittedWork, WorkspaceError
from paceline.store.unit_result import GitSettings
from paceline.workspaces.bundles import is_ancestor
from paceline.workspaces.contents import (
    check_filters,
    check_gitlinks,
    check_ignored,
    check_no_repository,
    check_objects,
    checked_submodules,
    pathspecs_without,
    read_contents,
    scratch_index,
    show_all_changes,
)
from paceline.workspaces.folders import WorkspaceLocation, check_no_link, folder_error
from paceline.workspaces.preparation import records_of, remove, repository_of, uncommitted_files
from paceline.workspaces.repository import (
    OUTSIDE,
    GitCall,
    GitFolder,
    PlainFolder,
    Repository,
    commit_in,
    run_git,
    stream_git,
)
from paceline.workspaces.worktree import Worktree

FALLBACK_NAME: Final = "Paceline"
FALLBACK_EMAIL: Final = "paceline@localhost"
"""Who commits where git does not know the user. A night must not end because of that."""
_NUMBERS: Final = ("--numstat", "-z", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
_PATCH: Final = (
    "--binary",
    "--full-index",
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=dirty",
)
_OF_COPIES: Final = GitCall(
    accepted=(0, 1),
    env=OUTSIDE,
)
"""Two folders are compared without any repository."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a unit against its base. `commit` is the last commit of its branch, None if it has none."""

    commit: str | None = None
    files_changed: int = 0
    lines_added: int = 0
    lines_removed: int = 0


def commit_all(location: WorkspaceLocation, message: str) -> Change:
    """Commit everything in the workspace to its branch. With nothing to commit, the commits of the agent count.

    No hook runs and nothing is signed. Afterwards the workspace is on its branch, whatever the agent checked out. A
    copy is not committed; only its change is counted. Raise `WorkspaceError` if the workspace is not as it was made, or
    if the commit would not have all work in it, as it is; everything is kept then.
    """
    if location.branch is None:
        return _count(_copy_numbers(location))
    repository = repository_of(location)
    with records_of(location).locked() as lock_fd:
        worktree = Worktree(repository, location, lock_fd)
        worktree.clear_locks()
        git = worktree.git
        call = GitCall(pass_fds=(lock_fd,), env=identity(repository.settings))
        _leave_rebase(git, call)
        _stage_all(repository, location, git, call)
        _attach(git, location.branch, call)
        if run_git(git, "diff", "--cached", "--quiet", call=GitCall(accepted=(0, 1))).code == 1:
            text = message.strip().encode(errors="replace") or b"Work of a unit"
            commit = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-")
            run_git(git, *commit, call=msgspec.structs.replace(call, stdin=text))
    head = repository.branch_tip(location.branch)
    if head is None:
        raise WorkspaceError(
            f"the branch {location.branch} names no commit that is in {repository.top}, so the work in {location.path}"
            " cannot be committed; all files are kept: `paceline retry UNIT --fresh` starts the unit over in another"
            " folder",
            is_campaigns=False,
        )
    if head == location.base:
        return Change()
    git = msgspec.structs.replace(repository.git, is_units=True)
    return msgspec.structs.replace(change_between(git, location.base or head, head), commit=head)


def commit_and_remove(location: WorkspaceLocation, message: str | None) -> None:
    """Remove a workspace. With a message, what is in it is committed first."""
    if message is not None and os.path.isdir(location.path):
        commit_all(location, message)
    remove(location, force=False)


def change_between(git: GitFolder, base: str, commit: str) -> Change:
    """Count the difference between two commits."""
    return _count(run_git(git, "diff", *_NUMBERS, "--find-renames", base, commit).out)


def diff(
    location: WorkspaceLocation, commit: str | None = None, *, is_here: bool = True
) -> Generator[bytes, None, None]:
    """Yield the change of a unit as a patch, piece by piece.

    With a `commit`, the change up to it. Else the change in the workspace as it is, with uncommitted work; without a
    folder on this machine, the change in the branch.
    """
    if location.branch is None and not is_here:
        raise WorkspaceError("a copy on another host is in no branch, so its change is only there", is_campaigns=False)
    if location.branch is None:
        with _copy_pair(location) as folder:
            yield from stream_git(folder, "diff", "--no-index", *_PATCH, "--no-prefix", "a/", "b/", call=_OF_COPIES)
        return
    base, repository = location.base or "HEAD", repository_of(location)
    if commit is None and is_here and os.path.lexists(location.path):
        git = Worktree(repository, location).git
        with scratch_index(git) as call:
            _stage_all(repository, location, git, call)
            yield from stream_git(git, "diff", "--cached", *_PATCH, base, call=call)
        return
    tip = commit or repository.branch_tip(location.branch)
    if tip is None:
        missing = f"a folder {location.path}" if is_here else "a folder on this machine"
        raise WorkspaceError(f"there is neither {missing} nor a branch {location.branch}", is_campaigns=False)
    yield from stream_git(repository.git, "diff", *_PATCH, base, tip)


def write_patch(location: WorkspaceLocation, file: Path) -> None:
    """Write the change of a unit into the file, whole or not at all. `git apply` reads it."""
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A name that nobody knows in advance: an agent could have put a link there.
        fd, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with open(fd, "wb") as opened:
            for piece in diff(location):
                opened.write(piece)
            opened.flush()
            os.fsync(opened.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        raise folder_error(str(file), error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def identity(settings: GitSettings) -> dict[str, str]:
    """Return variables that name who commits, as far as the user's configuration does not."""
    name, email = configured_identity(settings)
    missing = {} if name else {"NAME": FALLBACK_NAME}
    missing |= {} if email else {"EMAIL": FALLBACK_EMAIL}
    return {f"GIT_{who}_{what}": value for what, value in missing.items() for who in ("AUTHOR", "COMMITTER")}


def configured_identity(settings: GitSettings) -> tuple[str, str]:
    """Return the name and the address of who commits, as the user configured them; '' where that is not so."""
    return settings.value("user.name") or "", settings.value("user.email") or ""


_AUTOSTASHES: Final = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")
"""Where git notes changes that it put aside during a rebase or a merge."""


def _leave_rebase(git: GitFolder, call: GitCall) -> None:
    """Forget a rebase that the agent did not finish: its files stay, and its branch gets what they contain.

    Raise `UncommittedWork` if changes were put aside for it: git would make them a stash of the user.
    """
    if any(os.path.lexists(os.path.join(git.git_dir, name)) for name in _AUTOSTASHES):
        raise UncommittedWork(
            f"a rebase or merge in {git.path} is unfinished, and git has put changes aside for it; all files are kept:"
            " finish it there, or take it back with `git rebase --abort`, then `paceline retry UNIT`"
        )
    if os.path.isdir(os.path.join(git.git_dir, "rebase-merge")):
        run_git(git, "rebase", "--quit", call=call)
    if os.path.isdir(os.path.join(git.git_dir, "rebase-apply")):
        run_git(git, "am", "--quit", call=msgspec.structs.replace(call, accepted=(0, 128)))


def _stage_all(repository: Repository, location: WorkspaceLocation, git: GitFolder, call: GitCall) -> None:
    """Stage everything. Raise if that is not all work, or not as the user's filters would write it."""
    base = location.base or "HEAD"
    contents = read_contents(location.path)
    submodules = checked_submodules(git, repository, location)
    check_no_repository(git, contents, submodules, also_ignored=False)
    check_objects(repository, location)
    show_all_changes(git, call)
    pathspecs = pathspecs_without((*uncommitted_files(location), *(each.path for each in submodules)))
    run_git(git, "add", "--all", "--", *pathspecs, call=call)
    for each in submodules:
        if not each.is_nested:
            head = commit_in(each.git, "HEAD") or each.commit
            run_git(git, "update-index", "--cacheinfo", f"160000,{head},{each.path}", call=call)
    check_gitlinks(git, base, submodules)
    check_filters(git, contents, base)
    check_ignored(git, contents, base, uncommitted_files(location))


def _attach(git: GitFolder, branch: str, call: GitCall) -> None:
    """Put the workspace on its branch, with all files as they are.

    Commits that the agent made elsewhere, on top of the branch, become commits of the branch. Otherwise the next commit
    brings the branch to what the files contain.
    """
    wanted = f"refs/heads/{branch}"
    if run_git(git, "symbolic-ref", "--quiet", "HEAD", call=GitCall(accepted=(0, 1))).line == wanted:
        return
    head, tip = commit_in(git, "HEAD"), commit_in(git, wanted)
    is_ahead = head is not None and (tip is None or is_ancestor(git, tip, head))
    if is_ahead and head is not None:
        run_git(git, "update-ref", wanted, head, call=call)
    run_git(git, "symbolic-ref", "HEAD", wanted, call=call)


@contextlib.contextmanager
def _copy_pair(location: WorkspaceLocation) -> Iterator[PlainFolder]:
    """Yield a folder in which the original is `a` and the copy is `b`, so that a patch has the usual paths."""
    check_no_link(location.path)
    for each in (location.repository or "", location.path):
        if not os.path.isdir(each):
            raise WorkspaceError(f"there is no folder {each} (any more)", is_campaigns=False)
    with tempfile.TemporaryDirectory(prefix="paceline-diff-") as folder:
        os.symlink(os.path.abspath(location.repository or ""), os.path.join(folder, "a"))
        os.symlink(os.path.abspath(location.path), os.path.join(folder, "b"))
        yield PlainFolder(folder)


def _copy_numbers(location: WorkspaceLocation) -> bytes:
    with _copy_pair(location) as folder:
        return run_git(folder, "diff", "--no-index", *_NUMBERS, "--no-renames", "a/", "b/", call=_OF_COPIES).out


def _count(numstat: bytes) -> Change:
    """Add up the lines of `git diff --numstat -z`. A renamed file has two more parts; a binary file has `-`."""
    files = added = removed = 0
    for part in numstat.split(b"\0"):
        numbers = part.split(b"\t")
        if len(numbers) >= 3:
            files += 1
            added += int(numbers[0]) if numbers[0].isdigit() else 0
            removed += int(numbers[1]) if numbers[1].isdigit() else 0
    return Change(files_changed=files, lines_added=added, lines_removed=removed)
