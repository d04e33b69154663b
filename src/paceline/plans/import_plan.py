"""From a plan to what is stored: read, checked against this machine and what the store knows already, and added."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from paceline.engine import command_log as control
from paceline.plans.plan_file import Plan
from paceline.plans.preflight import check_plan
from paceline.settings import Settings
from paceline.store import Added, Store


def checked_plan(
    read: Callable[[float], Plan],
    source: str,
    *,
    settings: Settings,
    environ: Mapping[str, str],
    known: Mapping[str, float],
    now: float,
) -> Plan:
    """Everything that can be wrong with it is said before anything is stored.

    `read` reads the plan, given the time that a deadline must lie after: now, or when its campaign was first added
    (`known`, by name), so that a late one can go on.
    """
    plan = read(0.0)
    since = known.get(plan.campaign.name, now)
    if plan.campaign.deadline is not None and plan.campaign.deadline <= since:
        plan = read(since)  # which says where it stands
    check_plan(plan, source, settings=settings, environ=environ)
    return plan


async def add_in_steps(store: Store, plan: Plan, *, update: bool, now: float) -> Added:
    """As `orders.add_plan`, for who shares its loop with others: a hundred thousand units hold none of them up."""
    news = [control.event_of("campaigns", now=now)]
    adding = store.add_campaign_in_steps(plan.campaign, plan.units, update=update, now=now, events=news)
    with contextlib.closing(adding) as steps:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                added: Added = end.value
                return added
            await asyncio.sleep(0)
