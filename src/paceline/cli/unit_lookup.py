"""Finding the unit that a person named, with a suggestion where there is none. And completion."""

import os
from collections.abc import Callable, Iterator

from paceline.cli.wiring import Home, open_home
from paceline.config_files.documents import did_you_mean
from paceline.errors import InvalidInput, PacelineError, UnknownName
from paceline.store import Store, Unit

MOST_SEARCHED = 20_000
"""Units looked at for a suggestion; among a million the nearest name is not worth the wait."""
MOST_COMPLETED = 200


def find_unit(store: Store, name: str) -> Unit:
    """By `campaign/unit`, or by the unit's own id where only one campaign has it."""
    unit = store.unit(name) if "/" in name else None
    if unit is not None:
        return unit
    ids = [f"{campaign.name}/{name}" for campaign in store.campaigns()]
    found = [unit for each in ids if (unit := store.unit(each)) is not None]
    if len(found) > 1:
        raise InvalidInput(f"several campaigns have a unit {name!r:.80}: {', '.join(unit.id for unit in found)}")
    if found:
        return found[0]
    known = [unit.id for unit in every_unit(store, most=MOST_SEARCHED)]
    hint = did_you_mean(name, known) or did_you_mean(name, [each.partition("/")[2] for each in known])
    raise UnknownName(f"there is no unit {name!r:.80}{hint or '; `paceline units CAMPAIGN` lists them'}")


def every_unit(store: Store, campaign: str | None = None, *, most: int) -> Iterator[Unit]:
    """Page after page, without prompts."""
    cursor: str | None = None
    while most > 0:
        page = store.units(campaign=campaign, limit=min(most, 1000), cursor=cursor)
        yield from page.units
        most -= len(page.units)
        cursor = page.cursor
        if cursor is None:
            return


# -- completion --------------------------------------------------------------------------------


def complete_campaign(incomplete: str) -> list[str]:
    return _complete(incomplete, lambda home: [campaign.name for campaign in home.store.campaigns()])


def complete_unit(incomplete: str) -> list[str]:
    """Campaigns first, as folders of a path are; then the units of one."""
    campaign, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in complete_campaign(incomplete)]
    return _complete(
        incomplete, lambda home: [unit.id for unit in every_unit(home.store, campaign, most=MOST_SEARCHED)]
    )


def complete_scope(incomplete: str) -> list[str]:
    return _complete(incomplete, _scopes)


def _scopes(home: Home) -> list[str]:
    accounts = [account.scope for account in home.settings.accounts.values()]
    campaigns = [f"campaign:{campaign.name}" for campaign in home.store.campaigns()]
    return sorted({*home.settings.limits, *accounts, *campaigns})


def _complete(incomplete: str, names: Callable[[Home], list[str]]) -> list[str]:
    """Completion never complains: where nothing can be looked up there is nothing to offer."""
    try:
        with open_home(os.environ) as home:
            return [name for name in names(home) if name.startswith(incomplete)][:MOST_COMPLETED]
    except (PacelineError, OSError):
        return []
