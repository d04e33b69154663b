"""`apply UNIT|CAMPAIGN`: merge finished work into what is checked out, take that back, or show what would conflict."""

import shlex
from typing import Annotated

import typer

from paceline.cli.control import counted
from paceline.cli.options import AsJson, Target
from paceline.cli.output import NOT_ALL_DONE, one_line, print_value, say
from paceline.cli.unit_lookup import find_target
from paceline.cli.wiring import open_home
from paceline.errors import InvalidInput
from paceline.store import Store, Unit
from paceline.views.unit_changes import finished_work, finished_works
from paceline.workspaces.conflicts import Conflict, ConflictReport, FinishedWork, conflict_report
from paceline.workspaces.merges import MergeResult, merge_works, undo_merges

MOST_PATHS = 5
"""How many paths of a conflict are printed; JSON has all of them."""


def command(
    target: Target,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Merge nothing; show what would be merged, and every conflict.")
    ] = False,
    is_undo: Annotated[bool, typer.Option("--undo", help="Take the last application back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Merge the work of a done unit, or of all done units of a campaign, into the branch that you have checked out.

    Units are merged in the order of the plan. It stops before the first conflict: what was merged until then stays, and
    your tree has no conflict markers. Merge that unit by hand, and run the command again.
    """
    if is_dry_run and is_undo:
        raise InvalidInput("--dry-run and --undo exclude each other")
    with open_home() as home:
        works = _chosen(home.store, target)
    by_repository: dict[str, list[FinishedWork]] = {}
    for work in works:
        by_repository.setdefault(work.repository, []).append(work)
    if is_undo:
        results = [undo_merges(top) for top in by_repository]
        report = None
    else:
        report = conflict_report(works) if is_dry_run else None
        results = [merge_works(top, chosen, dry_run=is_dry_run) for top, chosen in by_repository.items()]
    is_clean = all(result.conflict is None for result in results)
    if as_json:
        verb = {"dry_run": is_dry_run, "undo": is_undo}
        print_value({"ok": is_clean, **verb, "repositories": results, "report": report})
    else:
        _print(results, report, works, is_undo=is_undo)
    if not is_clean:
        raise typer.Exit(NOT_ALL_DONE)


def _chosen(store: Store, target: str) -> list[FinishedWork]:
    found = find_target(store, target)
    if isinstance(found, Unit):
        return [finished_work(found)]
    works = finished_works(store, found.name)
    if not works:
        raise InvalidInput(f"no unit of {found.name} is done with a commit, so there is nothing to merge")
    return works


def _print(
    results: list[MergeResult], report: ConflictReport | None, works: list[FinishedWork], *, is_undo: bool
) -> None:
    branches = {work.unit: work.branch for work in works}
    for result in results:
        verb = "took back" if is_undo else "merged" if report is None else "would merge"
        place = f"{'from' if is_undo else 'into'} {result.branch} of {result.repository}"
        say(f"{verb} {counted(len(result.merged), 'unit')} {place} ({result.before[:12]} -> {result.after[:12]})")
        if result.in_the_way:
            shown = _path_list(result.in_the_way)
            say(f"not yet: commit or stash your changes in {shown}, which are in the way", style="bold yellow")
        if result.contained:
            say(f"{counted(len(result.contained), 'unit')} had been merged before", style="dim")
        if result.conflict is not None:
            _print_stop(result, result.conflict, branches[result.conflict.unit])
    if report is not None:
        _print_report(report)


def _print_stop(result: MergeResult, conflict: Conflict, branch: str | None) -> None:
    say(f"stopped at {conflict.unit}: it conflicts in {_paths(conflict)}", style="bold yellow")
    if result.remaining:
        say(f"{counted(len(result.remaining), 'unit')} after it: not tried")
    say(
        f"to do: git -C {shlex.quote(result.repository)} merge {branch}   # resolve, commit, and run this command again"
    )


def _print_report(report: ConflictReport) -> None:
    if not report.conflicts:
        say(f"no conflicts ({counted(report.pairs_tried, 'pair')} tried)")
    for conflict in report.conflicts:
        other = conflict.other or "the branch that is checked out"
        say(f"conflict: {conflict.unit} and {other}: {_paths(conflict)}")
    for unit in report.missing:
        say(f"missing: the commit of {unit} is no longer in its repository", style="bold yellow")
    if not report.is_complete:
        say(f"only the first {report.pairs_tried} pairs were tried", style="dim")


def _paths(conflict: Conflict) -> str:
    return _path_list(conflict.paths)


def _path_list(paths: tuple[str, ...]) -> str:
    shown = ", ".join(one_line(path) for path in paths[:MOST_PATHS])
    more = len(paths) - MOST_PATHS
    return f"{shown} and {more} more" if more > 0 else shown
