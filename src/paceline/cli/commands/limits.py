"""`limits`: every limit in force."""

from paceline.cli.commands.status import show_limits
from paceline.cli.options import AsJson
from paceline.cli.wiring import open_home


def command(as_json: AsJson = False) -> None:
    """Show every limit: the value in force, its source, what was learned, what is paused or closed."""
    with open_home() as home:
        show_limits(home, as_json=as_json)
