"""`retry`: try failed units again."""

from paceline.cli.control import print_result, retry_failed
from paceline.cli.options import AsJson, CampaignName
from paceline.cli.wiring import open_home


def command(campaign: CampaignName, as_json: AsJson = False) -> None:
    """Try the quarantined and held units of a campaign again, with their counters at zero."""
    with open_home() as home:
        print_result(home, retry_failed(home, campaign), as_json=as_json)
