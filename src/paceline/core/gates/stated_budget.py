"""One budget of a provider as its headers state it: what is left of a limit, and how that comes back.

`reset` has two meanings. Most providers have a bucket that refills evenly, and state when it is *full*: the more was
used, the later. Others have a period at whose end everything comes back at once. Two readings show which: with use the
first moves, the second stays. Until then a bucket is assumed: if that is wrong, it costs a refusal; the other mistake
costs an idle minute.
"""

import msgspec

CAREFUL = 0.97
"""The refill is counted a little slower than stated: providers round what is left and when it is full."""
KEPT_SHARE = 0.9
"""Weight of the earlier readings in the refill: about ten readings count, those with the most used the most."""
WHOLE_SECOND = 1.0
"""A reset in whole seconds may be this much later than stated."""
SAME_RESET_SECONDS = 2.5
"""Resets and amounts are rounded: two forecasts of a reset that lie closer than this cannot be kept apart."""
SOON_SECONDS = 0.001
"""What is back within a millisecond is there: the clock cannot show every fraction of it."""
SILENT_SECONDS = 0.5
"""A call that began so long after the last reading would have brought another: readings are a tenth apart at most."""
MOST_SILENT = 2
"""Successes without a reading after which a budget is over. Where a reading follows its success there is only one."""
LONGEST_WAIT_SECONDS = 900.0
"""One run looks after so long, whatever was stated: a wrong reset may lie days ahead, and a look costs one refusal."""
FORGOTTEN_SECONDS = 600.0
"""A budget that was not stated for this long after its reset is forgotten: it may have changed meanwhile."""


class StatedBudget(msgspec.Struct):
    """What was left at `seen_at`, counted down by what was started since.

    `filled` over `seconds` is the refill as stated: used amounts, and the times until they are back. `read_left`,
    `read_at` and `read_reset` are a reading to compare the next ones with. `period` is the longest wait for a reset.
    """

    left: float
    resets_at: float
    seen_at: float = 0.0
    limit: float | None = None
    filled: float = 0.0
    seconds: float = 0.0
    is_period: bool = False
    period: float = 0.0
    read_left: float = 0.0
    read_at: float = 0.0
    read_reset: float = 0.0
    since: float = 0.0
    stated_at: float = 0.0
    silent: int = 0
    """Successes since the last reading that brought none."""

    @classmethod
    def first(cls, left: float, limit: float | None, resets_at: float, now: float) -> "StatedBudget":
        """Return the budget of a first reading."""
        budget = cls(left, resets_at, now, limit, since=now, stated_at=now)
        budget.read_left, budget.read_at, budget.read_reset = left, now, resets_at
        budget._learn_refill(left, resets_at, now)
        return budget

    @property
    def refill(self) -> float:
        """What comes back in a second, as far as that is stated; 0 where all of it comes back at the reset."""
        if self.limit is None or self.is_period or self.seconds <= 0:
            return 0.0
        return CAREFUL * self.filled / self.seconds

    @property
    def per_second(self) -> float:
        """The rate of the whole budget in a second; 0 where it is not known."""
        if self.is_period and self.limit is not None and self.period > 0:
            return self.limit / self.period
        return self.refill

    def level(self, now: float) -> float:
        """Return what is left now."""
        limit, seconds = self.limit, self.seconds
        if limit is None or self.is_period or seconds <= 0 or not self.filled:
            return self.left
        level = self.left + max(0.0, now - self.seen_at) * (CAREFUL * self.filled / seconds)  # as `refill`, inline
        return level if level < limit else limit

    def ready_at(self, need: float, now: float) -> float | None:
        """Return when `need` is there, or when it is worth a look; None where that is now."""
        need = need if self.limit is None else min(need, self.limit)
        missing, refill = need - self.level(now), self.refill
        at = now + missing / refill if refill else self.resets_at
        if self.seen_at:  # an older snapshot lacks it
            at = min(at, self.seen_at + LONGEST_WAIT_SECONDS)
        return at if missing > 0 and at > now + SOON_SECONDS else None

    def take(self, amount: float, now: float) -> None:
        """Count what was started."""
        self.left = self.level(now) - amount
        if now > self.seen_at:
            self.seen_at = now

    def renew(self, now: float) -> bool:
        """Begin the next period once one has ended. Returns False for a budget that is to be forgotten."""
        if now < self.resets_at:
            return True
        if self.limit is None or now >= self.resets_at + max(self.period, FORGOTTEN_SECONDS):
            return False
        if not self.refill:
            self.left, self.seen_at, self.resets_at = self.limit, now, now + max(1.0, self.period)
        return True

    def on_reading(self, left: float, limit: float, resets_at: float, live: int | None, now: float) -> None:
        """Take over a reading. It may lack what `live` slots are about to use: then the own count is better."""
        if now < self.read_reset:
            self._learn_kind(left, limit, resets_at, now)
        else:
            self.read_left, self.read_at, self.read_reset = left, now, resets_at
        self._learn_refill(left, resets_at, now)
        most = left if self.is_period else left + 1.0  # what is left is stated in whole numbers
        counted = left if live is None else max(left - live, min(self.level(now), most))
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

    def _learn_kind(self, left: float, limit: float, resets_at: float, now: float) -> None:
        """Compare the earlier reset with what a bucket would have stated then, and with the present one."""
        if left >= limit:
            return
        per_unit = (resets_at - now) / (limit - left)
        as_bucket = self.read_at + (limit - self.read_left) * per_unit
        if abs(as_bucket - resets_at) > SAME_RESET_SECONDS:
            self.is_period = abs(self.read_reset - resets_at) < abs(self.read_reset - as_bucket)
            self.read_left, self.read_at, self.read_reset = left, now, resets_at
