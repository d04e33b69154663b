"""The change of a unit: what is different in its workspace, as a commit, as numbers, and as a patch."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.workspaces.git import GitCall, run_git, stream_git
from paceline.workspaces.places import WorkspacePlace
from paceline.workspaces.preparation import place_records, remove
from paceline.workspaces.records import folder_error
from paceline.workspaces.repository import commit_in, open_repository
from paceline.workspaces.worktree import Worktree, linked_entry

FALLBACK_NAME: Final = "Paceline"
FALLBACK_EMAIL: Final = "paceline@localhost"
"""Who commits where git does not know the user. A night must not end because of that."""
_PATCH: Final = ("--binary", "--full-index", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a unit against its base. `commit` is the last commit of its branch, None if it has none."""

    commit: str | None = None
    files_changed: int = 0
    lines_added: int = 0
    lines_removed: int = 0


def commit_all(place: WorkspacePlace, message: str) -> Change:
    """Commit everything in the workspace to its branch. With nothing to commit, the commits of the agent count.

    No hook runs and nothing is signed. Afterwards the workspace is on its branch, whatever the agent checked out. A
    copy is not committed; only its change is counted.
    """
    if place.branch is None:
        return _count(_copy_numbers(place))
    repository = open_repository(place.repository or "")
    records = place_records(place)
    with records.locked() as lock_fd:
        Worktree(repository, place, lock_fd).clear_locks()
        record = records.read()
        call = GitCall(pass_fds=(lock_fd,), env=identity(place.path))
        _leave_rebase(linked_entry(repository, place.path) or "", place.path, call)
        _stage_all(place.path, record.uncommitted if record else (), call)
        _attach(place.path, place.branch, call)
        if run_git(place.path, "diff", "--cached", "--quiet", call=GitCall(accepted=(0, 1))).code == 1:
            text = message.strip().encode(errors="replace") or b"Work of a unit"
            commit = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-")
            run_git(place.path, *commit, call=msgspec.structs.replace(call, stdin=text))
        head = commit_in(place.path, "HEAD")
    if head is None or head == place.base:
        return Change()
    return msgspec.structs.replace(change_between(place.path, place.base or head, head), commit=head)


def commit_and_remove(place: WorkspacePlace, message: str | None) -> None:
    """Remove a workspace. With a message, what is in it is committed first."""
    if message is not None and os.path.isdir(place.path):
        commit_all(place, message)
    remove(place, force=False)


def change_between(folder: str, base: str, commit: str) -> Change:
    """Count the difference between two commits."""
    out = run_git(
        folder, "diff", "--numstat", "-z", "--find-renames", "--no-ext-diff", "--no-textconv", base, commit
    ).out
    return _count(out)


def diff(place: WorkspacePlace, commit: str | None = None, *, is_here: bool = True) -> Generator[bytes, None, None]:
    """Yield the change of a unit as a patch, piece by piece.

    With a `commit`, the change up to it. Else the change in the workspace as it is, with uncommitted work; without a
    folder on this machine, the change in the branch.
    """
    if place.branch is None and not is_here:
        raise WorkspaceError("a copy on another host is in no branch, so its change is only there", is_campaigns=False)
    if place.branch is None:
        with _copy_pair(place) as folder:
            call = GitCall(accepted=(0, 1))
            yield from stream_git(folder, "diff", "--no-index", *_PATCH, "--no-prefix", "a/", "b/", call=call)
        return
    base, top = place.base or "HEAD", place.repository or ""
    if commit is None and is_here and os.path.lexists(os.path.join(place.path, ".git")):
        with _scratch_index(place) as call:
            yield from stream_git(place.path, "diff", "--cached", *_PATCH, base, call=call)
        return
    tip = commit or open_repository(top).branch_tip(place.branch)
    if tip is None:
        folder = f"a folder {place.path}" if is_here else "a folder on this machine"
        raise WorkspaceError(f"there is neither {folder} nor a branch {place.branch}", is_campaigns=False)
    yield from stream_git(top, "diff", *_PATCH, base, tip)


