"""`cancel`: give up what is left of a campaign."""

from paceline.cli.control import cancel, print_result
from paceline.cli.options import AsJson, CampaignName
from paceline.cli.wiring import open_home


def command(campaign: CampaignName, as_json: AsJson = False) -> None:
    """Give up all units of a campaign that are not done, for good. Running sessions are ended."""
    with open_home() as home:
        print_result(home, cancel(home, campaign), as_json=as_json)
