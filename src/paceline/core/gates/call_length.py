"""The one estimate of how long a slot of a scope lasts: from milliseconds of a call to hours of a session."""

import msgspec

from paceline.core.state.usage_meter import Use

STEP = 1.2
"""How far one slot moves the median of their lengths, as a factor: a dozen follow a change by a factor of nine."""
FEWEST_ENDED = 8
"""Slots that must have ended before their mean says how long one lasts: fewer may all have been refused."""
FEWEST_ROUNDS = 3
"""So many times as many must have ended as live: those that have just begun say nothing."""


class CallLength(msgspec.Struct):
    """The median length of slots, counted from the first refusal on; None before."""

    median: float | None = None

    def seconds(self, use: Use, live: int) -> float | None:
        """Return how long a slot lasts: the median, else the mean of all; None where too few have ended."""
        if self.median is not None:
            return self.median
        has_mean = use.starts - live >= max(FEWEST_ENDED, FEWEST_ROUNDS * live)
        return use.seconds / use.starts if has_mean else None

    def on_ended(self, seconds: float, use: Use, live: int) -> None:
        """Move the median a small step towards the length of one more slot."""
        before = self.seconds(use, live)
        self.median = max(before / STEP, min(seconds, before * STEP)) if before else seconds
