"""The budget of an open window: the reserve that is left to the person, and the plan of a `spread` campaign.

Here: when the next one may start, from the use of a window. Never here: closed windows (`quota_window.py`).
"""

from typing import Literal

import msgspec

PLAN_STEP_SECONDS = 1.0
"""The use of a window grows while the plan catches up with it, so nobody is woken more often than this."""


class UsagePlan(msgspec.Struct, frozen=True):
    """How much of an open window is used, and the straight line along which it may be used.

    The line goes from `begins` (time, used) to `ends_at`, where all but the reserve may be used.
    """

    used: float
    begins: tuple[float, float]
    ends_at: float
    resets_at: float
    is_estimate: bool = False


def budget_hold(
    plan: UsagePlan, now: float, *, reserve: float, spread: bool
) -> tuple[Literal["reserve", "pacing"], float] | None:
    """Return why a start is held back, and until when; None if it may go.

    The share `reserve` of the window is left to the person; with `spread` the rest is used up along the plan.
    """
    usable = 1.0 - reserve
    if reserve > 0 and plan.used >= usable:
        return "reserve", plan.resets_at
    if spread and now < plan.ends_at and plan.used > planned_use(plan, now, reserve=reserve):
        return "pacing", min(max(_time_of_use(plan, usable), now + PLAN_STEP_SECONDS), plan.ends_at)
    return None


def planned_use(plan: UsagePlan, now: float, *, reserve: float) -> float:
    """Return how much may be used by now: at the end of the plan all but the reserve."""
    usable = 1.0 - reserve
    begins_at, begins_used = plan.begins
    if now >= plan.ends_at or begins_at >= plan.ends_at or begins_used >= usable:
        return usable
    passed = max(0.0, now - begins_at) / (plan.ends_at - begins_at)
    return begins_used + passed * (usable - begins_used)


def _time_of_use(plan: UsagePlan, usable: float) -> float:
    """Return when the plan reaches what is used."""
    begins_at, begins_used = plan.begins
    if usable <= begins_used:
        return plan.ends_at
    return begins_at + (plan.used - begins_used) / (usable - begins_used) * (plan.ends_at - begins_at)
