"""Units and their work: `units`, `show`, `apply`; of a whole campaign `results` and `summary`, the morning report."""

import csv
import html
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.text import Text

from paceline.agents.account import login_text
from paceline.cli import output
from paceline.cli.main import NOT_ALL_DONE
from paceline.cli.output import flag, option
from paceline.core.unit_lifecycle import UnitState
from paceline.daemon.home import Home, open_home
from paceline.daemon.times import absolute, relative, span_text
from paceline.engine.commands import find_campaign
from paceline.engine.settings import this_host
from paceline.errors import InvalidInput
from paceline.settings.checks import nearest
from paceline.store import CheckRound, Cost, Store, Unit
from paceline.views.campaign_report import CampaignReport, read_report
from paceline.views.unit_changes import CampaignConflicts, finished_work, finished_works, read_conflicts
from paceline.views.units import (
    ListedUnit,
    ResultRow,
    UnitFilter,
    UnitView,
    iter_results,
    iter_results_with_answers,
    iter_units,
    phase_of,
    unit_view,
)
from paceline.workspaces import merges

# -- units --------------------------------------------------------------------------------------------

MOST_SHOWN = 100
"""A table for a person; the forms for programs have all units."""
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


def units_command(
    campaign: output.CampaignName,
    state: Annotated[
        UnitFilter | None,
        option(
            "|".join(STATES),
            "Only units in this state. A unit that failed for good is quarantined.",
            parser=_parse_state,
            autocompletion=lambda incomplete: [state for state in STATES if state.startswith(incomplete)],
        ),
    ] = None,
    limit: Annotated[int | None, option(None, "At most this many.", min=1, show_default="100; all with --json")] = None,
    as_json: output.AsJson = False,
) -> None:
    """List the units of a campaign with state, attempts and reason. Only real failures count as attempts."""
    with open_home() as home:
        name = find_campaign(home.store, campaign).name
        most = limit or (1 << 60 if as_json else MOST_SHOWN)
        units = list(iter_units(home.store, campaign=name, chosen=state, most=most))
        total = home.store.counts()[name].total
    if as_json:
        output.print_value({"units": [unit_view(unit) for unit in units]})
        return
    _print_units(units, time.time())
    if len(units) < total:
        output.say(
            f"{len(units)} of {total:,} units; --state running|todo|done|… and --limit N choose others.", style="dim"
        )


def _print_units(units: list[Unit], now: float) -> None:
    made = output.table("unit", "state", "attempts", "tries", "account", "since", "reason", right=("attempts", "tries"))
    for unit in units:
        phase = phase_of(unit)
        since = unit.started_at if unit.state == "running" else unit.ended_at
        made.add_row(
            output.one_line(unit.spec.id, 60),
            Text(phase, style=output.STATE_STYLES.get(phase, "")),
            str(unit.counters.failures),
            str(unit.counters.attempts),
            login_text(unit.account or ""),
            relative(since - now) if since else "",
            _reason(unit, now),
        )
    output.print_table(made)


def _reason(unit: Unit, now: float) -> str:
    if unit.resume_at is not None:
        return f"{output.one_line(unit.reason, 80)}; again {relative(unit.resume_at - now)}"
    return "" if unit.state == "done" else output.one_line(unit.reason, 100)


# -- show ---------------------------------------------------------------------------------------------


def show_command(unit: output.UnitName, as_json: output.AsJson = False) -> None:
    """Show what a unit did: its final answer, its checks, its change, its tokens and its cost, over all attempts."""
    with open_home() as home:
        found = output.find_unit(home.store, unit)
        view, phase = unit_view(found), phase_of(found)
    if as_json:
        output.print_value(view)
        return
    doing = f" ({view.phase})" if view.phase is not None else ""
    output.say(f"{view.id} is {phase}{doing}", style=f"bold {output.STATE_STYLES.get(phase, '')}".strip())
    for name, value in _facts(view):
        output.say(f"  {name:<10}{value}")
    for number, check in enumerate(view.checks, 1):
        output.say("")
        output.say(f"Check {number}: {_verdict(check)}", style="bold")
        if check.tail:
            output.say(check.tail.rstrip())
    if view.answer is not None:
        output.say("")
        output.say("Answer", style="bold")
        output.say(view.answer)
    elif view.tries:
        output.say("")
        output.say(f"It has no answer; paceline logs {view.id} shows its last output.", style="dim")


