"""`retry`: try failed units again, or undo a cancel."""

from typing import Annotated

import typer

from paceline.cli.control import print_result, retry_failed
from paceline.cli.options import AsJson, Target
from paceline.cli.wiring import open_home


def command(
    target: Target,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Give up the unit's conversation: it starts again, on any of its accounts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Try a unit again, or the quarantined, unverified and held units of a campaign, with their counters at zero.

    It also undoes `cancel`: a cancelled campaign is active again, with all its cancelled units.
    """
    with open_home() as home:
        print_result(home, retry_failed(home, target, fresh=fresh), as_json=as_json)
