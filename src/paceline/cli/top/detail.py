"""One unit from near: what holds it, how its tries went, and what its last try showed. Values only."""

import msgspec

from paceline.cli.commands.why import Why, explain_unit
from paceline.cli.wiring import Home
from paceline.store import StoredEvent, Unit
from paceline.views.safe_text import last_screen

MOST_EVENTS = 200


class UnitDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`screen` is the end of what its last try showed; None where that is not here any more."""

    unit: Unit
    whys: tuple[Why, ...]
    events: tuple[StoredEvent, ...]
    screen: str | None


def read_detail(home: Home, unit_id: str) -> UnitDetail | None:
    """None for a unit that is not there any more."""
    unit = home.store.unit(unit_id)
    campaign = next((each for each in home.store.campaigns() if unit is not None and each.name == unit.campaign), None)
    if unit is None or campaign is None:
        return None
    folder = home.spool().folder(unit.attempt_id) if unit.attempt_id is not None else None
    return UnitDetail(
        unit=unit,
        whys=tuple(explain_unit(home, unit, campaign)),
        events=tuple(home.store.events(unit=unit_id, limit=1_000_000)[-MOST_EVENTS:]),
        screen=last_screen(folder) if folder is not None else None,
    )
