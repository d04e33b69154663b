"""The report on a campaign as a document: Markdown, or one HTML page without anything from outside.

Here: which facts and tables the report has, and the two ways to write them. Never here: reading them.
"""

import html
import re
from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

import msgspec

from paceline.cli.time_text import absolute, span_text
from paceline.cli.work_text import NOTHING, change_text, cost_text, lost_text, tokens_text
from paceline.store import Cost
from paceline.views.campaign_conflicts import CampaignConflicts
from paceline.views.campaign_report import CampaignReport, ListedUnit
from paceline.views.status import stopped_units, total_units

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
    facts = [("State", report.state if report.pause_reason is None else f"paused itself: {report.pause_reason}")]
    if begun is not None:
        facts.append(("Started", absolute(begun, zone)))
    if begun is not None and ended is not None and not report.units.running:
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
    return _MARKUP.sub(r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
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
        *(f"<dt>{html.escape(name)}</dt><dd>{html.escape(_one_line(value))}</dd>" for name, value in document.facts),
        "</dl>",
        *(part for section in document.sections for part in _page_section(section)),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _page_section(section: Section) -> Iterator[str]:
    yield f"<h2>{html.escape(section.title)}</h2>\n<table>\n<thead><tr>"
    yield "".join(f"<th>{html.escape(column)}</th>" for column in section.columns) + "</tr></thead>\n<tbody>"
    for row in section.rows:
        yield "<tr>" + "".join(f"<td>{html.escape(_one_line(cell))}</td>" for cell in row) + "</tr>"
    yield "</tbody>\n</table>"
    if section.note:
        yield f'<p class="note">{html.escape(section.note.replace("`", ""))}</p>'
