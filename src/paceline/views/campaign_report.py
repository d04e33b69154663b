"""The report on a campaign: what is done, what needs a person, what it cost, and which units stand out.

It reads a page of units at a time and keeps sums and a few units, so it takes the same memory for 100,000 units.
"""

import heapq
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.tokens import Tokens
from paceline.engine.campaign_lookup import find_campaign
from paceline.store import Cost, Store, Unit, UnitCounts
from paceline.store.interface import CampaignState
from paceline.views.safe_text import printable

PAGE_UNITS: Final = 200
"""Units of one step: a few milliseconds, so that an engine on the same loop is not held up."""
MOST_LISTED: Final = 20
MOST_NOTABLE: Final = 5
Number = TypeVar("Number", int, float)
NEEDS_PERSON: Final[tuple[UnitState, ...]] = ("unverified", "quarantined", "held")


class ListedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of the report."""

    id: str
    state: UnitState
    reason: str | None
    ran_seconds: float
    cost: Cost
    branch: str | None


class WorkTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all units of a campaign. None: nothing is known."""

    tokens: Tokens | None = None
    cost: Cost = Cost()
    unpriced: int = 0
    """Units that used tokens whose cost is not known. The cost is that of the others."""
    turns: int | None = None
    tries: int = 0
    parks: int = 0
    ran_seconds: float = 0.0
    waited_seconds: float = 0.0
    parked_seconds: float = 0.0
    lost_tokens: int = 0
    """Context that was paid again after parks."""
    lost_tokens_estimated: int = 0
    files_changed: int | None = None
    lines_added: int | None = None
    lines_removed: int | None = None


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
    report = ReportBuilder(store, name)
    for _ in report.steps():
        pass
    return report.report()


class ReportBuilder:
    """One report in the making."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._campaign = find_campaign(store, name)
        self._totals = WorkTotals()
        self._first_started_at: float | None = None
        self._last_ended_at: float | None = None
        self._slowest = _Largest()
        self._most_expensive = _Largest()

    def steps(self) -> Iterator[None]:
        """Read one page of units per step."""
        cursor: str | None = None
        while True:
            page = self._store.units(campaign=self._campaign.name, limit=PAGE_UNITS, cursor=cursor)
            for unit in page.units:
                self._add(unit)
            cursor = page.cursor
            if cursor is None:
                return
            yield

    def report(self) -> CampaignReport:
        """Return what was read."""
        campaign = self._campaign
        return CampaignReport(
            campaign=campaign.name,
            state=campaign.state,
            pause_reason=None if campaign.pause_reason is None else printable(campaign.pause_reason),
            created_at=campaign.created_at,
            first_started_at=self._first_started_at,
            last_ended_at=self._last_ended_at,
            units=self._store.counts()[campaign.name],
            totals=self._totals,
            needs_you=self._needs_you(),
            slowest=self._slowest.units(),
            most_expensive=self._most_expensive.units(),
        )

    def _add(self, unit: Unit) -> None:
        self._totals = _with_unit(self._totals, unit)
        started, ended = unit.begun_at or unit.started_at, unit.ended_at
        if started is not None:
            self._first_started_at = min(started, self._first_started_at or started)
        if ended is not None and started is not None:
            self._last_ended_at = max(ended, self._last_ended_at or ended)
        cost = unit.result.cost
        self._slowest.add(unit.result.ran_seconds, unit)
        self._most_expensive.add((cost.billed or 0.0) + (cost.imputed or 0.0), unit)

    def _needs_you(self) -> list[ListedUnit]:
        found: list[ListedUnit] = []
        for state in NEEDS_PERSON:
            page = self._store.units(campaign=self._campaign.name, state=state, limit=MOST_LISTED)
            found += [_listed(unit) for unit in page.units[: MOST_LISTED - len(found)]]
        return found


class _Largest:
    """The few units with the largest values, larger first. A value of 0 is none."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ListedUnit]] = []
        self._count = 0

    def add(self, value: float, unit: Unit) -> None:
        if value <= 0:
            return
        self._count += 1  # of equal ones the first stays
        if len(self._heap) < MOST_NOTABLE:
            heapq.heappush(self._heap, (value, -self._count, _listed(unit)))
        elif value > self._heap[0][0]:
            heapq.heapreplace(self._heap, (value, -self._count, _listed(unit)))

    def units(self) -> list[ListedUnit]:
        return [unit for _, _, unit in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


def _listed(unit: Unit) -> ListedUnit:
    return ListedUnit(
        id=unit.id,
        state=unit.state,
        reason=None if unit.reason is None else printable(unit.reason),
        ran_seconds=unit.result.ran_seconds,
        cost=unit.result.cost,
        branch=unit.result.branch,
    )


def _with_unit(totals: WorkTotals, unit: Unit) -> WorkTotals:
    result = unit.result
    has_tokens = result.tokens is not None and result.tokens.total > 0
    tokens = totals.tokens if result.tokens is None else (totals.tokens or Tokens()).plus(result.tokens)
    return WorkTotals(
        tokens=tokens,
        cost=Cost(
            billed=_sum(totals.cost.billed, result.cost.billed), imputed=_sum(totals.cost.imputed, result.cost.imputed)
        ),
        unpriced=totals.unpriced + (has_tokens and result.cost == Cost()),
        turns=_sum(totals.turns, result.turns),
        tries=totals.tries + unit.counters.attempts,
        parks=totals.parks + unit.counters.parks,
        ran_seconds=totals.ran_seconds + result.ran_seconds,
        waited_seconds=totals.waited_seconds + result.waited_seconds,
        parked_seconds=totals.parked_seconds + result.parked_seconds,
        lost_tokens=totals.lost_tokens + result.lost_tokens,
        lost_tokens_estimated=totals.lost_tokens_estimated + result.lost_tokens_estimated,
        files_changed=_sum(totals.files_changed, result.files_changed),
        lines_added=_sum(totals.lines_added, result.lines_added),
        lines_removed=_sum(totals.lines_removed, result.lines_removed),
    )


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return one if other is None else other if one is None else one + other
