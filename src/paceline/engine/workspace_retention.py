"""Retention of workspaces: those of finished units are removed, with merged branches, but never the only copy of work.

Unmerged branches always stay. A workspace with uncommitted work is removed only by force.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from paceline.engine.output_retention import FINISHED, all_units
from paceline.engine.unit_results import this_host
from paceline.errors import IllegalStep, PacelineError
from paceline.hosts.left_workspaces import LeftWorkspace, leave_to_hosts
from paceline.store import Store, Unit, UnitResult
from paceline.workspaces import WorkspacePlace, check_nothing_is_lost, delete_merged_branches, remove, stored_place
from paceline.workspaces.branches import abandoned_branch
from paceline.workspaces.preparation import delete_empty_parents

MOST_NAMED = 3
"""How many workspaces an error names; the rest is counted."""


class KeptWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace that was not removed, and why."""

    unit: str | None
    path: str
    reason: str


class RemovedWorkspaces(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    removed: int = 0
    kept: tuple[KeptWorkspace, ...] = ()
    branches: tuple[str, ...] = ()


class StoredWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace of a unit, or one in the home that no unit has any more. `host` is None on this machine."""

    unit: str | None
    place: WorkspacePlace
    host: str | None = None


def workspace_host(result: UnitResult) -> str | None:
    """Return the machine that the workspace of a unit is on; None if it is this one."""
    is_here = not result.is_remote and result.host == this_host()
    return None if result.workspace is None or is_here else result.host


def workspaces_of_campaign(store: Store, campaign: str) -> list[StoredWorkspace]:
    """Return the workspaces of all units of the campaign."""
    return [*_workspaces(all_units(store, campaign=campaign))]


def unneeded_workspaces(store: Store, home: Path) -> list[StoredWorkspace]:
    """Return the workspaces of done and cancelled units, unless their campaign keeps all, and those without a unit."""
    found = _worktrees_in(home)  # listed before the units are read: an engine may store and make one meanwhile
    keeping = {each.name for each in store.campaigns() if each.workspace is not None and each.workspace.keep == "all"}
    known: set[str] = set()
    unneeded: list[StoredWorkspace] = []
    for unit in all_units(store):
        for each in _workspaces([unit]):
            if each.host is None:
                known.add(os.path.realpath(each.place.path))
            # A host removes those of done units by itself: the engine sees to that.
            is_finished = unit.state in FINISHED if each.host is None else unit.state == "cancelled"
            if is_finished and unit.campaign not in keeping:
                unneeded.append(each)
    return [*unneeded, *(_abandoned(path) for path in found if os.path.realpath(path) not in known)]


def check_workspaces(workspaces: Iterable[StoredWorkspace]) -> None:
    """Raise `IllegalStep` if removing the workspaces would lose work. A host keeps those of its own by itself."""
    here = (each for each in workspaces if each.host is None)
    found = [reason for each in here if (reason := _reason_to_keep(each.place)) is not None]
    if found:
        more = f"\nand {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise IllegalStep("\n".join(found[:MOST_NAMED]) + more)


def remove_workspaces(
    workspaces: Iterable[StoredWorkspace], *, force: bool, dry_run: bool = False
) -> RemovedWorkspaces:
    """Remove the workspaces of this machine, and branches whose commits are all merged.

    What cannot be removed is kept and named. `leave_workspaces` sees to those on hosts.
    """
    removed: list[str] = []
    kept: list[KeptWorkspace] = []
    branches: dict[str, list[str]] = {}
    for each in workspaces:
        place = each.place
        if each.host is None and os.path.lexists(place.path):
            reason = _removal_problem(place, force=force, dry_run=dry_run)
            if reason is not None:
                kept.append(KeptWorkspace(unit=each.unit, path=place.path, reason=reason))
                continue
            removed.append(os.path.realpath(place.path))
            if not dry_run:
                delete_empty_parents(place)
        if each.unit is not None and place.branch is not None and place.repository is not None:
            branches.setdefault(place.repository, []).append(place.branch)
    merged = tuple(
        name
        for top, names in branches.items()
        if os.path.isdir(top)
        for name in delete_merged_branches(top, names, dry_run=dry_run, leaving=set(removed) if dry_run else ())
    )
    return RemovedWorkspaces(removed=len(removed), kept=tuple(kept), branches=merged)


def leave_workspaces(store: Store, workspaces: Iterable[StoredWorkspace], *, force: bool, dry_run: bool = False) -> int:
    """Let hosts remove those of the workspaces that are on them, when they can. Return how many these are."""
    left = [
        LeftWorkspace(host=each.host, unit=each.unit or "", place=each.place, force=force)
        for each in workspaces
        if each.host is not None
    ]
    if left and not dry_run:
        leave_to_hosts(store, left)
    return len(left)


def _removal_problem(place: WorkspacePlace, *, force: bool, dry_run: bool) -> str | None:
    """Remove the workspace. Return why it stays, or None."""
    if dry_run:
        return None if force else _reason_to_keep(place)
    try:
        remove(place, force=force)
    except PacelineError as error:
        return str(error)
    return None


def _reason_to_keep(place: WorkspacePlace) -> str | None:
    if not os.path.lexists(place.path):
        return None
    try:
        check_nothing_is_lost(place)
    except PacelineError as error:
        return str(error)
    return None


def _workspaces(units: Iterable[Unit]) -> Iterator[StoredWorkspace]:
    for unit in units:
        place = stored_place(unit.result)
        if place is not None:
            yield StoredWorkspace(unit=unit.id, place=place, host=workspace_host(unit.result))


def _worktrees_in(home: Path) -> list[str]:
    return [str(link.parent) for link in sorted((home / "workspaces").glob("*/*/.git")) if link.is_file()]


def _abandoned(path: str) -> StoredWorkspace:
    """Return a worktree in the home that no unit has: its campaign was deleted, and that was interrupted."""
    place = WorkspacePlace(path=path, cwd=path, branch=abandoned_branch(path), base=None, repository=path)
    return StoredWorkspace(unit=None, place=place)
