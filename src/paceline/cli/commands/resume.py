"""`resume`: let a paused campaign or unit run again."""

from paceline.cli.control import chosen_campaigns, print_result, resume
from paceline.cli.options import AllCampaigns, AsJson, Targets
from paceline.cli.wiring import open_home


def command(target: Targets = None, everything: AllCampaigns = False, as_json: AsJson = False) -> None:
    """Let a paused campaign start units again, or a paused unit run."""
    with open_home() as home:
        names = chosen_campaigns(target or [], everything=everything)
        print_result(home, resume(home, names), as_json=as_json)
