"""Plan files that a person names: read and checked as a whole, and what adding one did."""

import time
from pathlib import Path

from paceline.cli.output import say
from paceline.cli.wiring import Home
from paceline.engine import commands as orders
from paceline.plans.plan_file import Plan, read_plan
from paceline.plans.preflight import check_plan
from paceline.store import Added

MOST_NAMED = 10
"""Longer lists of names push the sentence that matters off the screen."""


def read_checked_plan(home: Home, path: Path) -> Plan:
    """Return the plan. Raises with everything that is wrong with it; nothing is stored."""
    path = path.absolute()
    known = {campaign.name: campaign.created_at for campaign in home.store.campaigns()}
    plan = read_plan(path, home.settings, now=time.time(), added_at=known)
    check_plan(plan, str(path), settings=home.settings, environ=home.environ)
    orders.check_not_cancelled(home.store, plan.campaign.name)
    return plan


def print_added(campaign: str, added: Added) -> None:
    """Print how many units were added, and name those that were updated or kept as stored."""
    parts = [f"{added.added} new units" if added.added != 1 else "1 new unit"]
    if added.unchanged:
        parts.append(f"{added.unchanged} already known")
    if added.updated:
        parts.append(f"{len(added.updated)} updated ({_named(added.updated)})")
    say(f"{campaign}: {', '.join(parts)}")
    if added.changed:
        say(
            f"{len(added.changed)} differ from the store and were not updated: {_named(added.changed)}"
            " (--update updates them, but never a unit that is running or done)",
            style="yellow",
        )


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
