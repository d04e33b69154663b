"""`add PLAN`: a checked plan into the store, once."""

import time
from pathlib import Path

import msgspec

from paceline.cli.output import print_value, say
from paceline.cli.wiring import Home
from paceline.engine import commands as orders
from paceline.plans.plan_file import Plan, read_plan
from paceline.plans.preflight import check_plan
from paceline.store import Added

MOST_NAMED = 10


def read_checked_plan(home: Home, path: Path) -> Plan:
    """Everything that can be wrong with it is said before anything is stored."""
    path = path.absolute()
    known = {campaign.name: campaign.created_at for campaign in home.store.campaigns()}
    plan = read_plan(path, home.settings, now=time.time(), added_at=known)
    check_plan(plan, str(path), settings=home.settings, environ=home.environ)
    orders.check_not_cancelled(home.store, plan.campaign.name)
    return plan


def add_plan(home: Home, path: Path, *, update: bool, as_json: bool) -> None:
    plan = read_checked_plan(home, path)
    added = orders.add_plan(home.store, plan, update=update, now=time.time())
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
