"""`delete`: remove a campaign from the store."""

import sys
from typing import Annotated

import typer

from paceline.cli.control import delete, print_result
from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import one_line
from paceline.cli.wiring import open_home
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import InvalidInput


def command(
    campaign: CampaignName,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove workspaces with uncommitted work.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a campaign with all its units, their results and their workspaces. Branches that are not merged stay.

    Refused while a unit is running: cancel it first. Refused while a workspace has uncommitted work, unless you give
    --force.
    """
    with open_home() as home:
        find_campaign(home.store, campaign)
        if not is_sure:
            _confirm(campaign)
        print_result(home, delete(home, campaign, force=force), as_json=as_json)


def _confirm(campaign: str) -> None:
    """Ask the person at the terminal. A program cannot answer, so it must give --yes."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"deleting {campaign} removes all its units and their results; give --yes if you are sure")
    typer.confirm(f"Delete {one_line(campaign)} with all its units and their results?", abort=True)
