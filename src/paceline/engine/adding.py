"""From a plan to what may be stored: read, and checked against this machine and what the store knows already."""

from collections.abc import Callable, Mapping

from paceline.engine.checking import check_plan
from paceline.engine.plan import Plan
from paceline.settings import Settings


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
