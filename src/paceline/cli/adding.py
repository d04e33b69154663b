"""`add PLAN`: a checked plan into the store, once."""

import time
from pathlib import Path

import msgspec

from paceline.cli.checking import check_plan
from paceline.cli.names import read_known_plan
from paceline.cli.printing import print_value, say
from paceline.cli.wiring import Home
from paceline.engine import control
from paceline.engine.plan import Plan
from paceline.errors import IllegalStep
from paceline.store import Added

MOST_NAMED = 10


def read_checked_plan(home: Home, path: Path) -> Plan:
    """Everything that can be wrong with it is said before anything is stored."""
    plan = read_known_plan(home, path)
    check_plan(home, plan, path)
    stored = {campaign.name: campaign.state for campaign in home.store.campaigns()}
    if stored.get(plan.campaign.name) == "cancelled":
        raise IllegalStep(
            f"the campaign {plan.campaign.name} was cancelled, which is for good; give the plan another name"
        )
    return plan


def store_plan(home: Home, plan: Plan, *, update: bool) -> Added:
    now = time.time()
    added = home.store.add_campaign(plan.campaign, plan.units, update=update, now=now)
    control.send(home.store, "campaigns", now=now)
    return added


def add_plan(home: Home, path: Path, *, update: bool, as_json: bool) -> None:
    plan = read_checked_plan(home, path)
    added = store_plan(home, plan, update=update)
    if as_json:
        print_value({"campaign": plan.campaign.name, **msgspec.to_builtins(added)})
        return
    tell_added(plan.campaign.name, added)
    if home.engine_leader() is None:
        say(f"No engine runs now: paceline run {path} starts one.", style="dim")


def tell_added(campaign: str, added: Added) -> None:
    """What adding did; what was left is named."""
    parts = [f"{added.added} new units" if added.added != 1 else "1 new unit"]
    if added.unchanged:
        parts.append(f"{added.unchanged} known already")
    if added.updated:
        parts.append(f"{len(added.updated)} changed ({_named(added.updated)})")
    say(f"{campaign}: {', '.join(parts)}")
    if added.changed:
        say(
            f"{len(added.changed)} differ from what is stored and were left: {_named(added.changed)}"
            " (--update takes them, but never one that runs or is done)",
            style="yellow",
        )


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
