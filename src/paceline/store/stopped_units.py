"""Units that wait for a person, counted by their reason."""

import msgspec

from paceline.core.unit_lifecycle import UnitState


class StoppedUnits(msgspec.Struct, frozen=True, kw_only=True):
    """Units of one campaign that wait for a person, all in one state and for one reason."""

    campaign: str
    state: UnitState
    reason: str | None
    units: int
    example: str
    """The id of one of them."""
