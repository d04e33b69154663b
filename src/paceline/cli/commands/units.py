"""Units and their work: `units`, `show` and `apply`."""

import os
import shlex
import time
from typing import Annotated, Final, get_args

import typer
from rich.text import Text

from paceline.agents.account import login_text
from paceline.cli.main import NOT_ALL_DONE
from paceline.cli.options import AsJson, CampaignName, Target, UnitName, find_target, find_unit
from paceline.cli.output import (
    STATE_STYLES,
    change_text,
    cost_text,
    counted,
    lost_text,
    one_line,
    print_table,
    print_value,
    say,
    table,
    tokens_text,
)
from paceline.core.unit_lifecycle import UnitState
from paceline.daemon.home import open_home
from paceline.daemon.times import relative, span_text
from paceline.engine.commands import find_campaign
from paceline.engine.session.unit_results import this_host
from paceline.errors import InvalidInput
from paceline.settings.documents import nearest
from paceline.store import CheckRound, Store, Unit
from paceline.views.status import total_units
from paceline.views.unit_changes import finished_work, finished_works
from paceline.views.units import UnitFilter, UnitView, iter_units, phase_of, unit_view
from paceline.workspaces.merges import (
    ConflictReport,
    FinishedWork,
    MergeResult,
    conflict_report,
    merge_works,
    undo_merges,
)

# -- units --------------------------------------------------------------------------------------------

MOST_SHOWN = 100
"""A table for a person; programs get all units with --json."""
STATES: Final[tuple[UnitFilter, ...]] = ("waiting", "parked", *get_args(UnitState))
OTHER_WORDS: Final[dict[str, UnitFilter]] = {
    "failed": "quarantined",
    "error": "quarantined",
    "paused": "held",
    "blocked": "held",
    "pending": "waiting",
    "queued": "waiting",
    "ready": "waiting",
    "active": "running",
    "finished": "done",
    "completed": "done",
    "succeeded": "done",
    "aborted": "cancelled",
}
"""What people call these states elsewhere."""


def _parse_state(word: str) -> UnitFilter:
    """Return the state of this name. The error for another word names the one that was probably meant."""
    for state in STATES:
        if word.lower() == state:
            return state
    meant = OTHER_WORDS.get(word.lower()) or nearest(word, STATES)
    hint = f"; did you mean {meant}?" if meant else "."
    raise typer.BadParameter(f"{word!r:.60} is not a state of units{hint} The states are {', '.join(STATES)}.")


def _complete_state(incomplete: str) -> list[str]:
    return [state for state in STATES if state.startswith(incomplete)]


