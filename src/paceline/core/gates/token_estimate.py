"""The one estimate of how many tokens a run of a scope uses. Every gate that counts tokens reads it."""

import math

import msgspec

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
