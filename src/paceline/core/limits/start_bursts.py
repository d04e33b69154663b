"""How many sessions a provider has accepted in a short time. More of them at once may be too many, at any level."""

import msgspec

BURST_SECONDS = 10.0
"""Starts within so many seconds are one burst: providers average starts over about this."""
ROUNDING_SECONDS = 0.01
"""A start so little less than a burst ago is no part of it: spaced starts fall on its edge, and times are rounded."""
FEWEST_IN_BURST = 3
"""Accepted starts that a refused one must follow to be one of a burst: two are no crowd."""
LEAST_LEVEL = 0.25
"""Below this share of the limit a refused burst is no news of the level: few limits are four times too high."""


class StartBursts(msgspec.Struct):
    """When recent sessions that were accepted had started, and the most of them within one burst."""

    accepted: list[float] = []
    most: int = 0

    def on_accepted(self, granted_at: float) -> None:
        self.accepted = [*self._recent(granted_at), granted_at]
        self.most = max(self.most, len(self.accepted))

    def learn(self, live: list[float]) -> None:
        """Begin with the starts of live sessions, where nothing has been counted yet."""
        if not self.accepted and live:
            self.accepted = live
            self.most = max(self.most, len(live))

    def size(self, at: float) -> int:
        """Return how many were accepted in the burst up to a time."""
        return len(self._recent(at))

    def is_over_at(self, at: float) -> float:
        """Return when the first of the burst up to a time is no part of one any more."""
        return min(self._recent(at), default=at - BURST_SECONDS) + BURST_SECONDS

    def is_exceeded_by(self, granted_at: float) -> bool:
        """Return whether a start at that time made a larger burst than any that went well."""
        return self.size(granted_at) >= max(FEWEST_IN_BURST, self.most)

    def _recent(self, at: float) -> list[float]:
        return [start for start in self.accepted if start > at - BURST_SECONDS + ROUNDING_SECONDS]

    def shift(self, seconds: float) -> None:
        """Keep the ages of the starts when the clock is set back."""
        self.accepted = [at - seconds for at in self.accepted]
