"""Fleets for tests of views: a memory store, a Governor and settings, read at a given time."""

from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from paceline.agents.account import Account
from paceline.core import Governor
from paceline.settings import Settings, governor_settings
from paceline.store import Campaign, SqliteStore, UnitSpec
from paceline.views.capacity import FleetState, read_fleet

NOW = 1_794_700_800.0
"""A Sunday, 00:00 UTC, so that times of the same day need no weekday."""


class Fleet:
    """What a view is built from, before it is read."""

    def __init__(self, accounts: Sequence[str] = ()) -> None:
        named = {name: Account(name=name, provider="anthropic", kind="subscription") for name in accounts}
        self.settings = Settings(home=Path("home"), accounts=named, store_url="sqlite:///unused")
        self.store = SqliteStore.in_memory()
        self.governor = Governor(governor_settings(self.settings), now=NOW)

    def add(self, campaign: Campaign, *units: str) -> Campaign:
        """Store a campaign with units of these ids."""
        self.store.add_campaign(campaign, [UnitSpec(id=unit) for unit in units], update=False, now=NOW)
        return campaign

    def read(self, now: float = NOW) -> FleetState:
        """Read it at the time."""
        statuses = self.governor.statuses(now=now)
        return read_fleet(self.store, self.governor, self.settings, ZoneInfo("UTC"), statuses=statuses, now=now)
