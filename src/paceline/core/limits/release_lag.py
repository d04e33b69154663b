"""How long the provider still counts a slot after its release, learnt from starts that are refused right after one.

A longer cooldown costs places while they cool. Where that would cost more than a place, one place is kept free
instead. Here: numbers. Never here: the limit itself (`adaptive_limit.py`).
"""

import math

import msgspec

FIRST_LAG_SECONDS = 0.5
"""The least that is learnt: a shorter lag would not have been noticed by a start."""
LONGEST_LAG_SECONDS = 30.0
"""A start refused longer than this after the releases before it was not refused for their lag."""
LIKELY_LAG_SECONDS = 8.0
"""A lag that may be believed at once; between this and the longest it may as well be a lower limit."""
LIKELY_LAGS = 2.0
"""A lag of up to twice what was seen before may be believed too."""
LAG_MARGIN = 1.4
"""What is added to a lag that was seen: the next may be a little longer, and a refusal costs more than the wait."""
LAG_FADES = 0.9998
"""Per release: where one in a thousand is refused for its lag, a longer cooldown would cost more than it saves."""
MOST_COOLING = 1.5
"""Places that a cooldown may cost on average; beyond it a place kept free costs less."""
LEAST_COOLING = 0.5
"""Below so many places the cooldown costs less than a place kept free; apart from `MOST_COOLING`, so that the two
do not alternate."""
KEPT_RELEASES = 16
"""Releases to remember: enough for their rate, and for the gap between a limit and what was running."""


class ReleaseLag(msgspec.Struct):
    """The learnt lag of one scope. `seconds` is the lag, `kept_free` the places kept free for it.

    `unblamed` is what both were before the last refusal was blamed on the lag, until a success confirms the blame.
    """

    seconds: float = 0.0
    kept_free: int = 0
    unblamed: tuple[float, int] | None = None
    releases: list[float] = []

    def on_release(self, now: float) -> bool:
        """Count a release. Returns whether the lag, which fades, still needs the places kept free for it."""
        self.releases.append(now)
        if len(self.releases) > KEPT_RELEASES:
            del self.releases[0]
        self.seconds *= LAG_FADES
        return self.seconds * self._releases_per_second(now) > LEAST_COOLING

    def keep_one_less(self) -> None:
        """Keep one place less free: from now on the cooldown covers twice as much."""
        self.kept_free -= 1
        self.seconds *= 2

    def ages(self, count: int, now: float) -> list[float]:
        """Return how long ago the last `count` releases were."""
        return [now - at for at in self.releases[-count:]]

    def is_likely(self, total_age: float) -> bool:
        """Return whether the provider may still count releases with this total age."""
        return total_age <= max(LIKELY_LAG_SECONDS, LIKELY_LAGS * self.seconds * (1 + self.kept_free))

    def blame(self, seen: float, now: float) -> None:
        """Count released slots for longer; where that costs more than a place on average, keep one more free."""
        self.unblamed = self.seconds, self.kept_free
        self.seconds = min(LONGEST_LAG_SECONDS, max(FIRST_LAG_SECONDS, self.seconds, seen) * LAG_MARGIN)
        if self.seconds * self._releases_per_second(now) > MOST_COOLING:
            self.kept_free += 1
            self.seconds /= 2

    def take_back_blame(self) -> None:
        """Undo the last blame: the next start was refused too, so the lag was not the cause."""
        if self.unblamed is not None:
            (self.seconds, self.kept_free), self.unblamed = self.unblamed, None

    def clear(self) -> None:
        """Forget what was learnt, not when slots were released."""
        self.seconds, self.kept_free, self.unblamed = 0.0, 0, None

    def shift(self, seconds: float) -> None:
        """Keep the ages of the releases when the clock is set back."""
        self.releases = [at - seconds for at in self.releases]

    def _releases_per_second(self, now: float) -> float:
        return len(self.releases) / max(1.0, now - self.releases[0]) if self.releases else 0.0


def total_age(ages: list[float], count: int) -> float:
    """Return the sum of the ages; infinite where fewer than `count` are known."""
    return sum(ages) if len(ages) == count else math.inf
