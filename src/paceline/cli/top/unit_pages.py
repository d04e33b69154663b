"""Units page by page, those that matter first: what runs, what failed, what waits, what is done.

Every part is in plan order and found through the index of states, so that a page costs the same among a million.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from paceline.cli.commands.stored_state import phase_of
from paceline.core.unit_lifecycle import UnitState
from paceline.store import Store, Unit, UnitCounts

Phase = Literal["running", "quarantined", "held", "parked", "waiting", "done", "cancelled"]
PHASES: Final[tuple[Phase, ...]] = ("running", "quarantined", "held", "parked", "waiting", "done", "cancelled")
PARTS: Final[tuple[UnitState, ...]] = ("running", "quarantined", "held", "todo", "done", "cancelled")
PAGE_ROWS = 200
MOST_LOOKED_AT = 20_000
"""Parked and waiting units stand together in the store; a page ends after so many of the other kind."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which units to show; None for any."""

    campaign: str | None = None
    phase: Phase | None = None

    def parts(self) -> tuple[UnitState, ...]:
        match self.phase:
            case None:
                return PARTS
            case "parked" | "waiting":
                return ("todo",)
            case state:
                return (state,)

    def has(self, unit: Unit) -> bool:
        return self.phase is None or phase_of(unit) == self.phase

    def count(self, counts: dict[str, UnitCounts]) -> int:
        """How many there are, from the tallies."""
        chosen = [each for name, each in counts.items() if self.campaign in (None, name)]
        return sum(_counted(each, self.phase) for each in chosen)


def _counted(counts: UnitCounts, phase: Phase | None) -> int:
    if phase is None:
        return sum(getattr(counts, part) for part in PARTS)
    return counts.todo - counts.parked if phase == "waiting" else int(getattr(counts, phase))


class Place(msgspec.Struct, frozen=True):
    """Where a page begins: in which part, after which unit of it, and after how many in all."""

    part: int = 0
    cursor: str | None = None
    before: int = 0


class UnitPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some units, how many there are in all, and where the next page begins."""

    units: tuple[Unit, ...]
    total: int
    following: Place | None


def read_page(store: Store, choice: Choice, place: Place) -> UnitPage:
    total = choice.count(store.counts())
    wanted = min(PAGE_ROWS, total - place.before)
    found: list[Unit] = []
    here: Place | None = place
    looked_at = 0
    while here is not None and len(found) < wanted and looked_at < MOST_LOOKED_AT:
        state = choice.parts()[here.part]
        page = store.units(campaign=choice.campaign, state=state, limit=PAGE_ROWS, cursor=here.cursor)
        found += [unit for unit in page.units if choice.has(unit)]
        looked_at += len(page.units)
        here = _after(here, page.cursor, choice.parts(), place.before + len(found))
    is_last = here is None or here.before >= total
    return UnitPage(units=tuple(found), total=total, following=None if is_last else here)


def _after(place: Place, cursor: str | None, parts: Sequence[UnitState], before: int) -> Place | None:
    if cursor is not None:
        return Place(place.part, cursor, before)
    return Place(place.part + 1, None, before) if place.part + 1 < len(parts) else None
