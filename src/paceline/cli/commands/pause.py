"""`pause`: start nothing more of a campaign."""

from paceline.cli.control import chosen_campaigns, pause, print_result
from paceline.cli.options import AllCampaigns, AsJson, CampaignNames
from paceline.cli.wiring import open_home


def command(campaign: CampaignNames = None, everything: AllCampaigns = False, as_json: AsJson = False) -> None:
    """Start nothing more of a campaign. Running sessions finish."""
    with open_home() as home:
        names = chosen_campaigns(campaign or [], everything=everything)
        print_result(home, pause(home, names), as_json=as_json)
