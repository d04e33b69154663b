"""Lookup of the unit or the campaign that a person named, with a suggestion if there is none."""

from paceline.config_files.documents import did_you_mean
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import InvalidInput, UnknownName
from paceline.store import Campaign, Store, Unit
from paceline.views.units import iter_units

MOST_SEARCHED = 20_000
"""Units searched for a suggestion; in a store of a million the nearest name is not worth the wait."""


def find_target(store: Store, name: str) -> Unit | Campaign:
    """Return what a command acts on. A name with a slash is a unit; another is a campaign, else a unique unit id."""
    campaigns = {campaign.name: campaign for campaign in store.campaigns()}
    campaign = None if "/" in name else campaigns.get(name)
    if campaign is None:
        is_unit = "/" in name or any(store.unit(f"{each}/{name}") is not None for each in campaigns)
        return find_unit(store, name) if is_unit else find_campaign(store, name)
    units = [f"{each}/{name}" for each in campaigns if store.unit(f"{each}/{name}") is not None]
    if units:
        raise InvalidInput(f"{name!r:.80} is a campaign and also the unit {units[0]}; name the unit as {units[0]}")
    return campaign


def find_unit(store: Store, name: str) -> Unit:
    """Return the unit named `campaign/unit`, or by its own id if only one campaign has it."""
    unit = store.unit(name) if "/" in name else None
    if unit is not None:
        return unit
    ids = [f"{campaign.name}/{name}" for campaign in store.campaigns()]
    found = [unit for each in ids if (unit := store.unit(each)) is not None]
    if len(found) > 1:
        raise InvalidInput(f"several campaigns have a unit {name!r:.80}: {', '.join(unit.id for unit in found)}")
    if found:
        return found[0]
    known = [unit.id for unit in iter_units(store, campaign=None, most=MOST_SEARCHED)]
    hint = did_you_mean(name, known) or did_you_mean(name, [each.partition("/")[2] for each in known])
    raise UnknownName(f"there is no unit {name!r:.80}{hint or '; `paceline units CAMPAIGN` lists them'}")
