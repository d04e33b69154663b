"""`cooldown`: how long a released slot still counts."""

from typing import Annotated

import typer

from paceline.cli.control import change_cooldown, print_result
from paceline.cli.options import AsJson, Scope
from paceline.cli.wiring import open_home


def command(
    scope: Scope,
    duration: Annotated[str, typer.Argument(metavar="350ms|auto", help="A duration, 0 for none, or auto to learn it.")],
    as_json: AsJson = False,
) -> None:
    """Set how long a released slot still counts, because the provider's own counter lags."""
    with open_home() as home:
        print_result(home, change_cooldown(home, scope, duration), as_json=as_json)
