"""The report on a campaign: sums, what needs a person, what stands out, in the same memory for any number of units."""

import msgspec
import pytest

from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.session_output import Tokens
from paceline.errors import UnknownName
from paceline.store import Cost, OutcomeRecord, Page, SqliteStore, Unit, UnitCounts, UnitResult
from paceline.testing.store_steps import NOW, add, claim, ended, specs
from paceline.views.campaign_report import PAGE_UNITS, WorkTotals, read_report, report_in_steps
from paceline.views.units import ListedUnit, iter_results

replace = msgspec.structs.replace


def ran(unit: Unit, ending: str, seconds: float, **result: object) -> OutcomeRecord:
    how = ended(unit, ending, resume_at=NOW + 60.0 if ending == "parked" else None)  # type: ignore[arg-type]
    return replace(how, result=UnitResult(agent="claude", ran_seconds=seconds, **result))  # type: ignore[arg-type]


def listed(name: str, state: UnitState, seconds: float, cost: Cost) -> ListedUnit:
    reason = {"done": "it succeeded", "quarantined": "it failed", "unverified": "it unverified"}[state]
    return ListedUnit(
        id=f"night/{name}",
        state=state,
        reason=reason,
        ran_seconds=seconds,
        cost=cost,
        branch=None,
    )


def test_the_report_sums_up_and_names_what_needs_a_person_and_what_stands_out() -> None:
    store = SqliteStore.in_memory()
    add(store, specs("cheap", "dear", "bad", "unsure", "unknown", "waits"))
    cheap, dear, bad, unsure, unknown = claim(store, 5)
    spent = Tokens(input=10, output=5)
    store.record_outcomes(
        [
            ran(cheap, "succeeded", 60.0, tokens=spent, cost=Cost(imputed=0.5), turns=2, files_changed=1),
            ran(dear, "succeeded", 30.0, tokens=spent, cost=Cost(billed=2.0), lines_added=7),
            ran(bad, "failed", 600.0),
            ran(unsure, "unverified", 1.0, tokens=spent, cost=Cost(imputed=0.25), parked_seconds=9.0),
            ran(unknown, "succeeded", 2.0, tokens=spent),
        ],
        now=NOW + 10.0,
    )

    report = read_report(store, "night")

    assert report.units == UnitCounts(todo=1, done=3, unverified=1, quarantined=1)
    assert report.totals == WorkTotals(
        tokens=Tokens(input=40, output=20),
        cost=Cost(billed=2.0, imputed=0.75),
        unpriced=2,
        turns=2,
        tries=5,
        ran_seconds=693.0,
        parked_seconds=9.0,
        files_changed=1,
        lines_added=7,
    )
    assert report.needs_you == [
        listed("unsure", "unverified", 1.0, Cost(imputed=0.25)),
        listed("bad", "quarantined", 600.0, Cost()),
    ]
    assert [unit.id for unit in report.slowest] == [
        f"night/{name}" for name in ("bad", "cheap", "dear", "unknown", "unsure")
    ]
    assert report.most_expensive == [
        listed("dear", "done", 30.0, Cost(billed=2.0)),
        listed("cheap", "done", 60.0, Cost(imputed=0.5)),
        listed("unsure", "unverified", 1.0, Cost(imputed=0.25)),
    ]
    assert (report.first_started_at, report.last_ended_at) == (NOW, NOW + 10.0)


def test_a_campaign_that_never_ran_has_a_report_without_numbers() -> None:
    store = SqliteStore.in_memory()
    add(store, specs("a"))

    report = read_report(store, "night")

    assert (report.totals, report.needs_you, report.slowest) == (WorkTotals(), [], [])
    with pytest.raises(UnknownName):
        read_report(store, "day")


class CountingStore(SqliteStore):
    """Counts the units that were read and are still in use."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.pages: list[int] = []

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        bound_to: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        page = super().units(campaign=campaign, state=state, bound_to=bound_to, limit=limit, cursor=cursor)
        self.pages.append(len(page.units))
        return page


def test_rows_and_reports_read_page_by_page_and_hold_no_more() -> None:
    store = CountingStore()
    add(store, specs(*(f"u{number}" for number in range(2_500))))
    store.record_outcomes([ran(unit, "succeeded", 1.0 + unit.position) for unit in claim(store, 2_500)], now=NOW)

    rows = iter_results(store, "night")
    next(rows)
    assert store.pages == [1000]  # nothing is read ahead
    assert sum(1 for _ in rows) == 2_499
    assert store.pages == [1000, 1000, 500]

    store.pages.clear()
    *steps, report = report_in_steps(store, "night")
    assert steps == [None] * 12
    assert store.pages[:13] == [PAGE_UNITS] * 12 + [100]
    assert report is not None
    assert [unit.ran_seconds for unit in report.slowest] == [2500.0, 2499.0, 2498.0, 2497.0, 2496.0]
