"""Shell completion of campaigns, units and scopes. It never fails: without a home there is nothing to offer."""

import os
from collections.abc import Callable

from paceline.cli.unit_lookup import MOST_SEARCHED
from paceline.cli.wiring import Home, open_home
from paceline.errors import PacelineError
from paceline.views.units import iter_units

MOST_COMPLETED = 200
"""More names than this do not help anyone who presses Tab."""


def complete_campaign(incomplete: str) -> list[str]:
    return _complete(incomplete, lambda home: [campaign.name for campaign in home.store.campaigns()])


def complete_unit(incomplete: str) -> list[str]:
    """Offer campaigns first, as a shell offers folders, then the units of one."""
    campaign, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in complete_campaign(incomplete)]
    return _complete(
        incomplete, lambda home: [unit.id for unit in iter_units(home.store, campaign=campaign, most=MOST_SEARCHED)]
    )


def complete_target(incomplete: str) -> list[str]:
    """Offer campaigns, and the units of one behind its slash."""
    return complete_unit(incomplete) if "/" in incomplete else complete_campaign(incomplete)


def complete_scope(incomplete: str) -> list[str]:
    return _complete(incomplete, _scopes)


def _scopes(home: Home) -> list[str]:
    accounts = [account.scope for account in home.settings.accounts.values()]
    campaigns = [f"campaign:{campaign.name}" for campaign in home.store.campaigns()]
    return sorted({*home.settings.limits, *accounts, *campaigns})


def _complete(incomplete: str, names: Callable[[Home], list[str]]) -> list[str]:
    try:
        with open_home(os.environ) as home:
            return [name for name in names(home) if name.startswith(incomplete)][:MOST_COMPLETED]
    except (PacelineError, OSError):
        return []
