"""`pause`: start nothing more of a campaign, or hold a unit."""

from typing import Annotated

import typer

from paceline.cli.control import chosen_campaigns, pause, print_result
from paceline.cli.options import AllCampaigns, AsJson, Targets
from paceline.cli.wiring import open_home


def command(
    target: Targets = None,
    everything: AllCampaigns = False,
    at_turn: Annotated[
        bool, typer.Option("--at-turn", help="Also end running sessions, at their next turn. They resume later.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start nothing more of a campaign, or hold a unit that waits. Running sessions finish."""
    with open_home() as home:
        names = chosen_campaigns(target or [], everything=everything)
        print_result(home, pause(home, names, at_turn=at_turn), as_json=as_json)
