"""One reading of everything that views are built from."""

from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

import msgspec

from paceline.core import Governor, ScopeStatus
from paceline.core.values.scopes import KEY
from paceline.engine.key_commands import present_keys, scope_of_key
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
        scopes={status.scope: status for status in _without_revoked(store, statuses)},
    )


def _without_revoked(store: Store, statuses: Sequence[ScopeStatus]) -> Sequence[ScopeStatus]:
    """Leave out the scopes of keys that were revoked, once no call of theirs is left."""
    if not any(status.scope.startswith(KEY) for status in statuses):
        return statuses
    present = {scope_of_key(each.key.name) for each in present_keys(store.client_keys())}
    return [
        status for status in statuses if status.scope in present or not status.scope.startswith(KEY) or is_busy(status)
    ]


def is_busy(status: ScopeStatus) -> bool:
    """Return whether something runs or waits in the scope, or it is held or paused."""
    return bool(status.in_flight or status.queued or status.held is not None or status.paused)
