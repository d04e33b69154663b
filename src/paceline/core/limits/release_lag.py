"""How long the provider still counts a slot after its release, learnt from starts that are refused right after one.

Here: numbers. Never here: the limit itself (`adaptive_limit.py`).
"""

import math

import msgspec

FIRST_LAG_SECONDS = 0.5
"""The least that is learnt: a shorter lag would not have been noticed by a start."""
LONGEST_LAG_SECONDS = 30.0
"""A start refused longer than this after the releases before it was not refused for their lag."""
LAG_MARGIN = 1.4
"""What is added to a lag that was seen: the next may be a little longer, and a refusal costs more than the wait."""
LAG_FADES = 0.9998
"""Per release: where one in a thousand is refused for its lag, a longer cooldown would cost more than it saves."""
MOST_COOLING = 0.25
"""The share of places that may cool down on average: where calls are short, a lag of seconds would block them all."""
KEPT_RELEASES = 16
"""Releases to remember: enough for their rate, and for the gap between a limit and what was running."""


class ReleaseLag(msgspec.Struct):
    """The learnt lag of one scope. Released slots are counted for so many `seconds`.

    `unblamed_seconds` is what it was before the last refusal was blamed on the lag, until a success confirms that.
    """

    seconds: float = 0.0
    unblamed_seconds: float | None = None
    releases: list[float] = []

    def on_release(self, now: float) -> None:
        self.releases.append(now)
        if len(self.releases) > KEPT_RELEASES:
            del self.releases[0]
        self.seconds *= LAG_FADES

    def ages(self, count: int, now: float) -> list[float]:
        """Return how long ago the last `count` releases were."""
        return [now - at for at in self.releases[-count:]]

    @property
    def is_blamed(self) -> bool:
        """Whether the last refusal was blamed on the lag, and nothing has gone well since."""
        return self.unblamed_seconds is not None

    def blame(self, seen: float, places: int, now: float) -> None:
        """Count released slots for longer, as far as most of the places stay usable."""
        self.unblamed_seconds = self.seconds
        longer = max(FIRST_LAG_SECONDS, self.seconds, seen) * LAG_MARGIN
        seconds_per_release = max(1.0, now - self.releases[0]) / len(self.releases) if self.releases else math.inf
        self.seconds = min(LONGEST_LAG_SECONDS, longer, MOST_COOLING * places * seconds_per_release)

    def take_back_blame(self) -> None:
        """Undo the last blame: the next start was refused too, so the lag was not the cause."""
        if self.unblamed_seconds is not None:
            self.seconds, self.unblamed_seconds = self.unblamed_seconds, None

    def clear(self) -> None:
        """Forget what was learnt, not when slots were released."""
        self.seconds, self.unblamed_seconds = 0.0, None

    def shift(self, seconds: float) -> None:
        """Keep the ages of the releases when the clock is set back."""
        self.releases = [at - seconds for at in self.releases]


def total_age(ages: list[float], count: int) -> float:
    """Return the sum of the ages; infinite where fewer than `count` are known."""
    return sum(ages) if len(ages) == count else math.inf
