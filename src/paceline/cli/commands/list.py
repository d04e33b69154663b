"""`list`: the stored campaigns."""

from paceline.cli.options import AsJson
from paceline.cli.output import one_line, print_table, print_value, say, table
from paceline.cli.wiring import open_home
from paceline.store import UnitCounts
from paceline.views.campaigns import CampaignSummary, campaign_summary
from paceline.views.status import stopped_units, total_units


def command(as_json: AsJson = False) -> None:
    """List the campaigns and how far they are."""
    with open_home() as home:
        counts = home.store.counts()
        campaigns = [campaign_summary(each, counts.get(each.name, UnitCounts())) for each in home.store.campaigns()]
    if as_json:
        print_value({"campaigns": campaigns})
    elif campaigns:
        _print_campaigns(campaigns)
    else:
        say("No campaigns yet. `paceline run PLAN` adds one and runs it.")


def _print_campaigns(campaigns: list[CampaignSummary]) -> None:
    columns = ("campaign", "state", "priority", "agent", "done", "running", "waiting", "parked", "failed")
    made = table(*columns, right=("priority", *columns[4:]))
    for campaign in campaigns:
        each = campaign.units
        agent = f"{campaign.agent} {campaign.model or ''}".strip()
        waiting = each.todo - each.parked
        numbers = (f"{each.done}/{total_units(each)}", each.running, waiting, each.parked, stopped_units(each))
        made.add_row(campaign.name, campaign.shown_state, str(campaign.priority), agent, *map(str, numbers))
    print_table(made)
    for campaign in campaigns:
        if campaign.pause_reason is not None:
            say(f"{campaign.name} paused itself: {one_line(campaign.pause_reason, 300)}")
            say(f"  Fix the cause, then `paceline resume {campaign.name}`.")
