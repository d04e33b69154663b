"""What a quota window holds, and along which line it may be used.

Where a provider does not report the use, what a window holds is learnt from its periods: one that was seen from its
opening to its closing has shown it. What the provider reports outranks all of it (`quota_window.py`).

The budget of an open window: the reserve that is left to the person, and the plan of a `spread` campaign.
"""

from typing import ClassVar, Literal

import msgspec

from paceline.core.state.usage_meter import Use
from paceline.core.values.fields import RelativeTimes

KEPT_SPENT = 3
"""The middle one of these counts, so that one odd period, shared with a person at work, does not decide."""
DAY_SECONDS = 86400.0
"""The length of a period where none is known."""
FORGET_PERIODS = 4
"""An estimate is forgotten after this many periods without a closing.

One that is too small would keep itself alive: it keeps the window from closing, and so from being measured again.
"""
FORGET_SECONDS = 28 * DAY_SECONDS
"""The same where two spent periods agree, and the estimate is therefore trusted for longer."""
AGREE_WITHIN = 0.8
"""Two periods agree where the smaller is at least this share of the larger: work varies by about a fifth."""
WHOLE_WITHIN = 0.1
"""A period whose stated reset is this close to one length after its opening was seen from the beginning."""
HARDLY_USED_SHARE = 0.05
"""Less than this share of what a period held cannot have spent one, however much the work varies."""
HARDLY_USED_SECONDS = 120.0
"""The same in seconds of sessions, where no size is known: the smallest plans last longer than two minutes of one."""
LATE_SECONDS = 3600.0
"""So long after an opening a closing is no late reset any more: somebody else has spent the period."""


class Spent(msgspec.Struct, frozen=True):
    """A period that was used up, or that held more than any before: what it held, and its length where known."""

    at: float
    use: Use
    length: float | None = None


class Period(RelativeTimes):
    """The current period of a window, and the last ones that were spent.

    `is_seen` while the period was seen from its opening on and has not closed.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("opened_at",)

    opened_at: float | None = None
    at_opening: Use = Use()
    is_seen: bool = False
    spent: tuple[Spent, ...] = ()

    def begin(self, use: Use, now: float) -> None:
        """Begin a period. The one before, if it ended without a closing, held at least what was used in it."""
        size, used = self.size(now), use.since(self.at_opening)
        if self.is_seen and size is not None and used.share_of(size) > 1.0:
            self._learn(Spent(now, used))
        self.opened_at, self.at_opening, self.is_seen = now, use, True

    def on_closed(self, use: Use, resets_at: float | None, usual_length: float | None, now: float) -> None:
        """Learn what the window holds from its closing, if the period was seen from its beginning."""
        used = use.since(self.at_opening)
        length = None if resets_at is None or self.opened_at is None else resets_at - self.opened_at
        is_whole = self.is_seen
        if length is not None and usual_length is not None:
            is_whole = abs(length - usual_length) <= WHOLE_WITHIN * usual_length
        if is_whole and used.seconds > 0:
            self._learn(Spent(now, used, usual_length if length is None else length))
        self.is_seen = False

    def is_hardly_used(self, use: Use, now: float) -> bool:
        """Return whether so little was used since an opening that was seen that it cannot have spent the period."""
        if not self.is_seen or self.opened_at is None or now - self.opened_at > LATE_SECONDS:
            return False
        used, size = use.since(self.at_opening), self.size(now)
        if size is None:
            return used.seconds < HARDLY_USED_SECONDS
        return used.share_of(size) < HARDLY_USED_SHARE

    def _learn(self, spent: Spent) -> None:
        self.spent = (*self.spent, spent)[-KEPT_SPENT:]

    def size(self, now: float) -> Use | None:
        """Return what a period holds; None where that is not known."""
        if not self.spent or not (fresh := self._fresh(now)):
            return None
        return Use(
            _middle([each.tokens for each in fresh if each.tokens > 0]) or 0.0,
            _middle([each.seconds for each in fresh]) or 0.0,
            int(_middle([each.starts for each in fresh]) or 0),
        )

    def _fresh(self, now: float) -> list[Use]:
        some = FORGET_PERIODS * (self.learnt_length or DAY_SECONDS)
        kept = self._since(now - max(some, FORGET_SECONDS))
        return kept if _agree(kept) else self._since(now - some)

    def _since(self, time: float) -> list[Use]:
        return [each.use for each in self.spent if each.at >= time]

    @property
    def learnt_length(self) -> float | None:
        """How long after its opening a period's reset was, as stated."""
        return _middle([each.length for each in self.spent if each.length is not None])

    def share_used(self, use: Use, now: float) -> float | None:
        """Return what is used since the opening as a share of what the window holds."""
        size = self.size(now)
        return None if size is None else use.since(self.at_opening).share_of(size)

    def share_of_starts(self, starts: int, now: float) -> float:
        """Return the share that so many slots use on average by their end; 0 where it is not known."""
        size = self.size(now)
        return 0.0 if size is None else starts / max(1, size.starts)


def _agree(uses: list[Use]) -> bool:
    """Return whether two of them are about the same."""
    return any(AGREE_WITHIN <= one.share_of(other) <= 1.0 for one in uses for other in uses if one is not other)


def _middle(values: list[float]) -> float | None:
    """Return the middle one; of two the larger, because a person's own use made the other one smaller."""
    return sorted(values)[len(values) // 2] if values else None


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
