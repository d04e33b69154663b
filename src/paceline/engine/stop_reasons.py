"""The reasons for which units have stopped, and which units stopped for the same one."""

import re
from typing import Final

from paceline.store import Store, Unit
from paceline.store.rules import STOPPED_STATES

PAGE_UNITS: Final = 1000
_NUMBERS: Final = re.compile(r"\d+")


def reason_family(reason: str | None) -> str:
    """Return the reason without its numbers: units that stopped at different lines stopped for the same reason."""
    return _NUMBERS.sub("#", reason or "")


def units_like(store: Store, unit: Unit) -> list[str]:
    """Return the ids of the units of its campaign that stopped in the same state and for the same reason.

    A unit that has not stopped is like no other.
    """
    if unit.state not in STOPPED_STATES:
        return []
    family, found, cursor = reason_family(unit.reason), [], None
    while True:
        page = store.units(campaign=unit.campaign, state=unit.state, limit=PAGE_UNITS, cursor=cursor)
        found += [each.id for each in page.units if reason_family(each.reason) == family]
        if page.cursor is None:
            return found
        cursor = page.cursor
