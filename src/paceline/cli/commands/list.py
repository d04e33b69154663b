"""`list`: the stored campaigns."""

from paceline.cli.commands.stored_state import show_campaigns
from paceline.cli.options import AsJson
from paceline.cli.wiring import open_home


def command(as_json: AsJson = False) -> None:
    """List the campaigns and how far they are."""
    with open_home() as home:
        show_campaigns(home, as_json=as_json)
