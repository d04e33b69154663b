"""Which finished branches cannot be merged together, known before anybody merges.

`git merge-tree` merges in memory: no work tree, index or branch is touched. Two branches are tried only if both change
a path, because others cannot conflict. Never here: a real merge.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.repository import open_repository

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
    known = _known_commits(top, works)
    head = repository.commit_of("HEAD")
    missing = tuple(work.unit for work in works if not {work.commit, work.base} <= known)
    present = _unmerged(top, [work for work in works if {work.commit, work.base} <= known], head)
    with_head = ((work, None) for work in present if head is not None and work.base != head)
    sharing = _pairs_that_share_a_path(present, _changed_paths(top, present))
    candidates: Iterator[tuple[FinishedWork, FinishedWork | None]] = itertools.chain(with_head, sharing)
    pairs = list(itertools.islice(candidates, most_pairs))
    merges = merge_trees(top, [(one.commit, other.commit if other else head or "") for one, other in pairs])
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


def _unmerged(top: str, works: Sequence[FinishedWork], head: str | None) -> list[FinishedWork]:
    """Return the works that the checked-out branch does not contain. What is merged cannot conflict any more."""
    if head is None or not works:
        return list(works)
    lines = "".join(f"{work.commit}\n" for work in works) + f"^{head}\n"
    new = set(run_git(top, "rev-list", "--stdin", call=GitCall(stdin=lines.encode())).out.decode().split())
    return [work for work in works if work.commit in new]


def merge_trees(top: str, pairs: Sequence[tuple[str, str]]) -> Iterator[TreeMerge]:
    """Merge each pair of commits in memory."""
    for start in range(0, len(pairs), _MERGES_PER_CALL):
        lines = "".join(f"{one} {other}\n" for one, other in pairs[start : start + _MERGES_PER_CALL])
        call = GitCall(stdin=lines.encode(), accepted=(0, _USAGE_ERROR))
        options = ("--stdin", "--name-only", "--no-messages", "--allow-unrelated-histories")
        answer = run_git(top, "merge-tree", *options, call=call)
        if answer.code == _USAGE_ERROR:
            version = run_git(top, "version").line
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


def _known_commits(top: str, works: Sequence[FinishedWork]) -> set[str]:
    """Return which of the commits are in the repository."""
    wanted = {commit for work in works for commit in (work.commit, work.base)}
    lines = "".join(f"{commit}^{{commit}}\n" for commit in sorted(wanted))
    out = run_git(top, "cat-file", "--batch-check=%(objectname)", call=GitCall(stdin=lines.encode())).out
    return wanted & set(out.decode(errors="replace").split())


def _changed_paths(top: str, works: Sequence[FinishedWork]) -> dict[tuple[str, str], frozenset[bytes]]:
    """Return the paths that differ between the base and the commit of each unit, in one call of git."""
    ranges = sorted({(work.commit, work.base) for work in works})
    lines = "".join(f"{commit} {base}\n" for commit, base in ranges)
    options = ("--stdin", "-r", "--name-only", "-z", "--no-renames", "--always")
    out = run_git(top, "diff-tree", *options, call=GitCall(stdin=lines.encode())).out
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
