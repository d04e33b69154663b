"""`pool`: the number of concurrent sessions."""

from typing import Annotated

import typer

from paceline.cli.control import print_result, resize_pool
from paceline.cli.options import AsJson
from paceline.cli.wiring import open_home


def command(
    size: Annotated[str, typer.Argument(metavar="N", help="Number of concurrent sessions, or none for no limit.")],
    as_json: AsJson = False,
) -> None:
    """Set how many sessions run at once, over all campaigns. It applies at once; running sessions are never ended."""
    with open_home() as home:
        print_result(home, resize_pool(home, size), as_json=as_json)
