"""`events`: what happened, from the store."""

from typing import Annotated

import typer

from paceline.cli.commands.stored_state import show_events
from paceline.cli.completion import complete_unit
from paceline.cli.options import AsJson, Follow
from paceline.cli.wiring import open_home


def command(
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Only events of this unit.", autocompletion=complete_unit)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the last events.")] = 50,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="Events after this id, instead of the last ones.")
    ] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened: starts, ends, parks, pauses, windows, limits. With --json one event per line."""
    with open_home() as home:
        show_events(home, unit=unit, after=after, most=limit, follow=follow, as_json=as_json)
