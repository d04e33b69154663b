"""Campaigns: their settings, and their progress, which is read from stored events."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping

import msgspec

from paceline.events import ATTEMPT_STARTS
from paceline.store import Campaign, Store, UnitCounts
from paceline.views.capacity import next_resume_at, quota_line
from paceline.views.fleet import FleetState

HOUR_SECONDS = 3600.0
PAGE_EVENTS = 1000
MOST_PAGES = 20
"""Pages that one call reads. A reader that comes back late has many events to read, and the engine shares its loop."""
DONE = "unit.done"
SHORTEST_SPAN_SECONDS = 60.0
"""A pace is measured over a minute at least: the first unit after a second is no 3,600 an hour."""


class CompletionRate(msgspec.Struct, frozen=True, kw_only=True):
    """`per_hour` counts the units done in the last hour. `eta` is when the rest will be done, None if unknown.

    `pace` is how many units an hour brings: the same number, unless the work began less than an hour ago.
    """

    per_hour: int
    pace: float
    eta: float | None

    def eta_after(self, resumes_at: float | None) -> float | None:
        """Return `eta`, but not before the next parked unit resumes: a rate of the past knows nothing of a window."""
        return None if self.eta is None else max(self.eta, resumes_at or 0.0)


class Throughput:
    """Starts and completions of the last hour. `last_event_id` is the last event that it has counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._done: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()
        self._started: dict[str, float] = {}
        self.last_event_id = max(0, store.append_events([]) - PAGE_EVENTS * MOST_PAGES)

    def catch_up(self, now: float) -> None:
        """Count the events that were stored since the last call, and drop those older than an hour."""
        for _ in range(MOST_PAGES):
            events = self._store.events(after=self.last_event_id, limit=PAGE_EVENTS)
            for stored in events:
                self._count(stored.event.name, stored.event.at, stored.event.unit or "")
            if events:
                self.last_event_id = events[-1].id
            if len(events) < PAGE_EVENTS:
                break
        while self._done and self._done[0][0] <= now - HOUR_SECONDS:
            self._counts[self._done.popleft()[1]] -= 1

    def _count(self, name: str, at: float, unit: str) -> None:
        campaign = unit.partition("/")[0]
        if name == DONE:
            self._done.append((at, campaign))
            self._counts[campaign] += 1
        elif name in ATTEMPT_STARTS:
            self._started.setdefault(campaign, at)

    def rate(self, campaign: str, left: int, now: float) -> CompletionRate:
        """Return the rate of one campaign, of which `left` units are still to be done."""
        done = self._counts[campaign]
        return CompletionRate(
            per_hour=done, pace=self._pace([campaign], done, now), eta=self._eta({campaign: left}, now)
        )

    def rate_of_all(self, left: Mapping[str, int], now: float) -> CompletionRate:
        """Return the rate of all campaigns together. `left` are the units of each that are still to be done."""
        done = len(self._done)
        pace = self._pace([name for name, units in self._counts.items() if units], done, now)
        return CompletionRate(per_hour=done, pace=pace, eta=self._eta(left, now))

    def _pace(self, campaigns: Iterable[str], done: int, now: float) -> float:
        """Return the units per hour since the first of these campaigns began, at most an hour ago."""
        starts = [self._started[name] for name in campaigns if name in self._started]
        span = HOUR_SECONDS if not starts else min(HOUR_SECONDS, max(SHORTEST_SPAN_SECONDS, now - min(starts)))
        return done * HOUR_SECONDS / span

    def _eta(self, left: Mapping[str, int], now: float) -> float | None:
        """Extrapolate from the campaigns that have units left: finished ones say nothing about the rest."""
        unfinished = [name for name, units in left.items() if units]
        done = sum(self._counts[name] for name in unfinished)
        starts = [self._started[name] for name in unfinished if name in self._started]
        if not done or not starts:
            return None
        span = min(HOUR_SECONDS, max(1.0, now - min(starts)))
        return now + sum(left.values()) * span / done


class CampaignSummary(Campaign, frozen=True, kw_only=True):
    """A stored campaign with the number of its units in each state."""

    units: UnitCounts

    @property
    def is_finished(self) -> bool:
        """Whether it is active and has nothing left to run."""
        return self.state == "active" and not self.units.todo and not self.units.running

    @property
    def shown_state(self) -> str:
        """The state as people are shown it."""
        return "finished" if self.is_finished else self.state


class CampaignView(CampaignSummary, frozen=True, kw_only=True):
    """A campaign and its progress. `quota` is a sentence for people while a quota window is spent."""

    id: str
    running: int
    finished: bool
    throughput: int
    eta: float | None
    quota: str | None


def campaign_summary(campaign: Campaign, counts: UnitCounts) -> CampaignSummary:
    return CampaignSummary(**msgspec.structs.asdict(campaign), units=counts)


def campaign_views(fleet: FleetState, throughput: Throughput) -> list[CampaignView]:
    """Return every campaign of the fleet. `throughput` must have caught up with the store."""
    return [campaign_view(fleet, campaign, throughput) for campaign in fleet.campaigns]


def campaign_view(fleet: FleetState, campaign: Campaign, throughput: Throughput) -> CampaignView:
    """Return one campaign. `throughput` must have caught up with the store."""
    summary = campaign_summary(campaign, fleet.counts_of(campaign.name))
    left = summary.units.todo + summary.units.running
    rate = throughput.rate(campaign.name, left if campaign.state == "active" else 0, fleet.now)
    resumes_at = next_resume_at(fleet, [campaign]) if summary.units.parked else None
    return CampaignView(
        **msgspec.structs.asdict(summary),
        id=campaign.name,
        running=summary.units.running,
        finished=summary.is_finished,
        throughput=rate.per_hour,
        eta=rate.eta_after(resumes_at),
        quota=quota_line(fleet, campaign) if left else None,
    )
