"""`summary CAMPAIGN`: the report for the morning, as Markdown or as one HTML page."""

import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import print_value, say
from paceline.cli.report_document import markdown, page, report_document
from paceline.cli.wiring import open_home
from paceline.errors import InvalidInput
from paceline.views.campaign_conflicts import read_conflicts
from paceline.views.campaign_report import read_report


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
        conflicts = read_conflicts(home.store, report.campaign)
        document = report_document(report, home.zone, time.time(), conflicts=conflicts)
    if html is not None:
        _write(html, page(document))
    if as_json:
        print_value({**msgspec.structs.asdict(report), "conflicts": conflicts})
    elif html is not None:
        say(f"wrote {html}")
    else:
        sys.stdout.write(markdown(document))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}; name a file in a folder of yours") from error
