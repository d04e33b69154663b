"""What comes out of a session: the channels on which it prints, and the tokens that it used.

Tokens are of a model call, a run or a unit, by the four kinds that have prices of their own.
"""

from typing import Literal

import msgspec

Channel = Literal["stdout", "stderr", "screen"]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that were used. The four kinds do not overlap: `input` is what was neither read from nor written to a
    cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        return Tokens(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )

    def beyond(self, before: "Tokens") -> "Tokens":
        """Return what came since `before`. A kind that is smaller now counts as nothing new."""
        return Tokens(
            input=max(0, self.input - before.input),
            output=max(0, self.output - before.output),
            cache_read=max(0, self.cache_read - before.cache_read),
            cache_write=max(0, self.cache_write - before.cache_write),
        )

    @property
    def sent(self) -> int:
        """What was sent to the model, cached or not."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write
