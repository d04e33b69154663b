"""`pause`: start nothing more of a campaign, or hold a unit."""

from paceline.cli.control import chosen_campaigns, pause, print_result
from paceline.cli.options import AllCampaigns, AsJson, Targets
from paceline.cli.wiring import open_home


def command(target: Targets = None, everything: AllCampaigns = False, as_json: AsJson = False) -> None:
    """Start nothing more of a campaign, or hold a unit that waits. Running sessions finish."""
    with open_home() as home:
        names = chosen_campaigns(target or [], everything=everything)
        print_result(home, pause(home, names), as_json=as_json)
