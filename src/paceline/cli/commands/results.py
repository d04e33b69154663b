"""What a campaign has done: `results`, one row per unit, and `summary`, the report for the morning.

The report is Markdown, or one HTML page without anything from outside.
"""

import csv
import html
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.text import Text

from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import (
    NOTHING,
    STATE_STYLES,
    UNKNOWN,
    change_text,
    cost_text,
    lost_text,
    one_line,
    print_table,
    print_value,
    say,
    table,
    tokens_text,
)
from paceline.daemon.home import Home, open_home
from paceline.daemon.times import absolute, span_text
from paceline.engine.commands import find_campaign
from paceline.errors import InvalidInput
from paceline.store import Cost
from paceline.views.campaign_report import CampaignReport, read_report
from paceline.views.status import stopped_units, total_units
from paceline.views.unit_changes import CampaignConflicts, read_conflicts
from paceline.views.units import ListedUnit, ResultRow, iter_results, iter_results_with_answers

# -- results ------------------------------------------------------------------------------------------

MOST_SHOWN = 100
"""A table for a person; the other forms have all units."""
NESTED = ("tokens", "cost")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def results_command(
    campaign: CampaignName,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a header.")] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object per line, with the agent's answer.")
    ] = False,
    as_json: AsJson = False,
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
    made = table(
        "unit", "state", "model", "turns", "tokens", "cost", "files", "checks", "worked", right=("turns", "tokens")
    )
    shown = lost = estimated = 0
    for row in iter_results(home.store, name, MOST_SHOWN):
        shown += 1
        lost, estimated = lost + row.lost_tokens, estimated + row.lost_tokens_estimated
        made.add_row(
            one_line(row.id, 60),
            Text(row.state, style=STATE_STYLES.get(row.state, "")),
            one_line(row.model, 30) or NOTHING,
            NOTHING if row.turns is None else f"{row.turns:,}",
            _tokens(row),
            cost_text(row.cost, is_used=_used_model(row)),
            NOTHING if row.files_changed is None else str(row.files_changed),
            _checks(row),
            span_text(row.ran_seconds) if row.ran_seconds else NOTHING,
        )
    print_table(made)
    if lost:
        say(f"Parking: {lost_text(lost, estimated)}.", style="dim")
    total = total_units(home.store.counts()[name])
    if total > shown:
        say(f"{total - shown} more: --csv or --jsonl prints all of them.", style="dim")


def _tokens(row: ResultRow) -> str:
    if row.tokens is not None:
        return f"{row.tokens.total:,}"
    return UNKNOWN if _used_model(row) else NOTHING


def _used_model(row: ResultRow) -> bool:
    """Return whether an agent worked, so that there were tokens, known or not."""
    return row.ran_seconds > 0 and row.agent not in (None, "command")


def _checks(row: ResultRow) -> str:
    if not row.checks:
        return NOTHING
    return ("passed" if row.check_exit_code == 0 else "failed") + ("" if row.checks == 1 else f" ({row.checks})")


# -- summary ------------------------------------------------------------------------------------------


def summary_command(
    campaign: CampaignName,
    html: Annotated[Path | None, typer.Option("--html", help="Write one HTML page to this file.")] = None,
    as_json: AsJson = False,
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
        print_value({**msgspec.structs.asdict(report), "conflicts": conflicts})
    elif html is not None:
        say(f"wrote {html}")
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
MOST_PATHS = 5


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
        facts=[*_facts(report, zone), *_conflict_facts(conflicts)],
        sections=sections,
    )


def headline(report: CampaignReport) -> str:
    """Return how far the campaign is, in a few words."""
    units, total = report.units, total_units(report.units)
    parts = [f"{units.done} of {total} done"]
    if stopped := stopped_units(units):
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
        parts.append(lost_text(totals.lost_tokens, totals.lost_tokens_estimated))
    return ", ".join(parts)


