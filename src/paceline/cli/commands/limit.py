"""`limit`: the limit of a scope."""

from typing import Annotated

import typer

from paceline.cli.control import change_limit, print_result
from paceline.cli.options import AsJson, Scope
from paceline.cli.wiring import open_home


def command(
    scope: Scope,
    limit: Annotated[
        str,
        typer.Argument(
            metavar="N|none|default", help="A number, none for no limit, or default for the value of the settings."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Set how many slots a scope may hold. The value is stored and overrides the settings until you set it to default.

    [bold]paceline limit "anthropic/*/opus-*" 2[/bold]  gives every account two opus sessions.
    """
    with open_home() as home:
        print_result(home, change_limit(home, scope, limit), as_json=as_json)
