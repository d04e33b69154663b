"""An export has everything, also of a store in use; an import takes all of it, or nothing."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from tests.postgres_server import empty_schema
from tests.store.workload import everything, verbs

from paceline.core.unit_lifecycle import UnitState
from paceline.errors import EngineBusy, InvalidInput
from paceline.events import Event
from paceline.store import Campaign, ClientKey, SpendRow, SqliteStore, UnitResult, UnitSpec
from paceline.store.dump import IDENTITY_STATE, NOT_EXPORTED, TABLES, export_store, import_store
from paceline.store.postgres import PostgresStore
from paceline.store.sql_store import SqlStore
from paceline.testing.store_steps import NOW, add, claim, ended, names, record, specs

Opened = Callable[[], SqlStore]


@pytest.fixture(params=["sqlite", "postgres"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "paceline.db")
        return
    with empty_schema(request.getfixturevalue("postgres_url")) as url:
        yield lambda: PostgresStore(url)


def filled(store: SqlStore) -> SqlStore:
    """Return the store with something in every table, odd characters and times without end."""
    for verb in islice(verbs(30), 11):
        verb(store)
    add(store, [UnitSpec(id="odd \x00 ü \U0001f680", prompt="x\x00'\"\n" * 3, output="out.md")], "odd")
    (unit,) = claim(store, campaign="odd")
    store.save_progress(unit.id, unit.fence, phase="checking", result=UnitResult(answer="half", turns=3))
    record(store, [ended(unit, "parked", resume_at=math.inf)])
    add(store, specs("a", "b"), "odd")
    (unit,) = claim(store, campaign="odd")
    store.create_client_key(ClientKey(name="team"), "digest")
    store.revoke_client_key("team", now=NOW)
    store.create_client_key(ClientKey(name="team"), "another")
    store.add_spend([SpendRow(day="2026-11-16", key="team", account="a", model="m", billed=0.1, requests=3)])
    store.save_state("bytes", bytes(range(256)))
    store.delete_campaign("two")
    return store


def seen(store: SqlStore) -> tuple[object, ...]:
    return (
        *everything(store),
        store.client_keys(),
        store.running_units(also_cancelled=True),
        store.load_state("bytes"),
    )


def exported(store: SqlStore) -> list[bytes]:
    lines: list[bytes] = []
    export_store(store, lines.append)
    return lines


def _without_slots(lines: list[bytes]) -> list[bytes]:
    """Return the lines without those of slots, which are numbered again."""
    return [line for line in lines if not line.startswith(b'["slots"')]


@pytest.mark.parametrize("is_from_sqlite", [True, False])
def test_what_is_imported_is_what_was_exported(new_store: Opened, tmp_path: Path, is_from_sqlite: bool) -> None:
    other = SqliteStore(tmp_path / "other.db")
    with closing(new_store()) as one, closing(other):
        source, target = (other, one) if is_from_sqlite else (one, other)
        lines = exported(filled(source))

        assert import_store(target, lines) == len(lines) - 2

        assert seen(target) == seen(source)
        assert _without_slots(exported(target)) == _without_slots(lines)
        for store in (source, target):  # new numbers follow on the old ones, and counts go on
            add(store, specs("c"), "new")
            store.append_events([Event("engine.leading", NOW)])
            store.retry_units("one")
            store.cancel_units("odd", now=NOW)
        assert seen(target) == seen(source)


def test_every_table_and_every_column_is_exported(new_store: Opened, tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "columns.db")) as store, store.database.reading() as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")} for name in tables}

    assert {name: names for name, names in columns.items() if name not in NOT_EXPORTED} == {
        name: set(each) for name, each in TABLES.items()
    }


def test_an_export_of_a_store_in_use_is_one_state(new_store: Opened) -> None:
    """Another process claims and ends units meanwhile: in the export each unit has exactly its own events."""
    with closing(new_store()) as store:
        store.add_campaign(Campaign(name="night"), specs(*map(str, range(200))), update=False, now=NOW)
        is_over = threading.Event()

        def work() -> None:
            with closing(new_store()) as other:
                while not is_over.is_set() and (units := claim(other)):
                    with other.together():
                        record(other, [ended(unit, "succeeded") for unit in units])
                        other.append_events([Event("unit.done", NOW, unit=unit.id) for unit in units])

        worker = threading.Thread(target=work)
        worker.start()
        exports = [exported(store) for _ in range(4)]
        is_over.set()
        worker.join()

    for lines in exports:
        copy = SqliteStore.in_memory()
        import_store(copy, lines)
        state: UnitState = "done"
        done = {unit.id for unit in copy.units(state=state, limit=1_000).units}
        assert done == {each.event.unit for each in copy.events()}
        assert copy.counts()["night"].done == len(done)


def test_a_plan_that_is_still_being_added_is_left_out(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "paceline.db")) as store:
        add(store, specs("a"))
        steps = store.add_campaign_in_steps(Campaign(name="night"), specs(*map(str, range(600))), update=False, now=NOW)
        next(steps)

        copy = SqliteStore.in_memory()
        import_store(copy, exported(store))

        assert names(copy.units().units) == ["a"]
        assert copy.counts() == store.counts()
        assert add(copy, specs("b")).added == 1


@pytest.mark.parametrize(
    "damage", ["no line", "another file", "first line", "cut between", "cut within", "line missing"]
)
def test_a_file_that_is_not_whole_is_refused_and_leaves_nothing(new_store: Opened, damage: str) -> None:
    lines = exported(filled(SqliteStore.in_memory()))
    damaged = {
        "no line": [],
        "another file": [b'{"a": 1}\n'],
        "first line": [b"\xff\n", *lines[1:]],
        "cut between": lines[:40],
        "cut within": [*lines[:40], lines[40][:-9]],
        "line missing": [*lines[:20], *lines[21:]],
    }[damage]
    with closing(new_store()) as store:
        before = exported(store)

        with pytest.raises(InvalidInput, match=r"no export of a home|so nothing was imported"):
            import_store(store, damaged)

        assert exported(store) == before
        assert import_store(store, lines) == len(lines) - 2


def test_an_export_of_a_newer_version_is_refused(new_store: Opened) -> None:
    lines = exported(SqliteStore.in_memory())
    newer = lines[0].replace(b'"resume_cost"', b'"resume_cost","of_tomorrow"')

    with closing(new_store()) as store, pytest.raises(InvalidInput, match="newer Paceline"):
        import_store(store, [newer, *lines[1:]])


@pytest.mark.parametrize("content", ["a campaign", "an event", "a state", "a deleted campaign"])
def test_a_store_that_is_not_empty_is_refused_and_left(new_store: Opened, content: str) -> None:
    with closing(new_store()) as store:
        if content.endswith("campaign"):
            add(store, specs("a"))
        if content == "a deleted campaign":
            store.delete_campaign("night")
        if content == "an event":
            store.append_events([Event("engine.leading", NOW)])
        if content == "a state":
            store.save_state("governor", b"{}")
        before = exported(store)

        with pytest.raises(InvalidInput, match=r"is not empty \(it has .*name a new home"):
            import_store(store, exported(filled(SqliteStore.in_memory())))

        assert exported(store) == before


def test_a_store_that_is_led_is_refused(new_store: Opened) -> None:
    with closing(new_store()) as store, closing(new_store()) as other:
        other.lead("box-1", until=4e9, now=0.0)

        with pytest.raises(EngineBusy, match="the engine box-1 leads"):
            import_store(store, exported(SqliteStore.in_memory()))


def test_the_imported_identity_replaces_the_one_of_an_empty_database(new_store: Opened) -> None:
    source = SqliteStore.in_memory()
    source.save_state(IDENTITY_STATE, b"theirs")
    with closing(new_store()) as store:
        store.save_state(IDENTITY_STATE, b"own")

        import_store(store, exported(source))

        assert store.load_state(IDENTITY_STATE) == b"theirs"
