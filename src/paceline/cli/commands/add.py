"""`add PLAN`: a checked plan into the store, once."""

import time

import msgspec

from paceline.cli.options import AsJson, PlanFile, Update
from paceline.cli.output import print_value, say
from paceline.cli.plan_input import print_added, read_checked_plan
from paceline.cli.wiring import open_home
from paceline.engine import commands as orders


def command(plan: PlanFile, update: Update = False, as_json: AsJson = False) -> None:
    """Add a plan for the engine to run, or add its new units to a campaign that is already stored.

    Adding a plan again is harmless: known units stay as they are, and done units stay done. Units that differ from the
    store are named and not updated, unless you give --update.
    """
    with open_home() as home:
        checked = read_checked_plan(home, plan)
        added = orders.add_plan(home.store, checked, update=update, now=time.time())
        if as_json:
            print_value({"campaign": checked.campaign.name, **msgspec.to_builtins(added)})
            return
        print_added(checked.campaign.name, added)
        if home.engine_leader() is None:
            say(f"No engine runs now: paceline run {plan} starts one.", style="dim")
