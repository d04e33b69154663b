"""`units CAMPAIGN`: the units of a campaign."""

from typing import Annotated

import typer

from paceline.cli.commands.stored_state import show_units
from paceline.cli.options import AsJson, CampaignName
from paceline.cli.wiring import open_home
from paceline.views.units import UnitFilter


def command(
    campaign: CampaignName,
    state: Annotated[UnitFilter | None, typer.Option(help="Only units in this state.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many.", show_default="100; all with --json")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the units of a campaign with state, attempts and reason. Only real failures count as attempts."""
    with open_home() as home:
        show_units(home, campaign, state=state, most=limit, as_json=as_json)
