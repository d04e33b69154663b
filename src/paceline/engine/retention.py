"""How long workspaces, output and events are kept.

Workspaces of finished units are removed, with merged branches, but never the only copy of work: unmerged branches
always stay, and a workspace with uncommitted work is removed only by force. An engine removes old output and events in
small steps, so that no pass is held up.
"""

import functools
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import get_args

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.engine.command_log import prune_history
from paceline.engine.commands import all_units, find_campaign
from paceline.engine.settings import this_host
from paceline.errors import IllegalStep, PacelineError
from paceline.executors.interface import Executor, OutputArchive, OutputLimits, PruneResult
from paceline.executors.spool import STEP_ATTEMPTS, Spool
from paceline.hosts.leader.workspace_cleanup import WorkspaceTombstone, leave_tombstones
from paceline.store import Store, Unit, UnitResult
from paceline.workspaces import (
    WorkspaceLocation,
    check_nothing_is_lost,
    delete_merged_branches,
    remove,
    stored_location,
)
from paceline.workspaces.preparation import abandoned_location, delete_empty_parents

log = logging.getLogger("paceline.engine")

STEP_SECONDS = 1.0
"""How often a step is made: a busy engine makes many passes in a second, and none of them should pay for this."""
MANY_REMOVED = STEP_ATTEMPTS // 2
"""Attempts that one step removed, after which the next pass makes another: else thousands of short units in a minute
would fill the disk faster than it is cleaned."""
FINISHED = ("done", "cancelled")


class OutputRetention:
    """Removes output in small steps. The last attempt of a unit that is not finished is always kept."""

    def __init__(self, store: Store, executor: Executor, limits: OutputLimits) -> None:
        self._store = store
        self._archive = executor if isinstance(executor, OutputArchive) else None
        self._limits = limits
        self._next_at = -math.inf

    def step(self, now: float) -> bool:
        """Make a step, if it is time for one. Returns whether another one is due in this pass."""
        if self._archive is None or self._next_at - STEP_SECONDS <= now < self._next_at:
            return False

        def is_needed(attempt_id: str, unit_id: str | None) -> bool:
            # That of an unknown unit stays: `paceline gc` finds out whose it is.
            return unit_id is None or is_last_of_unfinished(self._store, attempt_id, unit_id)

        # An engine that ends units faster than single steps read the archive would never come to its end.
        done = self._archive.prune(self._limits, is_needed, now)
        is_more_due = done.is_behind or done.attempts >= MANY_REMOVED
        self._next_at = now if is_more_due else now + STEP_SECONDS
        return done.is_behind


def is_last_of_unfinished(store: Store, attempt_id: str, unit_id: str) -> bool:
    """Return whether the attempt is the last one of a unit that is neither done nor cancelled."""
    unit = store.unit(unit_id)
    return unit is not None and unit.attempt_id == attempt_id and unit.state not in FINISHED


def attempts_of_unfinished(store: Store) -> set[str]:
    """Return the last attempts of all units that are neither done nor cancelled. Reads all of them."""
    return {
        unit.attempt_id
        for state in get_args(UnitState)
        if state not in FINISHED
        for unit in all_units(store, state=state)
        if unit.attempt_id is not None
    }


def remove_campaign_output(spool: Spool, campaign: str, before: float) -> PruneResult:
    """Remove the output of a deleted campaign. What ended after `before` is of another one of that name."""
    removed = PruneResult()
    for name in spool.archived():
        if (spool.unit_of(name) or "").startswith(f"{campaign}/"):
            attempt = spool.archived_attempt(name)
            if attempt is not None and attempt.ended_at <= before:
                spool.remove_archived(name)
                removed += PruneResult(1, attempt.disk_bytes)
    return removed


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
    place: WorkspaceLocation
    host: str | None = None


def workspace_host(result: UnitResult) -> str | None:
    """Return the machine that the workspace of a unit is on; None if it is this one."""
    is_here = not result.is_remote and result.host == this_host()
    return None if result.workspace is None or is_here else result.host


def workspaces_of_campaign(store: Store, campaign: str) -> list[StoredWorkspace]:
    """Return the workspaces of all units of the campaign. Raise `UnknownName` for an unknown one."""
    return [*_workspaces(all_units(store, campaign=find_campaign(store, campaign).name))]


def unneeded_workspaces(store: Store, home: Path) -> list[StoredWorkspace]:
    """Return the workspaces of done and cancelled units, unless their campaign keeps all, and those without a unit."""
    # Listed before the units are read: an engine may store and make one meanwhile.
    links = sorted((home / "workspaces").glob("*/*/.git"))
    found = [str(link.parent) for link in links if link.is_file()]
    settings = {each.name: each.workspace for each in store.campaigns() if each.workspace is not None}
    keeping = {name for name, each in settings.items() if each.keep == "all"}
    tops = {top for each in settings.values() for top in each.bases}
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
    left = [path for path in found if os.path.realpath(path) not in known]
    return [*unneeded, *(StoredWorkspace(unit=None, place=abandoned_location(path, tops)) for path in left)]


def check_workspaces(workspaces: Iterable[StoredWorkspace]) -> None:
    """Raise `IllegalStep` if removing the workspaces would lose work. A host keeps those of its own by itself."""
    here = [each.place for each in workspaces if each.host is None and os.path.lexists(each.place.path)]
    found = [reason for place in here if (reason := _problem(check_nothing_is_lost, place)) is not None]
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
            act = check_nothing_is_lost if dry_run else functools.partial(remove, force=force)
            if not (dry_run and force) and (reason := _problem(act, place)) is not None:
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
        WorkspaceTombstone(host=each.host, unit=each.unit or "", place=each.place, force=force)
        for each in workspaces
        if each.host is not None
    ]
    if left and not dry_run:
        leave_tombstones(store, left)
    return len(left)


def _problem(act: Callable[[WorkspaceLocation], object], place: WorkspaceLocation) -> str | None:
    try:
        act(place)
    except PacelineError as error:
        return str(error)
    return None


def _workspaces(units: Iterable[Unit]) -> Iterator[StoredWorkspace]:
    for unit in units:
        place = stored_location(unit.result)
        if place is not None:
            yield StoredWorkspace(unit=unit.id, place=place, host=workspace_host(unit.result))


STEP_EVENTS = 500
"""Events that one pass deletes at most: a few milliseconds."""
REST_SECONDS = 60.0
"""How often an engine that is up to date looks for old events."""


class EventRetention:
    """Deletes events that are older than `keep` seconds; none if it is None."""

    def __init__(self, store: Store, keep: float | None) -> None:
        self._store = store
        self._keep = keep
        self._next_at = -math.inf

    def step(self, now: float) -> None:
        """Delete some old events, if it is time to. Called once per pass."""
        if self._keep is None or self._next_at - REST_SECONDS <= now < self._next_at:
            return
        deleted = prune_history(self._store, before=now - self._keep, limit=STEP_EVENTS)
        self._next_at = now if deleted == STEP_EVENTS else now + REST_SECONDS
