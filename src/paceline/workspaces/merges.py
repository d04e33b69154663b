"""Merging finished units into the branch that is checked out, taking that back, and what would conflict.

Conflicts: `git merge-tree` merges in memory; no work tree, index or branch is touched. Two branches are tried only if
both change a path, because others cannot conflict.

Merges: all are made in memory first. The work tree then moves once, forward, to the last of them, so an interruption
leaves it where it was. What was checked out before is recorded first, for `undo_merges`.
"""

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from paceline.errors import InvalidInput, WorkspaceError
from paceline.store.unit_result import GitSettings
from paceline.workspaces.changes import identity, is_ancestor, known_commits
from paceline.workspaces.folders import write_whole
from paceline.workspaces.repository import GitCall, GitFolder, Repository, open_repository, run_git

MOST_PAIRS: Final = 20_000
"""How many pairs of branches are tried. One takes about a millisecond, and nobody reads a longer list."""
NEEDED_GIT: Final = "2.39"
"""The first git whose `merge-tree` does many real merges in one process. Debian 12 has it."""
_USAGE_ERROR: Final = 129
_MERGES_PER_CALL: Final = 1000


class FinishedWork(msgspec.Struct, frozen=True, kw_only=True):
    """The committed change of a unit."""

    unit: str
    repository: str
    base: str
    commit: str
    branch: str | None = None
    git: GitSettings | None = None


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two changes that cannot be merged without a person. Without an `other` it is the checked-out branch."""

    unit: str
    other: str | None = None
    paths: tuple[str, ...] = ()


class ConflictReport(msgspec.Struct, frozen=True, kw_only=True):
    """All conflicts between finished units, and with the branch that they would be merged into.

    `missing` are units whose commit is no longer in the repository. With too many pairs, `is_complete` is False.
    """

    conflicts: tuple[Conflict, ...] = ()
    pairs_tried: int = 0
    missing: tuple[str, ...] = ()
    is_complete: bool = True


class TreeMerge(msgspec.Struct, frozen=True, kw_only=True):
    """The result of merging two commits in memory: the tree, and the paths that are in conflict."""

    tree: str
    conflicts: tuple[str, ...] = ()


def conflict_report(works: Iterable[FinishedWork], *, most_pairs: int = MOST_PAIRS) -> ConflictReport:
    """Return which of the finished units conflict with each other, or with what is checked out."""
    by_repository: dict[str, list[FinishedWork]] = defaultdict(list)
    for work in works:
        by_repository[work.repository].append(work)
    reports = [_report(top, found, most_pairs) for top, found in by_repository.items()]
    return ConflictReport(
        conflicts=tuple(conflict for report in reports for conflict in report.conflicts),
        pairs_tried=sum(report.pairs_tried for report in reports),
        missing=tuple(unit for report in reports for unit in report.missing),
        is_complete=all(report.is_complete for report in reports),
    )


def _report(top: str, works: Sequence[FinishedWork], most_pairs: int) -> ConflictReport:
    repository = open_repository(top)
    git = repository.git
    known = set(known_commits(git, (commit for work in works for commit in (work.commit, work.base))))
    head = repository.commit_of("HEAD")
    missing = tuple(work.unit for work in works if not {work.commit, work.base} <= known)
    present = _unmerged(git, [work for work in works if {work.commit, work.base} <= known], head)
    with_head = ((work, None) for work in present if head is not None and work.base != head)
    sharing = _pairs_that_share_a_path(present, _changed_paths(git, present))
    candidates: Iterator[tuple[FinishedWork, FinishedWork | None]] = itertools.chain(with_head, sharing)
    pairs = list(itertools.islice(candidates, most_pairs))
    merges = merge_trees(git, [(one.commit, other.commit if other else head or "") for one, other in pairs])
    return ConflictReport(
        conflicts=tuple(
            Conflict(unit=one.unit, other=other.unit if other else None, paths=merge.conflicts)
            for (one, other), merge in zip(pairs, merges, strict=True)
            if merge.conflicts
        ),
        pairs_tried=len(pairs),
        missing=missing,
        is_complete=next(candidates, None) is None,
    )


def _unmerged(git: GitFolder, works: Sequence[FinishedWork], head: str | None) -> list[FinishedWork]:
    """Return the works that the checked-out branch does not contain. What is merged cannot conflict any more."""
    if head is None or not works:
        return list(works)
    lines = "".join(f"{work.commit}\n" for work in works) + f"^{head}\n"
    new = set(run_git(git, "rev-list", "--stdin", call=GitCall(stdin=lines.encode())).out.decode().split())
    return [work for work in works if work.commit in new]


def merge_trees(git: GitFolder, pairs: Sequence[tuple[str, str]]) -> Iterator[TreeMerge]:
    """Merge each pair of commits in memory."""
    for start in range(0, len(pairs), _MERGES_PER_CALL):
        lines = "".join(f"{one} {other}\n" for one, other in pairs[start : start + _MERGES_PER_CALL])
        call = GitCall(stdin=lines.encode(), accepted=(0, _USAGE_ERROR))
        options = ("--stdin", "--name-only", "--no-messages", "--allow-unrelated-histories")
        answer = run_git(git, "merge-tree", *options, call=call)
        if answer.code == _USAGE_ERROR:
            version = run_git(git, "version").line
            raise WorkspaceError(f"this needs git {NEEDED_GIT} or newer, and here is {version}; update git")
        yield from _parsed(answer.out)


def _parsed(out: bytes) -> Iterator[TreeMerge]:
    """Parse `status NUL tree NUL (path NUL)* NUL` for each merge. A path may be listed more than once."""
    parts = iter(out.split(b"\0"))
    for status in parts:
        if not status:
            continue
        tree = next(parts).decode()
        paths = [path.decode(errors="replace") for path in itertools.takewhile(bool, parts)]
        is_clean = status == b"1"
        yield TreeMerge(tree=tree, conflicts=() if is_clean else tuple(dict.fromkeys(paths)) or ("(unknown)",))


def _changed_paths(git: GitFolder, works: Sequence[FinishedWork]) -> dict[tuple[str, str], frozenset[bytes]]:
    """Return the paths that differ between the base and the commit of each unit, in one call of git."""
    ranges = sorted({(work.commit, work.base) for work in works})
    lines = "".join(f"{commit} {base}\n" for commit, base in ranges)
    options = ("--stdin", "-r", "--name-only", "-z", "--no-renames", "--always")
    out = run_git(git, "diff-tree", *options, call=GitCall(stdin=lines.encode())).out
    found: dict[tuple[str, str], set[bytes]] = {each: set() for each in ranges}
    following = iter(ranges)
    upcoming = next(following, None)
    current: set[bytes] = set()
    for part in out.split(b"\0"):
        if upcoming is not None and part == upcoming[0].encode():
            current, upcoming = found[upcoming], next(following, None)
        elif part:
            current.add(part)
    return {each: frozenset(paths) for each, paths in found.items()}


def _pairs_that_share_a_path(
    works: Sequence[FinishedWork], changed: dict[tuple[str, str], frozenset[bytes]]
) -> Iterator[tuple[FinishedWork, FinishedWork]]:
    """Yield each pair once, in the order of the units."""
    users: dict[bytes, list[int]] = defaultdict(list)
    for number, work in enumerate(works):
        for path in changed[work.commit, work.base]:
            users[path].append(number)
    for number, work in enumerate(works):
        later = {user for path in changed[work.commit, work.base] for user in users[path] if user > number}
        for other in sorted(later):
            yield work, works[other]


# -- merges -------------------------------------------------------------------------------------------

MOST_UNDONE: Final = 50
"""How many applications can be taken back, the last one first."""


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was merged into the branch of a repository, and what was left out.

    `contained`: units whose work the branch already had. `remaining`: units that were not tried, because it was to stop
    at a conflict. `in_the_way`: after a dry run, paths with uncommitted changes that the merges would change.
    """

    repository: str
    branch: str
    before: str
    after: str
    merged: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    remaining: tuple[str, ...] = ()
    in_the_way: tuple[str, ...] = ()


