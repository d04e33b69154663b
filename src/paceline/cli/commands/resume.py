"""`resume`: let a paused campaign start units again."""

from paceline.cli.control import chosen_campaigns, print_result, resume
from paceline.cli.options import AllCampaigns, AsJson, CampaignNames
from paceline.cli.wiring import open_home


def command(campaign: CampaignNames = None, everything: AllCampaigns = False, as_json: AsJson = False) -> None:
    """Let a paused campaign start units again."""
    with open_home() as home:
        names = chosen_campaigns(campaign or [], everything=everything)
        print_result(home, resume(home, names), as_json=as_json)
