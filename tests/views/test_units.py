"""Units: their phases, pages of them, and their history."""

import pytest
from tests.views.fleets import NOW

from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.errors import InvalidInput
from paceline.events import Event
from paceline.store import Campaign, OutcomeRecord, SqliteStore, Store, UnitCounts, UnitSpec
from paceline.testing.store_steps import add, claim, ended, names, record, specs
from paceline.views import units
from paceline.views.units import (
    PageStart,
    UnitFilter,
    UnitOrder,
    UnitQuery,
    count_in_phase,
    iter_units,
    phase_of,
    read_counted_page,
    read_units,
    stored_state,
    unit_history,
)


def store_with(count: int, parked: int = 0) -> SqliteStore:
    """Return a store with one campaign, of which the first units are parked."""
    store = SqliteStore.in_memory()
    specs = [UnitSpec(id=f"u{number}") for number in range(count)]
    store.add_campaign(Campaign(name="docs"), specs, update=False, now=NOW)
    names = [f"parked-{number}" for number in range(parked)]
    for unit in store.claim_units("docs", "", parked, attempt_ids=names, lease_until=NOW + 60, now=NOW):
        outcome = AttemptOutcome(ending="parked", reason="the quota window is spent", resume_at=NOW + 3600)
        transition = transition_after(unit.counters, outcome, Policy(), NOW)
        store.record_outcomes([OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition)], now=NOW)
    return store


def ids(found: object) -> list[str]:
    return [unit.spec.id for unit in found]  # type: ignore[attr-defined]


def test_a_todo_unit_waits_or_is_parked() -> None:
    page = store_with(2, parked=1).units(campaign="docs")

    assert {unit.spec.id: phase_of(unit) for unit in page.units} == {"u0": "parked", "u1": "waiting"}
    assert [stored_state(each) for each in ("waiting", "parked", "todo", "held")] == ["todo", "todo", "todo", "held"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, ["u0", "u1", "u2"]), ("todo", ["u0", "u1", "u2"]), ("parked", ["u0"]), ("waiting", ["u1", "u2"])],
)
def test_units_are_chosen_by_state_and_by_phase(chosen: UnitFilter | None, expected: list[str]) -> None:
    store = store_with(3, parked=1)

    page = read_units(store, UnitQuery(campaign="docs", chosen=chosen), limit=10)

    assert (ids(page.units), page.cursor) == (expected, None)
    assert ids(iter_units(store, campaign="docs", chosen=chosen, most=10)) == expected
    assert ids(iter_units(store, campaign="docs", chosen=chosen, most=1)) == expected[:1]


def test_a_page_of_waiting_units_behind_many_parked_ones_is_cut_short_and_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(units, "MOST_EXAMINED", 4)
    store = store_with(10, parked=8)

    found, cursor, pages = [], None, 0
    while True:
        page = read_units(store, UnitQuery(campaign="docs", chosen="waiting"), limit=2, cursor=cursor)
        found += ids(page.units)
        pages += 1
        cursor = page.cursor
        if cursor is None:
            break

    assert found == ["u8", "u9"]
    assert pages > 1


def test_a_search_finds_parts_of_ids_reasons_and_accounts_in_any_order_of_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(units, "MOST_EXAMINED", 4)
    store = store_with(12)
    store.claim_units("docs", "Max-1", 1, attempt_ids=["a"], lease_until=NOW + 60, now=NOW)
    store.move_units(["docs/u3"], "held", "a Person is needed", now=NOW)

    def found(search: str, limit: int = 2, order: UnitOrder = "plan") -> list[str]:
        query, seen, cursor = UnitQuery(search=search, order=order), [], None
        while True:
            page = read_units(store, query, limit=limit, cursor=cursor)
            seen += ids(page.units)
            cursor = page.cursor
            if cursor is None:
                return seen

    assert [found(text) for text in ("U1", "person", "max-", "nothing")] == [["u1", "u10", "u11"], ["u3"], ["u0"], []]
    rest = [f"u{number}" for number in (1, 2, *range(4, 12))]
    assert [found("", limit, "attention") for limit in (1, 2, 5, 100)] == [["u0", "u3", *rest]] * 4
    assert found("u1", order="attention") == ["u1", "u10", "u11"]


@pytest.mark.parametrize("cursor", ["7", "9.", "x.1", "0.x", "." * 100])
def test_a_cursor_of_another_order_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="is not a cursor: use the one that came with the page before"):
        read_units(store_with(2), UnitQuery(order="attention"), limit=1, cursor=cursor)


def test_pages_for_people_show_what_needs_attention_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "PAGE_UNITS", 2)
    store = store_with(5)
    store.claim_units("docs", "", 1, attempt_ids=["a"], lease_until=NOW + 60, now=NOW)
    store.move_units(["docs/u3"], "held", "a person is needed", now=NOW)

    found: list[str] = []
    start: PageStart | None = PageStart()
    while start is not None:
        page = read_counted_page(store, UnitQuery(order="attention"), start)
        found += ids(page.units)
        assert page.total == 5
        start = page.following

    assert found == ["u0", "u3", "u1", "u2", "u4"]


def test_phases_are_counted_from_the_tallies() -> None:
    counts = UnitCounts(todo=5, parked=2, running=1, done=4)

    assert count_in_phase(counts, None) == 10
    assert count_in_phase(counts, "waiting") == 3
    assert count_in_phase(counts, "parked") == 2
    assert count_in_phase(counts, "done") == 4


def test_the_history_is_the_last_events_of_the_unit_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "READ_LIMIT", 10)
    monkeypatch.setattr(units, "MOST_EVENTS", 3)
    store = SqliteStore.in_memory()
    events = [Event("unit.started", NOW + number, None, f"docs/{'ab'[number % 2]}", {}) for number in range(60)]
    store.append_events(events)

    assert [stored.event.at - NOW for stored in unit_history(store, "docs/a")] == [54, 56, 58]


# -- searching and ordering ------------------------------------------------------------------------------


def _units_in_all_states() -> Store:
    store = SqliteStore.in_memory()
    add(store, specs("done", "failed", "runs", "later-1", "later-2"))
    add(store, specs("x"), "day")
    done, failed = claim(store, 2, account="own")
    record(store, [ended(done, "succeeded"), ended(failed, "failed")])
    claim(store, account="max-2")
    return store


def _found(store: Store, query: UnitQuery, limit: int = 10) -> list[str]:
    """Return the names of all units that the query finds, read in pages of that length."""
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = read_units(store, query, limit=limit, cursor=cursor)
        found += names(page.units)
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


def test_units_are_found_by_a_part_of_their_id_reason_or_account() -> None:
    store = _units_in_all_states()

    assert _found(store, UnitQuery(search="LATER")) == ["later-1", "later-2"]
    assert _found(store, UnitQuery(search="it fail")) == ["failed"]
    assert _found(store, UnitQuery(search="max-2")) == ["runs"]
    assert _found(store, UnitQuery(search="later", campaign="day")) == []
    assert _found(store, UnitQuery(search="50%_")) == []


def test_units_that_need_attention_come_first_page_by_page() -> None:
    store = _units_in_all_states()

    ordered = _found(store, UnitQuery(order="attention"))
    assert ordered == _found(store, UnitQuery(order="attention"), limit=1)
    assert ordered == ["runs", "failed", "later-1", "later-2", "x", "done"]
    assert _found(store, UnitQuery(order="attention", search="n"), limit=2) == [
        *("runs", "failed", "later-1", "later-2"),  # in the campaign `night`
        "done",
    ]