class _Application(msgspec.Struct, frozen=True, kw_only=True):
    """One application that can be taken back."""

    branch: str
    before: str
    after: str
    units: tuple[str, ...]


def merge_works(
    top: str, works: Sequence[FinishedWork], *, dry_run: bool = False, stop_at_conflict: bool = False
) -> MergeResult:
    """Merge the units in the given order into the checked-out branch of the repository.

    Leave out each one that conflicts, or stop before the first of them. Raise `InvalidInput` if no branch is checked
    out, or if an unfinished merge or uncommitted changes are in the way; nothing is changed then.
    """
    repository = open_repository(top, works[-1].git if works else None)
    with repository.locked() as call:
        branch, before = _checked_out(repository)
        unmerged = MergeResult(repository=top, branch=branch, before=before, after=before)
        result = _merged(repository, works, unmerged, stop_at_conflict=stop_at_conflict)
        if dry_run:
            return msgspec.structs.replace(result, in_the_way=_in_the_way(repository.tree, before, result.after))
        if result.after != before:
            _move_forward(repository, result, call)
    return result


def undo_merges(top: str, git: GitSettings | None = None) -> MergeResult:
    """Take the last application back. Raise `InvalidInput` if there is none, or if the branch has moved since."""
    repository = open_repository(top, git)
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
        _check_unlocked(repository, branch)
        try:
            run_git(repository.tree, "reset", "--quiet", "--keep", last.before, call=call)
        except WorkspaceError as error:
            raise InvalidInput(
                f"nothing was taken back from {branch}: commit or stash your changes; {error}"
            ) from error
        _write(repository, applications)
    return MergeResult(repository=top, branch=branch, before=head, after=last.before, merged=last.units)


