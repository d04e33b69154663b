"""Lookup of the unit that a person named, with a suggestion if there is none."""

from paceline.config_files.documents import did_you_mean
from paceline.errors import InvalidInput, UnknownName
from paceline.store import Store, Unit
from paceline.views.units import iter_units

MOST_SEARCHED = 20_000
"""Units searched for a suggestion; in a store of a million the nearest name is not worth the wait."""


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
