"""`logs UNIT`: the output of the last attempt."""

from typing import Annotated, Literal

import typer

from paceline.cli.commands.stored_state import show_logs
from paceline.cli.options import AsJson, Follow, UnitName
from paceline.cli.wiring import open_home


def command(
    unit: UnitName,
    channel: Annotated[Literal["stdout", "stderr", "screen"] | None, typer.Option(help="Only this channel.")] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last attempt of a unit printed.

    On a terminal, control characters are removed: the output of an agent may be hostile. A pipe gets the bytes
    unchanged.
    """
    with open_home() as home:
        show_logs(home, unit, channel=channel, follow=follow, as_json=as_json)
