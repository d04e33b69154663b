"""`summary CAMPAIGN`: the report for the morning, as Markdown or as one HTML page."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import print_value, say
from paceline.cli.report_document import markdown, page, report_document
from paceline.cli.wiring import open_home
from paceline.errors import InvalidInput, PacelineError
from paceline.views.campaign_report import read_report
from paceline.views.unit_changes import finished_works
from paceline.workspaces.conflicts import ConflictReport, FinishedWork, conflict_report


def command(
    campaign: CampaignName,
    html: Annotated[Path | None, typer.Option("--html", help="Write one HTML page to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a report on a campaign as Markdown: done, needs you, cost, parking, conflicts, slowest, most expensive.

    With --html it writes a page that needs nothing else, for a browser or an attachment.
    """
    with open_home() as home:
        report = read_report(home.store, campaign)
        works = finished_works(home.store, campaign)
        document = report_document(report, home.zone, time.time(), conflicts=_conflicts(works))
    if html is not None:
        _write(html, page(document))
    if as_json:
        print_value(report)
    elif html is not None:
        say(f"wrote {html}")
    else:
        sys.stdout.write(markdown(document))


def _conflicts(works: list[FinishedWork]) -> ConflictReport | str | None:
    """Return the conflicts of finished work, or why they are unknown: the repository may be gone."""
    try:
        return conflict_report(works) if works else None
    except (PacelineError, OSError) as error:
        return str(error)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}; name a file in a folder of yours") from error
