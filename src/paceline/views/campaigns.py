"""Campaigns: their settings and their progress."""

import msgspec

from paceline.store import Campaign, UnitCounts
from paceline.store.interface import CampaignState, Delivery, OnDenied, OnLongPark, Permissions, WorkspaceSettings
from paceline.views.fleet import FleetState
from paceline.views.quota import quota_line
from paceline.views.throughput import Throughput


class CampaignSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A stored campaign with the number of its units in each state."""

    name: str
    priority: int
    max_sessions: int | None
    strategy: str
    deadline: float | None
    agent: str
    model: str | None
    accounts: tuple[str, ...]
    max_attempts: int
    timeout: float | None
    command: tuple[str, ...]
    permissions: Permissions | None
    on_denied: OnDenied
    args: tuple[str, ...]
    env: dict[str, str]
    env_pass: tuple[str, ...]
    env_strict: bool
    allow_metered: bool
    check: tuple[str, ...]
    check_timeout: float
    check_rounds: int
    check_prompt: str | None
    commit: bool
    deliver: Delivery | tuple[str, ...]
    workspace: WorkspaceSettings | None
    hosts: tuple[str, ...]
    labels: tuple[str, ...]
    patience: float
    on_long_park: OnLongPark
    state: CampaignState
    pause_reason: str | None
    created_at: float
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
    """Return the campaign with its counts."""
    return CampaignSummary(**msgspec.structs.asdict(campaign), units=counts)


def campaign_views(fleet: FleetState, throughput: Throughput) -> list[CampaignView]:
    """Return every campaign of the fleet. `throughput` must have caught up with the store."""
    return [campaign_view(fleet, campaign, throughput) for campaign in fleet.campaigns]


def campaign_view(fleet: FleetState, campaign: Campaign, throughput: Throughput) -> CampaignView:
    """Return one campaign. `throughput` must have caught up with the store."""
    summary = campaign_summary(campaign, fleet.counts_of(campaign.name))
    left = summary.units.todo + summary.units.running
    rate = throughput.rate(campaign.name, left if campaign.state == "active" else 0, fleet.now)
    resumes_at = fleet.store.next_resume_at() if summary.units.parked else None
    return CampaignView(
        **msgspec.structs.asdict(summary),
        id=campaign.name,
        running=summary.units.running,
        finished=summary.is_finished,
        throughput=rate.per_hour,
        eta=rate.eta_after(resumes_at),
        quota=quota_line(fleet, campaign) if left else None,
    )
