"""One unit in detail: what it waits for, its events, and the screen of its last attempt. Values only."""

import msgspec

from paceline.cli.wiring import Home
from paceline.views.transcript import last_output, transcript_provider
from paceline.views.units import UnitDetail, UnitPhase, phase_of, unit_detail, unit_history
from paceline.views.why import Why


class UnitInspection(msgspec.Struct, frozen=True, kw_only=True):
    """A unit with what it waits for. `has_output` is false where the output of its last attempt was deleted."""

    unit: UnitDetail
    phase: UnitPhase
    whys: tuple[Why, ...]
    has_output: bool


def inspect_unit(home: Home, unit_id: str) -> UnitInspection | None:
    """Read the unit, or return None if it was deleted."""
    unit = home.store.unit(unit_id)
    campaign = next((each for each in home.store.campaigns() if unit is not None and each.name == unit.campaign), None)
    if unit is None or campaign is None:
        return None
    folder = home.spool().folder(unit.attempt_id) if unit.attempt_id is not None else None
    provider = transcript_provider(home.store, home.settings, unit)
    screen = "" if folder is None else last_output(folder, provider, home.zone)
    return UnitInspection(
        unit=unit_detail(unit, screen=screen, history=unit_history(home.store, unit_id)),
        phase=phase_of(unit),
        whys=tuple(home.explain_unit(unit, campaign)),
        has_output=folder is not None,
    )
