"""One reading of everything that views are built from."""

from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

import msgspec

from paceline.core import Governor, ScopeStatus
from paceline.settings import Settings
from paceline.store import Campaign, Store, UnitCounts


class FleetState(msgspec.Struct, frozen=True, kw_only=True):
    """The store, the Governor and the settings at the time `now`.

    Campaigns, counts and scopes are read once, so that views which are shown together agree.
    """

    store: Store
    governor: Governor
    settings: Settings
    zone: ZoneInfo
    now: float
    campaigns: Sequence[Campaign]
    counts: Mapping[str, UnitCounts]
    scopes: Mapping[str, ScopeStatus]

    def counts_of(self, campaign: str) -> UnitCounts:
        return self.counts.get(campaign, UnitCounts())


def read_fleet(
    store: Store,
    governor: Governor,
    settings: Settings,
    zone: ZoneInfo,
    *,
    statuses: Sequence[ScopeStatus],
    now: float,
    campaigns: Sequence[Campaign] | None = None,
) -> FleetState:
    """Read the store once. `statuses` are those of the Governor; `campaigns` are the stored ones by default."""
    return FleetState(
        store=store,
        governor=governor,
        settings=settings,
        zone=zone,
        now=now,
        campaigns=store.campaigns() if campaigns is None else campaigns,
        counts=store.counts(),
        scopes={status.scope: status for status in statuses},
    )
