"""What the slots of a scope have used: tokens, seconds that places were held, and how many places were taken.

Here: counting. Never here: what a window holds (`gates/window_usage.py`) and who may start.
"""

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


class UsageMeter:
    """The running totals of one scope.

    `place_balance` is the sum of the times at which places were freed, less those at which they were taken.
    With the places that are live it gives the seconds held at any time, without a step for each slot.
    """

    __slots__ = ("began_at", "place_balance", "starts", "tokens")

    def __init__(self, now: float) -> None:
        self.began_at = now
        self.place_balance = 0.0
        self.starts = 0
        self.tokens = 0.0

    def use(self, live: int, now: float) -> Use:
        """Return what was used up to now, with `live` places held."""
        return Use(self.tokens, self.place_balance + live * now, self.starts)

    def shift(self, seconds: float, live: int) -> None:
        """Keep what was used when the clock is set back."""
        self.began_at -= seconds
        self.place_balance += live * seconds