def _facts(view: UnitView) -> list[tuple[str, str]]:
    has_worked = view.ran_seconds > 0 or view.tokens is not None
    agent = " ".join(filter(None, (view.agent, view.model, view.account and f"on {view.account}")))
    worker = ", ".join(filter(None, (agent, view.host and f"host {view.host}")))
    reason = "" if view.state == view.reason == "done" else output.one_line(view.reason)
    facts = [("reason", reason), ("agent", worker)]
    if has_worked and view.agent != "command":
        facts += [
            ("tokens", output.tokens_text(view.tokens)),
            ("cost", output.cost_text(view.cost)),
            ("context", "" if view.context_tokens is None else f"{view.context_tokens:,} tokens"),
            ("turns", "unknown" if view.turns is None else f"{view.turns:,}"),
        ]
    if has_worked:
        parked = f", {span_text(view.parked_seconds)} of it parked" if view.parked_seconds else ""
        facts.append(("time", f"worked {span_text(view.ran_seconds)}, waited {span_text(view.waited_seconds)}{parked}"))
    if view.lost_tokens:
        facts.append(("parking", output.lost_text(view.lost_tokens, view.lost_tokens_estimated)))
    if view.files_changed is not None:
        facts.append(("change", output.change_text(view.files_changed, view.lines_added, view.lines_removed)))
    is_here = view.host in (None, this_host())
    is_gone = "removed" if view.state == "done" else "not there"
    where = f" (on {view.host})" if not is_here else "" if os.path.isdir(view.workspace or "") else f" ({is_gone})"
    facts.append(("workspace", f"{view.workspace}{where}" if view.workspace else ""))
    facts += [
        ("branch", view.branch or ""),
        ("commit", view.commit or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _verdict(check: CheckRound) -> str:
    if check.reason is not None:
        return output.one_line(check.reason)
    ending = "passed" if check.exit_code == 0 else f"failed (exit code {check.exit_code})"
    return f"{ending} after {span_text(check.seconds)}"


# -- apply --------------------------------------------------------------------------------------------

MOST_PATHS = 5
"""Paths of a conflict that are printed; JSON has all of them."""


def apply_command(
    target: output.Target,
    is_dry_run: Annotated[
        bool, flag("Merge nothing; show what would be merged, and every conflict.", "--dry-run")
    ] = False,
    is_undo: Annotated[bool, flag("Take the last application back.", "--undo")] = False,
    stop_at_conflict: Annotated[
        bool, flag("Try no unit after the first one that conflicts.", "--stop-at-conflict")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Merge the work of a done unit, or of all done units of a campaign, into the branch that you have checked out.

    Units are merged in the order of the plan. Those that conflict are left out and listed, so your tree has no conflict
    markers. Merge them by hand.
    """
    if is_undo and (is_dry_run or stop_at_conflict):
        raise InvalidInput(f"--undo and {'--dry-run' if is_dry_run else '--stop-at-conflict'} exclude each other")
    with open_home() as home:
        works = _chosen(home.store, target)
    by_repository: dict[str, list[merges.FinishedWork]] = {}
    for work in works:
        by_repository.setdefault(work.repository, []).append(work)
    if is_undo:
        results = [merges.undo_merges(top, chosen[-1].git) for top, chosen in by_repository.items()]
        report = None
    else:
        report = merges.conflict_report(works) if is_dry_run else None
        results = [
            merges.merge_works(top, chosen, dry_run=is_dry_run, stop_at_conflict=stop_at_conflict)
            for top, chosen in by_repository.items()
        ]
    is_clean = not any(result.conflicts for result in results)
    if as_json:
        verb = {"dry_run": is_dry_run, "undo": is_undo}
        output.print_value({"ok": is_clean, **verb, "repositories": results, "report": report})
    else:
        _print(results, report, works, is_undo=is_undo, is_stopped=stop_at_conflict)
    if not is_clean:
        raise typer.Exit(NOT_ALL_DONE)


def _chosen(store: Store, target: str) -> list[merges.FinishedWork]:
    found = output.find_target(store, target)
    if isinstance(found, Unit):
        return [finished_work(found)]
    works = finished_works(store, found.name)
    if not works:
        raise InvalidInput(f"no unit of {found.name} is done with a commit, so there is nothing to merge")
    return works


def _print(
    results: list[merges.MergeResult],
    report: merges.ConflictReport | None,
    works: list[merges.FinishedWork],
    *,
    is_undo: bool,
    is_stopped: bool,
) -> None:
    branches = {work.unit: work.branch for work in works}
    for result in results:
        verb = "took back" if is_undo else "merged" if report is None else "would merge"
        place = f"{'from' if is_undo else 'into'} {result.branch} of {result.repository}"
        output.say(
            f"{verb} {output.counted(len(result.merged), 'unit')} {place} ({result.before[:12]} -> {result.after[:12]})"
        )
        if result.in_the_way:
            shown = _path_list(result.in_the_way)
            output.say(f"not yet: commit or stash your changes in {shown}, which are in the way", style="bold yellow")
        if result.contained:
            output.say(f"{output.counted(len(result.contained), 'unit')} had been merged before", style="dim")
        for conflict in result.conflicts:
            verb = "stopped at" if is_stopped else "left out"
            output.say(f"{verb} {conflict.unit}: it conflicts in {_path_list(conflict.paths)}", style="bold yellow")
            if result.remaining:
                output.say(f"{output.counted(len(result.remaining), 'unit')} after it: not tried")
            end = "resolve, commit, and run this command again" if is_stopped else "resolve, and commit"
            output.say(f"to do: git -C {shlex.quote(result.repository)} merge {branches[conflict.unit]}   # {end}")
    if report is not None:
        _print_report(report)


def _print_report(report: merges.ConflictReport) -> None:
    if not report.conflicts:
        output.say(f"no conflicts ({output.counted(report.pairs_tried, 'pair')} tried)")
    for conflict in report.conflicts:
        other = conflict.other or "the branch that is checked out"
        output.say(f"conflict: {conflict.unit} and {other}: {_path_list(conflict.paths)}")
    for unit in report.missing:
        output.say(f"missing: the commit of {unit} is no longer in its repository", style="bold yellow")
    if not report.is_complete:
        output.say(f"only the first {report.pairs_tried} pairs were tried", style="dim")


def _path_list(paths: tuple[str, ...]) -> str:
    shown = ", ".join(output.one_line(path) for path in paths[:MOST_PATHS])
    more = len(paths) - MOST_PATHS
    return f"{shown} and {more} more" if more > 0 else shown


# -- results ------------------------------------------------------------------------------------------

NESTED = ("tokens", "cost")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def results_command(
    campaign: output.CampaignName,
    as_csv: Annotated[bool, flag("Print CSV, with a header.", "--csv")] = False,
    as_jsonl: Annotated[bool, flag("Print one JSON object per line, with the agent's answer.", "--jsonl")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Print one row per unit: state, model, tokens, cost, change, checks, and how long it waited and worked.

    The table shows the first 100 units. --csv, --jsonl and --json print all of them as they are read, so a campaign of
    100,000 units takes no more memory than a small one. What is not known is empty or null, never 0.
    """
    if as_csv + as_jsonl + as_json > 1:
        raise InvalidInput("choose one of --csv, --jsonl and --json")
    with open_home() as home:
        name = find_campaign(home.store, campaign).name
        if as_csv:
            _print_csv(iter_results(home.store, name))
        elif as_jsonl:
            for row in iter_results_with_answers(home.store, name):
                sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
        elif as_json:
            _print_json(name, iter_results(home.store, name))
        else:
            _print_table(home, name)


def _print_json(name: str, rows: Iterator[ResultRow]) -> None:
    """Print one JSON document row by row."""
    sys.stdout.write(f'{{"campaign": {msgspec.json.encode(name).decode()}, "results": [')
    separator = "\n  "
    for row in rows:
        sys.stdout.write(separator + msgspec.json.encode(row).decode())
        separator = ",\n  "
    sys.stdout.write("\n]}\n")


def _print_csv(rows: Iterator[ResultRow]) -> None:
    writer: Any = None
    for row in rows:
        values = _flat(row)
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(values), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _spreadsheet_cell(value) for name, value in values.items()})


def _flat(row: ResultRow) -> dict[str, object]:
    """Return the columns of a row. Tokens and cost have a column for each of their parts."""
    values: dict[str, object] = {}
    for name, value in msgspec.to_builtins(row).items():
        if name not in NESTED:
            values[name] = value
        elif name == "tokens":
            parts = value or dict.fromkeys(("input", "output", "cache_read", "cache_write"))
            values |= {f"tokens_{kind}": count for kind, count in parts.items()}
        else:
            values |= {f"cost_{kind}": amount for kind, amount in value.items()}
    return values


def _spreadsheet_cell(value: object) -> object:
    """Return the value for a spreadsheet. Text of an agent never becomes a formula there."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _print_table(home: Home, name: str) -> None:
    made = output.table(
        "unit", "state", "model", "turns", "tokens", "cost", "files", "checks", "worked", right=("turns", "tokens")
    )
    shown = lost = estimated = 0
    for row in iter_results(home.store, name, MOST_SHOWN):
        shown += 1
        lost, estimated = lost + row.lost_tokens, estimated + row.lost_tokens_estimated
        made.add_row(
            output.one_line(row.id, 60),
            Text(row.state, style=output.STATE_STYLES.get(row.state, "")),
            output.one_line(row.model, 30) or output.NOTHING,
            output.NOTHING if row.turns is None else f"{row.turns:,}",
            _tokens(row),
            output.cost_text(row.cost, is_used=_used_model(row)),
            output.NOTHING if row.files_changed is None else str(row.files_changed),
            _checks(row),
            span_text(row.ran_seconds) if row.ran_seconds else output.NOTHING,
        )
    output.print_table(made)
    if lost:
        output.say(f"Parking: {output.lost_text(lost, estimated)}.", style="dim")
    total = home.store.counts()[name].total
    if total > shown:
        output.say(f"{total - shown} more: --csv or --jsonl prints all of them.", style="dim")


def _tokens(row: ResultRow) -> str:
    if row.tokens is not None:
        return f"{row.tokens.total:,}"
    return output.UNKNOWN if _used_model(row) else output.NOTHING


def _used_model(row: ResultRow) -> bool:
    """Return whether an agent worked, so that there were tokens, known or not."""
    return row.ran_seconds > 0 and row.agent not in (None, "command")


def _checks(row: ResultRow) -> str:
    if not row.checks:
        return output.NOTHING
    return ("passed" if row.check_exit_code == 0 else "failed") + ("" if row.checks == 1 else f" ({row.checks})")


# -- summary ------------------------------------------------------------------------------------------


def summary_command(
    campaign: output.CampaignName,
    html: Annotated[Path | None, option(None, "Write one HTML page to this file.", "--html")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Print a report on a campaign as Markdown: done, needs you, cost, parking, conflicts, slowest, most expensive.

    With --html it writes a page that needs nothing else, for a browser or an attachment.
    """
    with open_home() as home:
        report = read_report(home.store, campaign)
        conflicts = read_conflicts(home.store, report.campaign)
        document = report_document(report, home.zone, time.time(), conflicts=conflicts)
    if html is not None:
        _write_page(html, page(document))
    if as_json:
        output.print_value({**msgspec.structs.asdict(report), "conflicts": conflicts})
    elif html is not None:
        output.say(f"wrote {html}")
    else:
        sys.stdout.write(markdown(document))


def _write_page(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}; name a file in a folder of yours") from error


LONGEST_CELL = 300
MOST_CONFLICTS = 20
"""As many as a person reads in a report; `apply --dry-run` has all."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table with a heading. `note` stands under it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


class ReportText(msgspec.Struct, frozen=True, kw_only=True):
    """A title, a sentence, facts by name, and tables."""

    title: str
    lead: str
    facts: list[tuple[str, str]]
    sections: list[Section]


# -- what the report has -------------------------------------------------------------------------


def report_document(
    report: CampaignReport, zone: ZoneInfo, now: float, *, conflicts: CampaignConflicts | None = None
) -> ReportText:
    """Return the report as a document. `conflicts` is None where nothing was finished in git."""
    sections = [*_needs_you(report), *_conflict_section(report, conflicts)]
    sections += [*_notable("Slowest units", report.slowest), *_notable("Most expensive units", report.most_expensive)]
    return ReportText(
        title=f"{report.campaign}: {headline(report)}",
        lead=f"Written by Paceline at {absolute(now, zone)}.",
        facts=[*_report_facts(report, zone), *_conflict_facts(conflicts)],
        sections=sections,
    )


def headline(report: CampaignReport) -> str:
    """Return how far the campaign is, in a few words."""
    units, total = report.units, report.units.total
    parts = [f"{units.done} of {total} done"]
    if stopped := units.stopped:
        parts.append(f"{stopped} need{'s' if stopped == 1 else ''} you")
    for count, word in ((units.running, "running"), (units.todo - units.parked, "waiting"), (units.parked, "parked")):
        if count:
            parts.append(f"{count} {word}")
    if units.cancelled:
        parts.append(f"{units.cancelled} cancelled")
    return ", ".join(parts)


def work_line(report: CampaignReport) -> str | None:
    """Return tokens, cost and parking in one line, or None where no unit used a model."""
    totals = report.totals
    if totals.tokens is None:
        return None
    cost = _total_cost(report)
    parts = [f"{totals.tokens.total:,} tokens", "cost unknown" if cost == "unknown" else cost]
    if totals.parks:
        parts.append(f"parked {_times(totals.parks)} for {span_text(totals.parked_seconds)}")
    if totals.lost_tokens:
        parts.append(output.lost_text(totals.lost_tokens, totals.lost_tokens_estimated))
    return ", ".join(parts)


def _report_facts(report: CampaignReport, zone: ZoneInfo) -> list[tuple[str, str]]:
    totals = report.totals
    begun, ended = report.first_started_at, report.last_ended_at
    facts = [("State", _state(report))]
    if begun is not None:
        facts.append(("Started", absolute(begun, zone)))
    if begun is not None and ended is not None and not (report.units.running or report.units.todo):
        facts.append(("Ended", f"{absolute(ended, zone)}, after {span_text(max(0.0, ended - begun))}"))
    facts += [
        ("Cost", _total_cost(report)),
        ("Tokens", output.tokens_text(totals.tokens)),
        ("Attempts", f"{totals.tries:,}" + ("" if totals.turns is None else f", with {totals.turns:,} turns")),
        ("Worked", span_text(totals.ran_seconds)),
        ("Lost to parking", _parking(report)),
    ]
    if totals.files_changed is not None:
        facts.append(("Changed", output.change_text(totals.files_changed, totals.lines_added, totals.lines_removed)))
    return facts


def _state(report: CampaignReport) -> str:
    """Return the state of the campaign in words. An active campaign with nothing left to run has finished."""
    if report.pause_reason is not None:
        return f"paused itself: {report.pause_reason}"
    is_over = report.state == "active" and not (report.units.todo or report.units.running)
    return "finished" if is_over else report.state


def _total_cost(report: CampaignReport) -> str:
    totals = report.totals
    text = output.cost_text(totals.cost, is_used=totals.tries > 0)
    if totals.unpriced and totals.cost != Cost():
        text += f", without {totals.unpriced} unit{'' if totals.unpriced == 1 else 's'} whose cost is unknown"
    return text


def _parking(report: CampaignReport) -> str:
    totals = report.totals
    if not totals.parks:
        return "nothing"
    lost = f"; {output.lost_text(totals.lost_tokens, totals.lost_tokens_estimated)}" if totals.lost_tokens else ""
    return f"{span_text(totals.parked_seconds)} over all units, parked {_times(totals.parks)}{lost}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _needs_you(report: CampaignReport) -> Iterator[Section]:
    count = report.units.stopped
    if not count:
        return
    rows = [(unit.id, unit.state, unit.reason or output.NOTHING) for unit in report.needs_you]
    more = "" if count == len(rows) else f"{count - len(rows)} more: `paceline units {report.campaign}`. "
    hint = "`paceline show UNIT` shows the work, `paceline retry UNIT` tries it again"
    if report.units.unverified:
        hint += ", `paceline accept UNIT` takes an unverified one as done"
    yield Section(title="Needs you", columns=("unit", "state", "why"), rows=rows, note=f"{more}{hint}.")


def _conflict_facts(found: CampaignConflicts | None) -> Iterator[tuple[str, str]]:
    if found is None:
        return
    count = len(found.conflicts)
    parts = [f"{count:,}" if count else "none: all finished work can be merged"]
    if found.missing:
        commits = (
            "the commit of 1 unit is" if len(found.missing) == 1 else f"the commits of {len(found.missing)} units are"
        )
        parts = [f"{count:,} among the commits that are there; {commits} gone"]
    if not found.is_complete:
        parts = [f"{count:,} among the first {found.pairs_tried:,} pairs of branches; the others were not tried"]
    if found.problems:
        parts = [*(parts if count else ()), *(f"unknown: {problem}" for problem in found.problems)]
    yield "Conflicts", "; ".join(parts)


def _conflict_section(report: CampaignReport, found: CampaignConflicts | None) -> Iterator[Section]:
    if found is None or not (found.conflicts or found.missing):
        return
    rows = [
        (each.unit, each.other or "what is checked out", ", ".join(each.paths[:MOST_PATHS])) for each in found.conflicts
    ]
    rows += [(unit, output.NOTHING, "its commit is gone from the repository") for unit in found.missing]
    more = f"{len(rows) - MOST_CONFLICTS:,} more. " if len(rows) > MOST_CONFLICTS else ""
    note = f"{more}`paceline apply {report.campaign} --dry-run` lists all of them and merges nothing."
    columns = ("unit", "conflicts with", "in")
    yield Section(title="Conflicts", columns=columns, rows=rows[:MOST_CONFLICTS], note=note)


def _notable(title: str, units: list[ListedUnit]) -> Iterator[Section]:
    if units:
        rows = [(unit.id, unit.state, span_text(unit.ran_seconds), output.cost_text(unit.cost)) for unit in units]
        yield Section(title=title, columns=("unit", "state", "worked", "cost"), rows=rows)


# -- the two ways to write it --------------------------------------------------------------------


def markdown(document: ReportText) -> str:
    """Return the document as Markdown. Text of agents cannot become markup in it."""
    lines = [f"# {_markdown_text(document.title)}", "", document.lead, ""]
    lines += [f"- **{name}**: {_markdown_text(value)}" for name, value in document.facts]
    for section in document.sections:
        lines += ["", f"## {section.title}", ""]
        lines += [_markdown_row(section.columns), _markdown_row(("---",) * len(section.columns))]
        lines += [_markdown_row([_markdown_text(cell) for cell in row]) for row in section.rows]
        if section.note:
            lines += ["", section.note]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


_MARKUP = re.compile(r"([\\`*\[\]<>|~]|(?<!\w)_|_(?!\w))")
"""What could become markup within a line. An underscore within a word cannot, and ids are easier to copy without."""


def _markdown_text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", output.one_line(text, LONGEST_CELL))


STYLE = """
:root { color-scheme: light dark; --line: #8884; --muted: #777; --accent: #2563eb; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 2px solid var(--accent); padding-bottom: .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; } td:first-child { font-family: ui-monospace, monospace; }
.note, .lead { color: var(--muted); }
""".strip()


def page(document: ReportText) -> str:
    """Return the document as one HTML page. It has no script and loads nothing."""
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{html.escape(document.title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>",
        f'<h1>{html.escape(document.title)}</h1>\n<p class="lead">{html.escape(document.lead)}</p>\n<dl>',
        *(
            f"<dt>{html.escape(name)}</dt><dd>{html.escape(output.one_line(value, LONGEST_CELL))}</dd>"
            for name, value in document.facts
        ),
        "</dl>",
        *(part for section in document.sections for part in _page_section(section)),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _page_section(section: Section) -> Iterator[str]:
    yield f"<h2>{html.escape(section.title)}</h2>\n<table>\n<thead><tr>"
    yield "".join(f"<th>{html.escape(column)}</th>" for column in section.columns) + "</tr></thead>\n<tbody>"
    for row in section.rows:
        yield "<tr>" + "".join(f"<td>{html.escape(output.one_line(cell, LONGEST_CELL))}</td>" for cell in row) + "</tr>"
    yield "</tbody>\n</table>"
    if section.note:
        yield f'<p class="note">{html.escape(section.note.replace("`", ""))}</p>'