def units_command(
    campaign: CampaignName,
    state: Annotated[
        UnitFilter | None,
        typer.Option(
            parser=_parse_state,
            metavar="|".join(STATES),
            help="Only units in this state. A unit that failed for good is quarantined.",
            autocompletion=_complete_state,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many.", show_default="100; all with --json")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the units of a campaign with state, attempts and reason. Only real failures count as attempts."""
    with open_home() as home:
        name = find_campaign(home.store, campaign).name
        most = limit or (1 << 60 if as_json else MOST_SHOWN)
        units = list(iter_units(home.store, campaign=name, chosen=state, most=most))
        total = total_units(home.store.counts()[name])
    if as_json:
        print_value({"units": [unit_view(unit) for unit in units]})
        return
    _print_units(units, time.time())
    if len(units) < total:
        say(f"{len(units)} of {total:,} units; --state running|todo|done|… and --limit N choose others.", style="dim")


def _print_units(units: list[Unit], now: float) -> None:
    made = table("unit", "state", "attempts", "tries", "account", "since", "reason", right=("attempts", "tries"))
    for unit in units:
        phase = phase_of(unit)
        since = unit.started_at if unit.state == "running" else unit.ended_at
        made.add_row(
            one_line(unit.spec.id, 60),
            Text(phase, style=STATE_STYLES.get(phase, "")),
            str(unit.counters.failures),
            str(unit.counters.attempts),
            login_text(unit.account or ""),
            relative(since - now) if since else "",
            _reason(unit, now),
        )
    print_table(made)


def _reason(unit: Unit, now: float) -> str:
    if unit.resume_at is not None:
        return f"{one_line(unit.reason, 80)}; again {relative(unit.resume_at - now)}"
    return "" if unit.state == "done" else one_line(unit.reason, 100)


# -- show ---------------------------------------------------------------------------------------------


def show_command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what a unit did: its final answer, its checks, its change, its tokens and its cost, over all attempts."""
    with open_home() as home:
        found = find_unit(home.store, unit)
        view, phase = unit_view(found), phase_of(found)
    if as_json:
        print_value(view)
        return
    doing = f" ({view.phase})" if view.phase is not None else ""
    say(f"{view.id} is {phase}{doing}", style=f"bold {STATE_STYLES.get(phase, '')}".strip())
    for name, value in _facts(view):
        say(f"  {name:<10}{value}")
    for number, check in enumerate(view.checks, 1):
        say("")
        say(f"Check {number}: {_verdict(check)} after {span_text(check.seconds)}", style="bold")
        if check.tail:
            say(check.tail.rstrip())
    if view.answer is not None:
        say("")
        say("Answer", style="bold")
        say(view.answer)
    elif view.tries:
        say("")
        say(f"It has no answer; paceline logs {view.id} shows its last output.", style="dim")


def _facts(view: UnitView) -> list[tuple[str, str]]:
    has_worked = view.ran_seconds > 0 or view.tokens is not None
    agent = " ".join(filter(None, (view.agent, view.model, view.account and f"on {view.account}")))
    worker = ", ".join(filter(None, (agent, view.host and f"host {view.host}")))
    reason = "" if view.state == view.reason == "done" else one_line(view.reason)
    facts = [("reason", reason), ("agent", worker)]
    if has_worked and view.agent != "command":
        facts += [
            ("tokens", tokens_text(view.tokens)),
            ("cost", cost_text(view.cost)),
            ("context", "" if view.context_tokens is None else f"{view.context_tokens:,} tokens"),
            ("turns", "unknown" if view.turns is None else f"{view.turns:,}"),
        ]
    if has_worked:
        parked = f", {span_text(view.parked_seconds)} of it parked" if view.parked_seconds else ""
        facts.append(("time", f"worked {span_text(view.ran_seconds)}, waited {span_text(view.waited_seconds)}{parked}"))
    if view.lost_tokens:
        facts.append(("parking", lost_text(view.lost_tokens, view.lost_tokens_estimated)))
    if view.files_changed is not None:
        facts.append(("change", change_text(view.files_changed, view.lines_added, view.lines_removed)))
    is_here = view.host in (None, this_host())
    where = f" (on {view.host})" if not is_here else "" if os.path.isdir(view.workspace or "") else " (removed)"
    facts.append(("workspace", f"{view.workspace}{where}" if view.workspace else ""))
    facts += [
        ("branch", view.branch or ""),
        ("commit", view.commit or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _verdict(check: CheckRound) -> str:
    if check.reason is not None:
        return one_line(check.reason)
    return "passed" if check.exit_code == 0 else f"failed (exit code {check.exit_code})"


# -- apply --------------------------------------------------------------------------------------------

MOST_PATHS = 5
"""How many paths of a conflict are printed; JSON has all of them."""


def apply_command(
    target: Target,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Merge nothing; show what would be merged, and every conflict.")
    ] = False,
    is_undo: Annotated[bool, typer.Option("--undo", help="Take the last application back.")] = False,
    stop_at_conflict: Annotated[
        bool, typer.Option("--stop-at-conflict", help="Try no unit after the first one that conflicts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Merge the work of a done unit, or of all done units of a campaign, into the branch that you have checked out.

    Units are merged in the order of the plan. Those that conflict are left out and listed, so your tree has no conflict
    markers. Merge them by hand.
    """
    if is_undo and (is_dry_run or stop_at_conflict):
        raise InvalidInput(f"--undo and {'--dry-run' if is_dry_run else '--stop-at-conflict'} exclude each other")
    with open_home() as home:
        works = _chosen(home.store, target)
    by_repository: dict[str, list[FinishedWork]] = {}
    for work in works:
        by_repository.setdefault(work.repository, []).append(work)
    if is_undo:
        results = [undo_merges(top, chosen[-1].git) for top, chosen in by_repository.items()]
        report = None
    else:
        report = conflict_report(works) if is_dry_run else None
        results = [
            merge_works(top, chosen, dry_run=is_dry_run, stop_at_conflict=stop_at_conflict)
            for top, chosen in by_repository.items()
        ]
    is_clean = not any(result.conflicts for result in results)
    if as_json:
        verb = {"dry_run": is_dry_run, "undo": is_undo}
        print_value({"ok": is_clean, **verb, "repositories": results, "report": report})
    else:
        _print(results, report, works, is_undo=is_undo, is_stopped=stop_at_conflict)
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
    results: list[MergeResult],
    report: ConflictReport | None,
    works: list[FinishedWork],
    *,
    is_undo: bool,
    is_stopped: bool,
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
        for conflict in result.conflicts:
            verb = "stopped at" if is_stopped else "left out"
            say(f"{verb} {conflict.unit}: it conflicts in {_path_list(conflict.paths)}", style="bold yellow")
            if result.remaining:
                say(f"{counted(len(result.remaining), 'unit')} after it: not tried")
            end = "resolve, commit, and run this command again" if is_stopped else "resolve, and commit"
            say(f"to do: git -C {shlex.quote(result.repository)} merge {branches[conflict.unit]}   # {end}")
    if report is not None:
        _print_report(report)


def _print_report(report: ConflictReport) -> None:
    if not report.conflicts:
        say(f"no conflicts ({counted(report.pairs_tried, 'pair')} tried)")
    for conflict in report.conflicts:
        other = conflict.other or "the branch that is checked out"
        say(f"conflict: {conflict.unit} and {other}: {_path_list(conflict.paths)}")
    for unit in report.missing:
        say(f"missing: the commit of {unit} is no longer in its repository", style="bold yellow")
    if not report.is_complete:
        say(f"only the first {report.pairs_tried} pairs were tried", style="dim")


def _path_list(paths: tuple[str, ...]) -> str:
    shown = ", ".join(one_line(path) for path in paths[:MOST_PATHS])
    more = len(paths) - MOST_PATHS
    return f"{shown} and {more} more" if more > 0 else shown
