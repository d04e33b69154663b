"""One budget of a provider as its headers state it: what is left of a limit, and how that comes back.

A bucket refills evenly, a period gives everything back at its end, a sum gives each use back one period after it: see
`budget_kind.py`. A bucket is assumed until the readings show something else.
"""

import math
from itertools import takewhile

import msgspec

from paceline.core.gates.budget_kind import BudgetKind, Forecasts

CAREFUL = 0.97
"""The refill is counted a little slower than stated: providers round what is left and when it is full."""
KEPT_SHARE = 0.9
"""Weight of the earlier readings in the refill: about ten readings count, those with the most used the most."""
WHOLE_SECOND = 1.0
"""A reset in whole seconds may be this much later than stated."""
MINUTE = 60.0
"""Providers count whole minutes. A use that is expected back too early costs a refusal."""
USES = 60
"""The own uses of the last period are kept in so many parts: each comes back with the last of its part."""
SOON_SECONDS = 0.001
"""What is back within a millisecond is there: the clock cannot show every fraction of it."""
SILENT_SECONDS = 0.5
"""A call that began this long after the last reading should bring a new one: readings are 0.1 s apart at most."""
MOST_SILENT = 2
"""Successes without a reading after which a budget is over. Where a reading follows its success there is only one."""
LONGEST_WAIT_SECONDS = 900.0
"""After this wait one run probes the budget, whatever the headers stated.

A wrong reset may lie days ahead, and a probe costs one refusal.
"""
FORGOTTEN_SECONDS = 600.0
"""A budget that was not stated for this long after its reset is forgotten: it may have changed meanwhile."""


class Use(msgspec.Struct):
    """What was started up to `at`, and since the use before it."""

    at: float
    amount: float


