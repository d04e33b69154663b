"""The gentlest pace that makes a campaign's deadline, from how long its tries have taken."""

import math
from collections.abc import Iterable, Mapping

from paceline.store import Campaign, UnitCounts

MARGIN = 1.2
"""Tries differ in length, and some are repeated."""
WEIGHT_OF_NEWS = 0.2


class Deadlines:
    """Remembers the mean length of tries by campaign."""

    def __init__(self) -> None:
        self._mean_seconds: dict[str, float] = {}

    def on_try(self, campaign: str, seconds: float) -> None:
        mean = self._mean_seconds.get(campaign, seconds)
        self._mean_seconds[campaign] = mean + WEIGHT_OF_NEWS * (seconds - mean)

    def sessions_needed(self, campaign: Campaign, counts: UnitCounts, now: float) -> int | None:
        """How many at once make it; None for flat out: no deadline, a missed one, or nothing known yet."""
        mean = self._mean_seconds.get(campaign.name)
        if campaign.deadline is None or campaign.deadline <= now or mean is None:
            return None
        work = (counts.todo + counts.running) * mean * MARGIN
        return max(1, math.ceil(work / (campaign.deadline - now)))

    def most_to_start(
        self, campaigns: Iterable[Campaign], counts: Mapping[str, UnitCounts], now: float
    ) -> dict[str, int]:
        """How many more may start of campaigns that need not run flat out to be done in time."""
        most: dict[str, int] = {}
        for campaign in campaigns:
            count = counts.get(campaign.name, UnitCounts())
            needed = self.sessions_needed(campaign, count, now)
            if needed is not None:
                most[campaign.name] = max(0, needed - count.running)
        return most
