"""How a stated budget comes back. The resets that its readings state show which kind it is.

- *bucket*: it refills evenly, and `reset` says when it is full: the more was used, the later.
- *period*: everything comes back at once, and `reset` stays where it is until then.
- *sum*: each use comes back one period after it, so `reset` is one period after the last use, whoever made it.
"""

from typing import Literal

import msgspec

SAME_RESET_SECONDS = 2.5
"""Resets and amounts are rounded: two forecasts of a reset that lie closer than this cannot be kept apart."""
KEPT_SHARE = 0.9
"""Weight of the earlier readings: about ten count, of those for which the kinds lead to different resets."""

KindName = Literal["bucket", "period", "sum"]


class Forecasts(msgspec.Struct, frozen=True):
    """The reset that each kind leads one to expect. `rounding` is the time in which a bucket refills by one.

    A sum's reset is no earlier than stated here; where others use the budget, it is later.
    """

    bucket: float
    period: float
    earliest_sum: float
    rounding: float

    @property
    def differ(self) -> bool:
        resets = self.bucket, self.period, self.earliest_sum
        return max(resets) - min(resets) > SAME_RESET_SECONDS + self.rounding


class BudgetKind(msgspec.Struct):
    """How often each kind led to a wrong forecast of late."""

    bucket: float = 0.0
    period: float = 0.0
    sum: float = 0.0

    @property
    def name(self) -> KindName:
        """The kind that was wrong least often.

        A bucket where several were: if that is a mistake, it costs a refusal. The others would cost idle time.
        """
        if self.bucket <= min(self.period, self.sum):
            return "bucket"
        return "period" if self.period <= self.sum else "sum"

    def on_reading(self, resets_at: float, expected: Forecasts) -> None:
        """Compare the reset of a reading with what each kind led one to expect."""
        is_no_bucket = abs(resets_at - expected.bucket) > SAME_RESET_SECONDS + expected.rounding
        is_no_period = abs(resets_at - expected.period) > SAME_RESET_SECONDS
        is_no_sum = resets_at < expected.earliest_sum - SAME_RESET_SECONDS
        self.bucket = self.bucket * KEPT_SHARE + is_no_bucket
        self.period = self.period * KEPT_SHARE + is_no_period
        self.sum = self.sum * KEPT_SHARE + is_no_sum
