"""The report on a campaign: what is done, what needs a person, what it cost, and which units stand out.

It reads a page of units at a time and keeps sums and a few units, so it takes the same memory for 100,000 units.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.fields import fields_of
from paceline.core.values.session_output import Tokens
from paceline.engine.commands import find_campaign
from paceline.store import CampaignState, Store, Unit, UnitCounts
from paceline.store.unit_result import Cost, WorkSums
from paceline.views.safe_text import printable
from paceline.views.units import ListedUnit, unit_row

PAGE_UNITS: Final = 200
"""Units of one step: a few milliseconds, so that an engine on the same loop is not held up."""
MOST_LISTED: Final = 20
MOST_NOTABLE: Final = 5
NEEDS_PERSON: Final[tuple[UnitState, ...]] = ("unverified", "quarantined", "held")


class WorkTotals(WorkSums, frozen=True, kw_only=True):
    """Sums over all units of a campaign."""

    unpriced: int = 0
    """Units that used a model at a cost that is not known, as their tokens may be. The cost is that of the others."""
    tries: int = 0
    parks: int = 0


class CampaignReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report. `needs_you` and the last two lists have the first few units only."""

    campaign: str
    state: CampaignState
    pause_reason: str | None
    created_at: float
    first_started_at: float | None
    last_ended_at: float | None
    units: UnitCounts
    totals: WorkTotals
    needs_you: list[ListedUnit]
    slowest: list[ListedUnit]
    most_expensive: list[ListedUnit]


def read_report(store: Store, name: str) -> CampaignReport:
    """Return the report on a campaign. Raise `UnknownName` if there is no such campaign."""
    return next(report for report in report_in_steps(store, name) if report is not None)


def report_in_steps(store: Store, name: str) -> Iterator[CampaignReport | None]:
    """Yield None for every page of units that was read, and then the report."""
    campaign, totals = find_campaign(store, name), WorkTotals()
    first_started_at = last_ended_at = None
    slowest: list[Unit] = []
    most_expensive: list[Unit] = []
    page = store.units(campaign=campaign.name, limit=PAGE_UNITS)
    while True:
        begun = [(unit, unit.begun_at or unit.started_at) for unit in page.units]
        starts = [first_started_at, *(at for _, at in begun)]
        ends = [last_ended_at, *(unit.ended_at for unit, at in begun if at is not None)]
        first_started_at = min((at for at in starts if at is not None), default=None)
        last_ended_at = max((at for at in ends if at is not None), default=None)
        for unit in page.units:
            totals = _with_unit(totals, unit)
        slowest = _largest((*slowest, *page.units), _ran_seconds)
        most_expensive = _largest((*most_expensive, *page.units), _dollars)
        if page.cursor is None:
            break
        yield None
        page = store.units(campaign=campaign.name, limit=PAGE_UNITS, cursor=page.cursor)
    reason = None if campaign.pause_reason is None else printable(campaign.pause_reason)
    yield CampaignReport(
        **fields_of(CampaignReport, campaign) | {"pause_reason": reason},
        campaign=campaign.name,
        first_started_at=first_started_at,
        last_ended_at=last_ended_at,
        units=store.counts()[campaign.name],
        totals=totals,
        needs_you=_needs_you(store, campaign.name),
        slowest=[_listed(unit) for unit in slowest],
        most_expensive=[_listed(unit) for unit in most_expensive],
    )


def _needs_you(store: Store, campaign: str) -> list[ListedUnit]:
    found: list[ListedUnit] = []
    for state in NEEDS_PERSON:
        page = store.units(campaign=campaign, state=state, limit=MOST_LISTED)
        found += [_listed(unit) for unit in page.units[: MOST_LISTED - len(found)]]
    return found


def _largest(units: Iterable[Unit], value_of: Callable[[Unit], float]) -> list[Unit]:
    """Return the few units with the largest values, larger first, of equal ones the first. A value of 0 is none."""
    return heapq.nlargest(MOST_NOTABLE, (unit for unit in units if value_of(unit) > 0), key=value_of)


def _ran_seconds(unit: Unit) -> float:
    return unit.result.ran_seconds


def _dollars(unit: Unit) -> float:
    return (unit.result.cost.billed or 0.0) + (unit.result.cost.imputed or 0.0)


def _listed(unit: Unit) -> ListedUnit:
    return ListedUnit(**fields_of(ListedUnit, unit_row(unit)))


def _with_unit(totals: WorkTotals, unit: Unit) -> WorkTotals:
    result = unit.result
    sums = {name: _sum(getattr(totals, name), getattr(result, name)) for name in WorkSums.__struct_fields__}
    has_tokens = result.tokens is not None and result.tokens.total > 0
    has_worked = result.tokens is None and result.ran_seconds > 0 and result.agent not in (None, "command")
    return WorkTotals(
        **sums,
        unpriced=totals.unpriced + ((has_tokens or has_worked) and result.cost == Cost()),
        tries=totals.tries + unit.counters.attempts,
        parks=totals.parks + unit.counters.parks,
    )


def _sum(one: Any, other: Any) -> Any:
    """Return the sum of two figures. What is not known adds nothing."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Cost):
        return Cost(billed=_sum(one.billed, other.billed), imputed=_sum(one.imputed, other.imputed))
    return one.plus(other) if isinstance(one, Tokens) else one + other
