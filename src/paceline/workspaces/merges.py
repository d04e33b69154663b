"""Merging finished units into the branch that is checked out, one after the other, and taking that back.

All merges are made in memory first. The work tree then moves once, forward, to the last of them, so an interruption
leaves it where it was. What was checked out before is recorded first, for `undo_merges`.
"""

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from paceline.errors import InvalidInput, WorkspaceError
from paceline.workspaces.changes import identity
from paceline.workspaces.conflicts import Conflict, FinishedWork, merge_trees
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.repository import Repository, open_repository

MOST_UNDONE: Final = 50
"""How many applications can be taken back, the last one first."""


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was merged into the branch of a repository, and where it stopped.

    `contained`: units whose work the branch already had. `remaining`: units after the conflict, which were not tried.
    `in_the_way`: after a dry run, paths with uncommitted changes that the merges would change.
    """

    repository: str
    branch: str
    before: str
    after: str
    merged: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()
    conflict: Conflict | None = None
    remaining: tuple[str, ...] = ()
    in_the_way: tuple[str, ...] = ()


class _Application(msgspec.Struct, frozen=True, kw_only=True):
    """One application that can be taken back."""

    branch: str
    before: str
    after: str
    units: tuple[str, ...]


def merge_works(top: str, works: Sequence[FinishedWork], *, dry_run: bool = False) -> MergeResult:
    """Merge the units in the given order into the checked-out branch of the repository.

    Stop before the first one that conflicts: what was merged before it stays. Raise `InvalidInput` if no branch is
    checked out, or if uncommitted changes are in the way; nothing is changed then.
    """
    repository = open_repository(top)
    with repository.locked() as call:
        branch, before = _checked_out(repository)
        result = _merged(repository, works, MergeResult(repository=top, branch=branch, before=before, after=before))
        if dry_run:
            return msgspec.structs.replace(result, in_the_way=_in_the_way(repository.top, before, result.after))
        if result.after != before:
            _move_forward(repository, result, call)
    return result


def undo_merges(top: str) -> MergeResult:
    """Take the last application back. Raise `InvalidInput` if there is none, or if the branch has moved since."""
    repository = open_repository(top)
    with repository.locked() as call:
        branch, head = _checked_out(repository)
        applications = _read(repository)
        while applications and applications[-1].before == head and applications[-1].after != head:
            applications.pop()  # it was recorded, and then interrupted before anything moved
        if not applications:
            raise InvalidInput(f"nothing was applied to {top} that could be undone")
        last = applications.pop()
        if last.branch != branch:
            raise InvalidInput(f"the last application was to {last.branch}, and {branch} is checked out in {top}")
        if last.after != head:
            raise InvalidInput(
                f"{branch} in {top} has moved since; take the merges back with"
                f" `git revert -m 1 $(git rev-list --first-parent {last.before[:12]}..{last.after[:12]})`"
            )
        try:
            run_git(top, "reset", "--quiet", "--keep", last.before, call=call)
        except WorkspaceError as error:
            raise InvalidInput(
                f"nothing was taken back from {branch}: commit or stash your changes; {error}"
            ) from error
        _write(repository, applications)
    return MergeResult(repository=top, branch=branch, before=head, after=last.before, merged=last.units)


def _merged(repository: Repository, works: Sequence[FinishedWork], result: MergeResult) -> MergeResult:
    """Make the merge commits in memory, up to the first conflict."""
    call = GitCall(env=identity(repository.top))
    merged: list[str] = []
    contained: list[str] = []
    head = result.before
    for number, work in enumerate(works):
        if repository.commit_of(work.commit) is None:
            raise WorkspaceError(f"the commit {work.commit} of {work.unit} is no longer in {repository.top}")
        if _contains(repository.top, head, work.commit):
            contained.append(work.unit)
            continue
        (merge,) = merge_trees(repository.top, [(head, work.commit)])
        if merge.conflicts:
            conflict = Conflict(unit=work.unit, paths=merge.conflicts)
            remaining = tuple(later.unit for later in works[number + 1 :])
            result = msgspec.structs.replace(result, conflict=conflict, remaining=remaining)
            break
        message = f"Merge unit {work.unit}"
        parents = ("-p", head, "-p", work.commit, "-m", message)
        head = run_git(repository.top, "commit-tree", merge.tree, *parents, call=call).line
        merged.append(work.unit)
    return msgspec.structs.replace(result, after=head, merged=tuple(merged), contained=tuple(contained))


def _in_the_way(top: str, before: str, after: str) -> tuple[str, ...]:
    """Return the paths with uncommitted changes that differ between the two commits."""
    changed = run_git(top, "diff", "--name-only", "--no-renames", "-z", before, after).out.split(b"\0")
    status = run_git(top, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all").out.split(b"\0")
    return tuple(os.fsdecode(path) for path in sorted({line[3:] for line in status if line} & set(changed)))


def _move_forward(repository: Repository, result: MergeResult, call: GitCall) -> None:
    applications = _read(repository)
    mine = _Application(branch=result.branch, before=result.before, after=result.after, units=result.merged)
    _write(repository, [*applications, mine])
    try:
        run_git(repository.top, "merge", "--quiet", "--ff-only", "--no-stat", result.after, call=call)
    except WorkspaceError as error:
        _write(repository, applications)
        raise InvalidInput(f"nothing was merged into {result.branch}: {error}") from error


def _checked_out(repository: Repository) -> tuple[str, str]:
    """Return the branch that is checked out in the main tree, and its commit."""
    call = GitCall(accepted=(0, 1))
    branch = run_git(repository.top, "symbolic-ref", "--quiet", "--short", "HEAD", call=call).line
    if not branch:
        raise InvalidInput(f"no branch is checked out in {repository.top}; check out the one to merge into")
    head = repository.commit_of("HEAD")
    if head is None:
        raise InvalidInput(f"the branch {branch} of {repository.top} has no commits")
    return branch, head


def _contains(top: str, head: str, commit: str) -> bool:
    return run_git(top, "merge-base", "--is-ancestor", commit, head, call=GitCall(accepted=(0, 1))).code == 0


def _file(repository: Repository) -> str:
    return os.path.join(repository.own_folder, "applications.json")


def _read(repository: Repository) -> list[_Application]:
    try:
        with open(_file(repository), "rb") as file:
            return msgspec.json.decode(file.read(), type=list[_Application])
    except (FileNotFoundError, msgspec.MsgspecError):
        return []


def _write(repository: Repository, applications: Sequence[_Application]) -> None:
    temporary = f"{_file(repository)}.new"
    with open(temporary, "wb") as file:
        file.write(msgspec.json.encode(list(applications)[-MOST_UNDONE:]))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, _file(repository))
