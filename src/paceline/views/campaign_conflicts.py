"""The conflicts between the finished branches of a campaign, and with what is checked out, for its report.

It never fails: a report for the morning is wanted also where a repository is gone.
"""

from collections import defaultdict
from typing import Final

import msgspec

from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import PacelineError
from paceline.store import Store
from paceline.views.safe_text import printable
from paceline.views.unit_changes import finished_works
from paceline.workspaces.conflicts import Conflict, FinishedWork, conflict_report

MOST_PAIRS: Final = 4000
"""Pairs of branches that are tried. A pair takes about a millisecond, so a report is late by seconds at most."""


class CampaignConflicts(msgspec.Struct, frozen=True, kw_only=True):
    """The conflicts of a campaign. `missing` are units whose commit is gone; `problems` state why some were not tried.

    With too many pairs, `is_complete` is False.
    """

    conflicts: tuple[Conflict, ...] = ()
    pairs_tried: int = 0
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_complete: bool = True


def read_conflicts(store: Store, name: str, *, most_pairs: int = MOST_PAIRS) -> CampaignConflicts | None:
    """Return the conflicts of a campaign; None if no unit of it has finished work in git."""
    works = [] if find_campaign(store, name).workspace is None else finished_works(store, name)
    by_repository: dict[str, list[FinishedWork]] = defaultdict(list)
    for work in works:
        by_repository[work.repository].append(work)
    found = CampaignConflicts()
    for chosen in by_repository.values():
        found = _with_repository(found, chosen, most_pairs=max(0, most_pairs - found.pairs_tried))
    return found if works else None


def _with_repository(found: CampaignConflicts, works: list[FinishedWork], *, most_pairs: int) -> CampaignConflicts:
    try:
        report = conflict_report(works, most_pairs=most_pairs)
    except (PacelineError, OSError) as error:
        problem = printable(f"{len(works)} finished units were not tried: {error}")
        return msgspec.structs.replace(found, problems=(*found.problems, problem))
    return msgspec.structs.replace(
        found,
        conflicts=(*found.conflicts, *map(_printable, report.conflicts)),
        pairs_tried=found.pairs_tried + report.pairs_tried,
        missing=(*found.missing, *report.missing),
        is_complete=found.is_complete and report.is_complete,
    )


def _printable(conflict: Conflict) -> Conflict:
    return msgspec.structs.replace(conflict, paths=tuple(printable(path) for path in conflict.paths))
