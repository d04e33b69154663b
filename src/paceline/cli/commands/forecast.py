"""`forecast PLAN`: when a plan will finish and park, and which pool size is worth it."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.completion import complete_campaign
from paceline.cli.options import AsJson
from paceline.cli.wiring import open_home


def command(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN]", help="A plan file.")] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="CAMPAIGN",
            help="Simulate a campaign that has run, with the present settings.",
            autocompletion=complete_campaign,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a plan against the limits and windows: when it is done, when it parks, which pool size is worth it.

    The engine itself runs the plan in virtual time, next to the stored campaigns, with durations and windows as they
    were observed here. Starts nothing, stores nothing.
    """
    from paceline.cli.forecast_text import show_forecast  # the other commands need not load a simulation

    with open_home() as home:
        show_forecast(home, plan, replay=replay, as_json=as_json)
