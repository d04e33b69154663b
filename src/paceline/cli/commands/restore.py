"""`restore`: a scope back at its configured limit."""

import time
from typing import Annotated

import typer

from paceline.cli.completion import complete_scope
from paceline.cli.control import forget_unreadable, print_result, restore
from paceline.cli.options import AsJson
from paceline.cli.wiring import open_home
from paceline.errors import InvalidInput


def command(
    scope: Annotated[
        str | None,
        typer.Argument(metavar="SCOPE", help="As in `paceline limits`.", autocompletion=complete_scope),
    ] = None,
    unreadable: Annotated[
        bool, typer.Option("--unreadable", help="Set aside a stored state that cannot be read, and begin without it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Return a scope to its configured limit: forget what was learned about it, and lift a hold.

    After a refused login or a billing stop an account is held until a person has fixed the cause. Run this once it is
    fixed.
    """
    if unreadable == (scope is not None):
        raise InvalidInput("name a scope, or give --unreadable")
    with open_home() as home:
        result = forget_unreadable(home, time.time()) if scope is None else restore(home, scope)
        print_result(home, result, as_json=as_json)