def write_patch(place: WorkspacePlace, file: Path) -> None:
    """Write the change of a unit into the file, whole or not at all. `git apply` reads it."""
    temporary = file.with_name(f".{file.name}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as opened:
            for piece in diff(place):
                opened.write(piece)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, file)
    except OSError as error:
        raise folder_error(str(file), error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def identity(folder: str) -> dict[str, str]:
    """Return variables that name who commits, as far as the user's configuration does not."""
    name, email = configured_identity(folder)
    missing = {} if name else {"NAME": FALLBACK_NAME}
    missing |= {} if email else {"EMAIL": FALLBACK_EMAIL}
    return {f"GIT_{who}_{what}": value for what, value in missing.items() for who in ("AUTHOR", "COMMITTER")}


def configured_identity(folder: str) -> tuple[str, str]:
    """Return the name and the address of who commits, as the user configured them; '' where that is not so."""
    call = GitCall(accepted=(0, 1))
    name, email = (run_git(folder, "config", "--get", f"user.{key}", call=call).line for key in ("name", "email"))
    return name, email


def _leave_rebase(entry: str, path: str, call: GitCall) -> None:
    """Forget a rebase that the agent did not finish: its files stay, and its branch gets what they contain."""
    if os.path.isdir(os.path.join(entry, "rebase-merge")):
        run_git(path, "rebase", "--quit", call=call)
    if os.path.isdir(os.path.join(entry, "rebase-apply")):
        run_git(path, "am", "--quit", call=msgspec.structs.replace(call, accepted=(0, 128)))


def _stage_all(path: str, left_out: tuple[str, ...], call: GitCall) -> None:
    pathspecs = [f":(exclude,top,literal){each}" for each in left_out]
    # Ignored errors: a repository inside of the workspace without commits, and files that cannot be read.
    call = msgspec.structs.replace(call, accepted=(0, 1))
    run_git(path, "add", "--all", "--ignore-errors", "--", ".", *pathspecs, call=call)


def _attach(path: str, branch: str, call: GitCall) -> None:
    """Put the workspace on its branch, with all files as they are.

    Commits that the agent made elsewhere, on top of the branch, become commits of the branch. Otherwise the next commit
    brings the branch to what the files contain.
    """
    wanted = f"refs/heads/{branch}"
    if run_git(path, "symbolic-ref", "--quiet", "HEAD", call=GitCall(accepted=(0, 1))).line == wanted:
        return
    head, tip = commit_in(path, "HEAD"), commit_in(path, wanted)
    is_ahead = head is not None and (
        tip is None or run_git(path, "merge-base", "--is-ancestor", tip, head, call=GitCall(accepted=(0, 1))).code == 0
    )
    if is_ahead and head is not None:
        run_git(path, "update-ref", wanted, head, call=call)
    run_git(path, "symbolic-ref", "HEAD", wanted, call=call)


@contextlib.contextmanager
def _scratch_index(place: WorkspacePlace) -> Iterator[GitCall]:
    """Stage the whole workspace in an index of our own, so that the agent's index stays as it is."""
    entry = linked_entry(open_repository(place.repository or ""), place.path)
    if entry is None:
        raise WorkspaceError(f"{place.path} is no worktree of {place.repository}", is_campaigns=False)
    record = place_records(place).read()
    with tempfile.TemporaryDirectory(prefix="paceline-index-") as folder:
        index = os.path.join(folder, "index")
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(os.path.join(entry, "index"), index)
        call = GitCall(env={"GIT_INDEX_FILE": index})
        _stage_all(place.path, record.uncommitted if record else (), call)
        yield call


@contextlib.contextmanager
def _copy_pair(place: WorkspacePlace) -> Iterator[str]:
    """Yield a folder in which the original is `a` and the copy is `b`, so that a patch has the usual paths."""
    for each in (place.repository or "", place.path):
        if not os.path.isdir(each):
            raise WorkspaceError(f"there is no folder {each} (any more)", is_campaigns=False)
    with tempfile.TemporaryDirectory(prefix="paceline-diff-") as folder:
        os.symlink(os.path.abspath(place.repository or ""), os.path.join(folder, "a"))
        os.symlink(os.path.abspath(place.path), os.path.join(folder, "b"))
        yield folder


def _copy_numbers(place: WorkspacePlace) -> bytes:
    with _copy_pair(place) as folder:
        arguments = ("diff", "--no-index", "--numstat", "-z", "--no-renames", "--no-ext-diff", "a/", "b/")
        return run_git(folder, *arguments, call=GitCall(accepted=(0, 1))).out


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
