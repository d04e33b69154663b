"""What the slots of a scope have used: tokens, seconds of places, starts; how long one lasts, and what a run uses.

Here: counting, and the one estimate of each. Never here: what a window holds (`gates/window_usage.py`) and who may
start.
"""

import math
from dataclasses import dataclass

import msgspec


class Use(msgspec.Struct, frozen=True):
    """An amount of use: tokens where they are known, seconds that places were held, places taken."""

    tokens: float = 0.0
    seconds: float = 0.0
    starts: int = 0

    def since(self, before: "Use") -> "Use":
        """Return what was used after `before`."""
        return Use(self.tokens - before.tokens, self.seconds - before.seconds, self.starts - before.starts)

    def share_of(self, size: "Use") -> float:
        """Return the ratio by tokens where both know them, else by time."""
        if self.tokens > 0 and size.tokens > 0:
            return self.tokens / size.tokens
        return self.seconds / size.seconds if size.seconds > 0 else 0.0


@dataclass(slots=True, eq=False)
class UsageMeter:
    """The running totals of one scope.

    `place_balance` is the sum of the times at which places were freed, less those at which they were taken.
    With the places that are live it gives the seconds held at any time, without a step for each slot.
    """

    began_at: float
    place_balance: float = 0.0
    starts: int = 0
    tokens: float = 0.0

    def use(self, live: int, now: float) -> Use:
        """Return what was used up to now, with `live` places held."""
        return Use(self.tokens, self.place_balance + live * now, self.starts)

    def shift(self, seconds: float, live: int) -> None:
        self.began_at -= seconds
        self.place_balance += live * seconds


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


NEW_SHARE = 0.05
"""Weight of the latest run in the mean.

Run sizes have a heavy tail: with 0.1 a single large run moves the estimate by a tenth of itself and the gates
that count with it hold the next ten back. With 0.05 it takes about twenty runs to follow a lasting change.
"""
NEW_SPREAD_SHARE = 0.02
"""Weight of the latest run in the spread: large runs are rare, and about fifty are needed to see how large they get."""
FIRST_SPREAD = 1.0
"""The variance of the logarithm before much is known: one run in forty is four times the mean."""


class TokenEstimate(msgspec.Struct):
    """A moving mean of tokens per run, 0 until the first has reported its tokens, and the spread of their logarithm.

    Sizes are taken as log-normal: most are small, a few are many times the mean.
    """

    mean: float = 0.0
    log_mean: float = 0.0
    spread: float = FIRST_SPREAD

    def on_tokens(self, tokens: int) -> None:
        """Take in what one more run used."""
        logarithm = math.log(max(1, tokens))
        if not self.mean:
            self.log_mean = logarithm
        off = logarithm - self.log_mean
        self.log_mean += off * NEW_SHARE
        self.spread += (off * off - self.spread) * NEW_SPREAD_SHARE
        self.mean += (tokens - self.mean) * (NEW_SHARE if self.mean else 1.0)

    def largest_of(self, runs: int, deviations: float) -> float:
        """Return what so many runs use together, if they are larger than usual by so many standard deviations."""
        large = self.mean * math.exp(deviations * math.sqrt(self.spread) - self.spread / 2)
        return self.mean * runs + (large - self.mean) * math.sqrt(runs)
