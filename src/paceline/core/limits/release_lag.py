"""How long the provider still counts a slot after its release, learnt from starts that are refused right after one.

Here: numbers. Never here: the limit itself (`adaptive_limit.py`).
"""

import math

import msgspec

FIRST_LAG_SECONDS = 1.0
"""What the first lesson begins with: a provider whose lag is noticed at all lags by seconds."""
LONGEST_LAG_SECONDS = 30.0
"""A start refused longer than this after the releases before it was not refused for their lag."""
FIRST_GROWTH = 1.5
"""What the first lesson adds, as a share. The n-th adds an n-th of it: each knows more than the one before."""
LEAST_GROWTH = 0.25
"""What every lesson adds at least, so that a lag that grew is learnt as well."""
REFUSED_SHARE = 0.0015
"""The share of starts that may be refused for the lag: to avoid these too would cost more places than it saves."""
MOST_COOLING = 0.25
"""The share of places that may cool down on average: where calls are short, a lag of seconds would block them all."""
KEPT_RELEASES = 16
"""Releases to remember: enough for their rate, and for the gap between a limit and what was running."""


class ReleaseLag(msgspec.Struct):
    """The learnt lag of one scope. Released slots are counted for so many `seconds`.

    `lessons` are the refusals blamed on it. `unblamed_seconds` is what it was before the last of them, until a success
    confirms that one. It grows with each lesson and shrinks with each release, so that it settles where the share
    `REFUSED_SHARE` of the starts is refused.
    """

    seconds: float = 0.0
    lessons: int = 0
    unblamed_seconds: float | None = None
    releases: list[float] = []

    def on_release(self, now: float) -> None:
        self.releases.append(now)
        if len(self.releases) > KEPT_RELEASES:
            del self.releases[0]
        self.seconds *= 1.0 - REFUSED_SHARE * math.log(self._growth())

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
        self.lessons += 1
        longer = max(FIRST_LAG_SECONDS, self.seconds, seen) * self._growth()
        seconds_per_release = max(1.0, now - self.releases[0]) / len(self.releases) if self.releases else math.inf
        self.seconds = min(LONGEST_LAG_SECONDS, longer, MOST_COOLING * places * seconds_per_release)

    def take_back_blame(self) -> None:
        """Undo the last blame: the next start was refused too, so the lag was not the cause."""
        if self.unblamed_seconds is not None:
            self.seconds, self.unblamed_seconds = self.unblamed_seconds, None
            self.lessons -= 1

    def clear(self) -> None:
        """Forget what was learnt, not when slots were released."""
        self.seconds, self.lessons, self.unblamed_seconds = 0.0, 0, None

    def _growth(self) -> float:
        """Return the factor of the last lesson."""
        return 1.0 + max(LEAST_GROWTH, FIRST_GROWTH / max(1, self.lessons))

    def shift(self, seconds: float) -> None:
        """Keep the ages of the releases when the clock is set back."""
        self.releases = [at - seconds for at in self.releases]


def total_age(ages: list[float], count: int) -> float:
    """Return the sum of the ages; infinite where fewer than `count` are known."""
    return sum(ages) if len(ages) == count else math.inf
