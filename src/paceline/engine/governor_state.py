"""The Governor's state in the store: how a leader loads what was learnt, and saves it."""

from collections.abc import Iterable

import msgspec

from paceline.core import Governor, GovernorSettings, Snapshot
from paceline.store import Campaign, Store

GOVERNOR_STATE = "governor"


def load_governor(store: Store, settings: GovernorSettings, now: float) -> Governor:
    """Load limits, pauses, windows and what was learnt. Slots are not loaded: recovery adopts what still runs."""
    stored = store.load_state(GOVERNOR_STATE)
    if stored is None:
        return Governor(settings, now=now)
    snapshot = msgspec.json.decode(stored, type=Snapshot)
    return Governor.restore(snapshot, now=now, settings=settings, keep_slots=False)


def save_governor(store: Store, governor: Governor) -> None:
    store.save_state(GOVERNOR_STATE, msgspec.json.encode(governor.snapshot()))


def apply_campaign_limits(governor: Governor, campaigns: Iterable[Campaign], now: float) -> None:
    """Set the limit of each campaign's scope to its `max_sessions`."""
    for campaign in campaigns:
        scope = f"campaign:{campaign.name}"
        if governor.get_limit(scope) != campaign.max_sessions:
            governor.set_limit(scope, campaign.max_sessions, now=now)
