"""`limit`: the limit of a scope."""

from typing import Annotated

import typer

from paceline.cli.control import change_limit, change_rate, print_result
from paceline.cli.options import AsJson, Scope
from paceline.cli.wiring import open_home
from paceline.errors import InvalidInput


def command(
    scope: Scope,
    limit: Annotated[
        str | None,
        typer.Argument(
            metavar="N|none|default", help="A number, none for no limit, or default for the value of the settings."
        ),
    ] = None,
    rpm: Annotated[
        str | None, typer.Option(metavar="N|none|default", help="How many runs may start in a minute.")
    ] = None,
    tpm: Annotated[
        str | None, typer.Option(metavar="N|none|default", help="How many tokens may be used in a minute.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set how many slots a scope may hold. The value is stored and overrides the settings until you set it to default.

    [bold]paceline limit "anthropic/*/opus-*" 2[/bold]  gives every account two opus sessions.
    [bold]paceline limit openai/work --rpm 60[/bold]  lets 60 runs start in a minute.
    """
    if limit is None and rpm is None and tpm is None:
        raise InvalidInput("name what to set: a number of slots, --rpm or --tpm")
    with open_home() as home:
        if limit is not None:
            print_result(home, change_limit(home, scope, limit), as_json=as_json)
        if rpm is not None or tpm is not None:
            print_result(home, change_rate(home, scope, rpm, tpm), as_json=as_json)