def _merged(
    repository: Repository, works: Sequence[FinishedWork], result: MergeResult, *, stop_at_conflict: bool
) -> MergeResult:
    """Make the merge commits in memory."""
    call = GitCall(env=identity(repository.settings))
    merged: list[str] = []
    contained: list[str] = []
    conflicts: list[Conflict] = []
    remaining: tuple[str, ...] = ()
    head = result.before
    for number, work in enumerate(works):
        if repository.commit_of(work.commit) is None:
            raise WorkspaceError(f"the commit {work.commit} of {work.unit} is no longer in {repository.top}")
        if is_ancestor(repository.git, work.commit, head):
            contained.append(work.unit)
            continue
        (merge,) = merge_trees(repository.git, [(head, work.commit)])
        if merge.conflicts:
            conflicts.append(Conflict(unit=work.unit, paths=merge.conflicts))
            if stop_at_conflict:
                remaining = tuple(later.unit for later in works[number + 1 :])
                break
            continue
        message = f"Merge unit {work.unit}"
        parents = ("-p", head, "-p", work.commit, "-m", message)
        head = run_git(repository.git, "commit-tree", merge.tree, *parents, call=call).line
        merged.append(work.unit)
    return msgspec.structs.replace(
        result,
        after=head,
        merged=tuple(merged),
        contained=tuple(contained),
        conflicts=tuple(conflicts),
        remaining=remaining,
    )


def _in_the_way(tree: GitFolder, before: str, after: str) -> tuple[str, ...]:
    """Return the paths with uncommitted changes that differ between the two commits."""
    changed = run_git(tree, "diff", "--name-only", "--no-renames", "-z", before, after).out.split(b"\0")
    status = run_git(tree, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all").out.split(b"\0")
    return tuple(os.fsdecode(path) for path in sorted({line[3:] for line in status if line} & set(changed)))


def _check_unlocked(repository: Repository, branch: str) -> None:
    """Raise `InvalidInput` if git could not move the branch. It would notice only after it has changed the files."""
    for folder, name in (
        (repository.git_dir, "index"),
        (repository.git_dir, "HEAD"),
        (repository.common, f"refs/heads/{branch}"),
    ):
        lock = os.path.join(folder, f"{name}.lock")
        if os.path.lexists(lock):
            raise InvalidInput(
                f"another git works in {repository.top}, or one was killed there: {lock} exists; if none runs, delete"
                " that file, then run this again"
            )


def _move_forward(repository: Repository, result: MergeResult, call: GitCall) -> None:
    _check_unlocked(repository, result.branch)
    applications = _read(repository)
    mine = _Application(branch=result.branch, before=result.before, after=result.after, units=result.merged)
    _write(repository, [*applications, mine])
    try:
        run_git(repository.tree, "merge", "--quiet", "--ff-only", "--no-stat", result.after, call=call)
    except WorkspaceError as error:
        _write(repository, applications)
        raise InvalidInput(f"nothing was merged into {result.branch}: {error}") from error


def _checked_out(repository: Repository) -> tuple[str, str]:
    """Return the branch that is checked out in the main tree, and its commit."""
    call = GitCall(accepted=(0, 1))
    branch = run_git(repository.git, "symbolic-ref", "--quiet", "--short", "HEAD", call=call).line
    if not branch:
        raise InvalidInput(f"no branch is checked out in {repository.top}; check out the one to merge into")
    head = repository.commit_of("HEAD")
    if head is None:
        raise InvalidInput(f"the branch {branch} of {repository.top} has no commits")
    if repository.commit_of("MERGE_HEAD") is not None:
        raise InvalidInput(
            f"you are in the middle of a merge in {repository.top}: finish it with `git commit`, or leave it with"
            " `git merge --abort`; then run this again"
        )
    return branch, head


def _file(repository: Repository) -> str:
    return os.path.join(repository.own_folder, "applications.json")


def _read(repository: Repository) -> list[_Application]:
    try:
        with open(_file(repository), "rb") as file:
            return msgspec.json.decode(file.read(), type=list[_Application])
    except (FileNotFoundError, msgspec.MsgspecError):
        return []


def _write(repository: Repository, applications: Sequence[_Application]) -> None:
    write_whole(_file(repository), [msgspec.json.encode(list(applications)[-MOST_UNDONE:])])