class StatedBudget(msgspec.Struct):
    """What was left at `seen_at`, counted down by what was started since.

    `filled` over `seconds` is the refill as stated: used amounts, and the times until they are back. `read_reset` is
    the reset of a reading to compare the next ones with. `period` is the longest wait for a reset. `uses` are the own
    ones of the last period, `used_at` is the time of the last.
    """

    left: float
    resets_at: float
    seen_at: float = 0.0
    limit: float | None = None
    filled: float = 0.0
    seconds: float = 0.0
    kind: BudgetKind = msgspec.field(default_factory=BudgetKind)
    period: float = 0.0
    read_reset: float = 0.0
    used_at: float = 0.0
    uses: list[Use] = msgspec.field(default_factory=list)
    since: float = 0.0
    stated_at: float = 0.0
    silent: int = 0
    """Successes since the last reading that brought none."""

    @classmethod
    def first(cls, left: float, limit: float | None, resets_at: float, now: float) -> "StatedBudget":
        """Return the budget of a first reading."""
        budget = cls(left, resets_at, now, limit, read_reset=resets_at, used_at=now, since=now, stated_at=now)
        budget._learn_refill(left, resets_at, now)
        return budget

    @property
    def refill(self) -> float:
        """What comes back in a second; 0 where it does not come back evenly, or no reading shows how fast."""
        if self.limit is None or self.seconds <= 0 or self.kind.name != "bucket":
            return 0.0
        return CAREFUL * self.filled / self.seconds

    @property
    def per_second(self) -> float:
        """The rate of the whole budget in a second; 0 where it is not known."""
        if self.kind.name != "bucket" and self.limit is not None and self.period > 0:
            return self.limit / self.period
        return self.refill

    @property
    def span(self) -> float:
        """The time after which a use comes back, in full minutes: the longest wait that was stated is a little less."""
        return math.ceil(self.period / MINUTE) * MINUTE

    @property
    def how_it_returns(self) -> str:
        """How what was used comes back, in words."""
        if self.kind.name == "sum":
            return f"each use comes back after {self.span:.0f} s"
        return "all comes back at the reset" if not self.refill else f"{self.refill * 60:,.0f} a minute come back"

    def level(self, now: float) -> float:
        """Return what is left now."""
        limit = self.limit
        if limit is None:
            return self.left
        back = self._returned(now) if self.kind.name == "sum" else max(0.0, now - self.seen_at) * self.refill
        return min(limit, self.left + back)

    def _returned(self, now: float) -> float:
        """Return what has come back of the uses that are still kept. They are in the order of their times."""
        span, back = self.span, 0.0
        for use in self.uses:
            if use.at + span > now:
                break
            back += use.amount
        return back

    def ready_at(self, need: float, now: float) -> float | None:
        """Return when `need` is there, or when it is worth a look; None where there is enough now."""
        need = need if self.limit is None else min(need, self.limit)
        missing = need - self.level(now)
        if missing <= 0:
            return None
        at = self._back_at(missing, now)
        if self.seen_at:  # an older snapshot lacks it
            at = min(at, self.seen_at + LONGEST_WAIT_SECONDS)
        return at if at > now else None  # what is missing may be less than the clock can show

    def refused_until(self, need: float, now: float) -> float | None:
        """Return until when a run that needs so much has to wait; None where it may start now."""
        at = self.ready_at(need, now)
        return at if at is not None and at > now + SOON_SECONDS else None

    def _back_at(self, missing: float, now: float) -> float:
        """Return when so much more will have come back."""
        if refill := self.refill:
            return now + missing / refill
        if self.kind.name == "sum":
            span = self.span
            for use in self.uses:
                if use.at + span > now:
                    missing -= use.amount
                    if missing <= 0:
                        return min(use.at + span, self.resets_at)
        return self.resets_at

    def take(self, amount: float, now: float) -> None:
        """Count what was started."""
        self.left = self.level(now) - amount
        self._forget_uses(now)
        self.used_at = max(self.used_at, now)
        if now > self.seen_at:
            self.seen_at = now
        if self.kind.name == "sum":
            self.resets_at = max(self.resets_at, now + self.period)

    def log_use(self, amount: float, at: float) -> None:
        """Remember when a use was made, to know when it comes back. It may have been made some time ago."""
        part = self.span / USES
        place = len(self.uses)
        while place and self.uses[place - 1].at >= at:
            place -= 1
        if place < len(self.uses) and self.uses[place].at - at < part:
            self.uses[place].amount += amount
        else:
            self.uses.insert(place, Use(at + part, amount))

    def started_since(self, at: float) -> float:
        """Return how much was started since then."""
        return sum(use.amount for use in takewhile(lambda use: use.at > at, reversed(self.uses)))

    def _forget_uses(self, now: float) -> None:
        span = self.span
        if self.uses and self.uses[0].at + span <= now:
            self.uses = [use for use in self.uses if use.at + span > now]

    def renew(self, now: float) -> bool:
        """Begin the next period once one has ended. Returns False for a budget that is to be forgotten."""
        if now < self.resets_at:
            return True
        if self.limit is None or now >= self.resets_at + max(self.period, FORGOTTEN_SECONDS):
            return False
        if not self.refill:
            self.left, self.seen_at, self.resets_at = self.limit, now, now + max(1.0, self.period)
            self._forget_uses(now)
        return True

    def on_reading(self, left: float, resets_at: float, lacks: float | None, now: float) -> None:
        """Take over a reading. It may lack as much as `lacks` of what was started: then the own count is better."""
        self._learn_kind(left, resets_at, now)
        self._learn_refill(left, resets_at, now)
        counted = left
        if lacks is not None:
            most = left + 1.0 if self.refill else left  # what is left is stated in whole numbers
            counted = max(left - lacks, min(self.level(now), most))
        self._forget_uses(now + self.span / USES)  # of a use that is coming back, some is in the reading already
        self.left, self.seen_at, self.resets_at = counted, now, resets_at
        self.stated_at, self.silent = now, 0

    def is_doubted(self, granted_at: float, now: float) -> bool:
        """Return whether a success of a slot granted then should have brought another reading."""
        return now >= self.resets_at and granted_at >= self.stated_at + SILENT_SECONDS

    def is_over(self, granted_at: float, now: float) -> bool:
        """Return whether a success shows that the budget is over: only a refusal stated it."""
        if not self.is_doubted(granted_at, now):
            return False
        self.silent += 1
        return self.silent >= MOST_SILENT

    def _learn_refill(self, left: float, resets_at: float, now: float) -> None:
        self.period = max(self.period, resets_at - now)
        if self.limit is None or left >= self.limit:
            return
        rounded = WHOLE_SECOND if resets_at == int(resets_at) else 0.0
        self.filled = self.filled * KEPT_SHARE + self.limit - left
        self.seconds = self.seconds * KEPT_SHARE + resets_at - now + rounded

    def _learn_kind(self, left: float, resets_at: float, now: float) -> None:
        """Let the reading show how the budget comes back, if it is far enough from the one before."""
        if self.limit is None or left >= self.limit or not self.filled:
            return
        if now < self.read_reset:
            per_unit = self.seconds / self.filled
            bucket = now + (self.limit - left) * per_unit
            expected = Forecasts(bucket, self.read_reset, self.used_at + self.period, per_unit)
            if not expected.differ:
                return
            self.kind.on_reading(resets_at, expected)
        self.read_reset = resets_at