def _facts(report: CampaignReport, zone: ZoneInfo) -> list[tuple[str, str]]:
    totals = report.totals
    begun, ended = report.first_started_at, report.last_ended_at
    facts = [("State", _state(report))]
    if begun is not None:
        facts.append(("Started", absolute(begun, zone)))
    if begun is not None and ended is not None and not (report.units.running or report.units.todo):
        facts.append(("Ended", f"{absolute(ended, zone)}, after {span_text(max(0.0, ended - begun))}"))
    facts += [
        ("Cost", _total_cost(report)),
        ("Tokens", tokens_text(totals.tokens)),
        ("Attempts", f"{totals.tries:,}" + ("" if totals.turns is None else f", with {totals.turns:,} turns")),
        ("Worked", span_text(totals.ran_seconds)),
        ("Lost to parking", _parking(report)),
    ]
    if totals.files_changed is not None:
        facts.append(("Changed", change_text(totals.files_changed, totals.lines_added, totals.lines_removed)))
    return facts


def _state(report: CampaignReport) -> str:
    """Return the state of the campaign in words. An active campaign with nothing left to run has finished."""
    if report.pause_reason is not None:
        return f"paused itself: {report.pause_reason}"
    is_over = report.state == "active" and not (report.units.todo or report.units.running)
    return "finished" if is_over else report.state


def _total_cost(report: CampaignReport) -> str:
    totals = report.totals
    text = cost_text(totals.cost, is_used=totals.tries > 0)
    if totals.unpriced and totals.cost != Cost():
        text += f", without {totals.unpriced} unit{'' if totals.unpriced == 1 else 's'} whose cost is unknown"
    return text


def _parking(report: CampaignReport) -> str:
    totals = report.totals
    if not totals.parks:
        return "nothing"
    lost = f"; {lost_text(totals.lost_tokens, totals.lost_tokens_estimated)}" if totals.lost_tokens else ""
    return f"{span_text(totals.parked_seconds)} over all units, parked {_times(totals.parks)}{lost}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _needs_you(report: CampaignReport) -> Iterator[Section]:
    count = stopped_units(report.units)
    if not count:
        return
    rows = [(unit.id, unit.state, unit.reason or NOTHING) for unit in report.needs_you]
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
    rows += [(unit, NOTHING, "its commit is gone from the repository") for unit in found.missing]
    more = f"{len(rows) - MOST_CONFLICTS:,} more. " if len(rows) > MOST_CONFLICTS else ""
    note = f"{more}`paceline apply {report.campaign} --dry-run` lists all of them and merges nothing."
    columns = ("unit", "conflicts with", "in")
    yield Section(title="Conflicts", columns=columns, rows=rows[:MOST_CONFLICTS], note=note)


def _notable(title: str, units: list[ListedUnit]) -> Iterator[Section]:
    if units:
        rows = [(unit.id, unit.state, span_text(unit.ran_seconds), cost_text(unit.cost)) for unit in units]
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
    return _MARKUP.sub(r"\\\1", _cell_line(text))


def _cell_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_CELL else line[: LONGEST_CELL - 1] + "…"


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
        *(f"<dt>{html.escape(name)}</dt><dd>{html.escape(_cell_line(value))}</dd>" for name, value in document.facts),
        "</dl>",
        *(part for section in document.sections for part in _page_section(section)),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _page_section(section: Section) -> Iterator[str]:
    yield f"<h2>{html.escape(section.title)}</h2>\n<table>\n<thead><tr>"
    yield "".join(f"<th>{html.escape(column)}</th>" for column in section.columns) + "</tr></thead>\n<tbody>"
    for row in section.rows:
        yield "<tr>" + "".join(f"<td>{html.escape(_cell_line(cell))}</td>" for cell in row) + "</tr>"
    yield "</tbody>\n</table>"
    if section.note:
        yield f'<p class="note">{html.escape(section.note.replace("`", ""))}</p>'
