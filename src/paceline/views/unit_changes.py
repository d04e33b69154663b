"""The changes of units: where they are, as a patch, and those of a campaign that can be merged, with their conflicts.

Here: from stored units to `paceline.workspaces`. The command line and the API show the same.
"""

import contextlib
from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import Final

import msgspec

from paceline.core.values.fields import fields_of
from paceline.engine.commands import find_campaign
from paceline.engine.retention import workspace_host
from paceline.errors import InvalidInput, PacelineError, UnknownName, WorkspaceError
from paceline.store import Store, Unit
from paceline.views.safe_text import plain_text, printable
from paceline.views.units import iter_units
from paceline.workspaces import diff, stored_location
from paceline.workspaces.merges import Conflict, ConflictReport, FinishedWork, conflict_report


class UnitChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a unit: where it is, and its size as of its last commit."""

    unit: str
    repository: str | None
    host: str | None
    """The machine that the workspace is on, unless it is this one."""
    workspace: str
    branch: str | None
    base: str | None
    commit: str | None
    files_changed: int | None
    lines_added: int | None
    lines_removed: int | None


class UnitDiff(UnitChange, frozen=True, kw_only=True):
    """The change of a unit with its patch. `truncated`: the patch is longer than was requested."""

    patch: str
    truncated: bool


def unit_change(unit: Unit) -> UnitChange:
    """Return the change of a unit. Raise `UnknownName` if it has no workspace."""
    result = unit.result
    if result.workspace is None:
        why = (
            "has not been started yet"
            if unit.attempt_id is None
            else "has no workspace: none was made yet, or it worked in its folder itself"
        )
        raise UnknownName(f"there is no change of {unit.id} to show: it {why}")
    return UnitChange(**fields_of(UnitChange, result) | {"unit": unit.id, "host": workspace_host(result)})


def unit_patch(unit: Unit) -> Generator[bytes, None, None]:
    """Yield the change of a unit as a patch: what was committed once it is done, else what is there by now.

    Of a workspace on another host, what has come to this machine: its branch.
    """
    change = unit_change(unit)
    place = stored_location(unit.result)
    if place is None:
        return
    try:
        yield from diff(place, unit.result.commit if unit.state == "done" else None, is_here=change.host is None)
    except WorkspaceError as error:
        if change.host is None:
            raise
        raise WorkspaceError(
            f"the workspace of {unit.id} is on the host {change.host}, and nothing of it has come here yet: {error}",
            is_campaigns=False,
        ) from error


def unit_diff(unit: Unit, *, most_bytes: int) -> UnitDiff:
    """Return the change of a unit with the beginning of its patch, as text without control characters."""
    data = b""
    with contextlib.closing(unit_patch(unit)) as pieces:
        for piece in pieces:
            data += piece
            if len(data) > most_bytes:
                break
    return UnitDiff(
        **msgspec.structs.asdict(unit_change(unit)),
        patch=plain_text(data[:most_bytes]),
        truncated=len(data) > most_bytes,
    )


def finished_work(unit: Unit) -> FinishedWork:
    """Return the change of a unit that can be merged. Raise `InvalidInput` if there is none."""
    result = unit_change(unit)
    if unit.state != "done":
        hint = f"; `paceline accept {unit.id}` takes it as done" if unit.state == "unverified" else ""
        raise InvalidInput(f"{unit.id} is {unit.state}, and only the work of done units is merged{hint}")
    if result.branch is None:
        raise InvalidInput(
            f"{unit.id} worked in a copy, not in git; `paceline diff {unit.id} | git apply` uses its change"
        )
    if result.commit is None and result.files_changed is None:
        raise InvalidInput(f"{unit.id} has no commit to merge; `paceline diff {unit.id} | git apply` uses its change")
    if result.commit is None or result.base is None or result.repository is None:
        raise InvalidInput(f"{unit.id} changed nothing, so there is nothing to merge")
    return FinishedWork(**fields_of(FinishedWork, result, unit.result) | {"unit": unit.id})


def finished_works(store: Store, campaign: str) -> list[FinishedWork]:
    """Return the changes of all done units of a campaign, in the order of the plan."""
    return mergeable_works(iter_units(store, campaign=campaign, chosen="done", most=1 << 60))


def mergeable_works(done_units: Iterable[Unit]) -> list[FinishedWork]:
    """Return the changes of those of the done units that have one in git."""
    results = ((unit, unit.result) for unit in done_units)
    return [
        finished_work(unit)
        for unit, each in results
        if None not in (each.workspace, each.branch, each.commit, each.base, each.repository)
    ]


MOST_PAIRS: Final = 4000
"""Pairs of branches that are tried. A pair takes about a millisecond, so a report is late by seconds at most."""


class CampaignConflicts(ConflictReport, frozen=True, kw_only=True):
    """The conflicts of a campaign. `problems` state why some of its finished units were not tried."""

    problems: tuple[str, ...] = ()


def read_conflicts(store: Store, name: str, *, most_pairs: int = MOST_PAIRS) -> CampaignConflicts | None:
    """Return the conflicts of a campaign; None if no unit of it has finished work in git."""
    works = [] if find_campaign(store, name).workspace is None else finished_works(store, name)
    by_repository: dict[str, list[FinishedWork]] = defaultdict(list)
    for work in works:
        by_repository[work.repository].append(work)
    found = CampaignConflicts()
    for chosen in by_repository.values():
        try:
            report = conflict_report(chosen, most_pairs=max(0, most_pairs - found.pairs_tried))
        except (PacelineError, OSError) as error:
            problem = printable(f"{len(chosen)} finished units were not tried: {error}")
            found = msgspec.structs.replace(found, problems=(*found.problems, problem))
            continue
        found = CampaignConflicts(
            conflicts=(*found.conflicts, *map(_printable, report.conflicts)),
            pairs_tried=found.pairs_tried + report.pairs_tried,
            missing=(*found.missing, *report.missing),
            is_complete=found.is_complete and report.is_complete,
            problems=found.problems,
        )
    return found if works else None


def _printable(conflict: Conflict) -> Conflict:
    return msgspec.structs.replace(conflict, paths=tuple(printable(path) for path in conflict.paths))
