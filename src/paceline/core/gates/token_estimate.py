"""The one estimate of how many tokens a run of a scope uses. Every gate that counts tokens reads it."""

import msgspec

NEW_SHARE = 0.05
"""Weight of the latest run in the mean.

Run sizes have a heavy tail: with 0.1 a single large run moves the estimate by a tenth of itself and the gates
that count with it hold the next ten back. With 0.05 it takes about twenty runs to follow a lasting change.
"""


class TokenEstimate(msgspec.Struct):
    """A moving mean of tokens per run; 0 until the first run has reported its tokens."""

    mean: float = 0.0

    def on_tokens(self, tokens: int) -> None:
        """Take in what one more run used."""
        self.mean += (tokens - self.mean) * (NEW_SHARE if self.mean else 1.0)
