"""A copy of a store: everything, the same in both, or nothing."""

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from tests.postgres_server import empty_schema, running_server
from tests.store.copies import ODD_TEXT, STATES, answers, fill, side

from paceline.errors import EngineBusy, InvalidInput, StoreBusy, StoreDamaged, StoreError, StoreUnreachable
from paceline.events import Event
from paceline.store import Campaign, SqliteStore, Store, StoredSlot, UnitSpec
from paceline.store.postgres import PostgresStore
from paceline.store.table_copy import IDENTITY_STATE, NOT_COPIED, TABLES, Report, copy_store

NOW = 1000.0
Place = Callable[[str], str]
"""A new place for a store of the given kind."""


@pytest.fixture
def place(tmp_path: Path, postgres_url: str) -> Iterator[Place]:
    with ExitStack() as schemas:
        numbers = iter(range(100))

        def new(kind: str) -> str:
            return (
                schemas.enter_context(empty_schema(postgres_url))
                if kind == "postgres"
                else str(tmp_path / f"{next(numbers)}.db")
            )

        yield new


def opened(address: str) -> Store:
    return PostgresStore(address) if "dbname=" in address else SqliteStore(address)


def filled(address: str) -> str:
    with closing(opened(address)) as store:
        fill(store)
    return address


def copied(
    source: str, destination: str, *, gone: frozenset[str] = frozenset(), report: Report = lambda *_: None
) -> dict[str, int]:
    ends = side(source, is_source=True, busy_seconds=0.1), side(destination, is_source=False, busy_seconds=0.1)
    with closing(ends[0]), closing(ends[1]):
        return dict(copy_store(*ends, gone=gone, report=report))


def rows_of(address: str) -> dict[str, list[tuple[object, ...]]]:
    with closing(side(address, is_source=True)) as end, end.locked():
        rows = {table.name: list(end.read(table)) for table in TABLES}
        counters = end.counters()
        return {**rows, "counters": [(counters.campaigns, counters.events)]}


def is_empty(address: str) -> bool:
    rows = rows_of(address)
    return not any(rows[table.name] for table in TABLES)


KINDS = ["sqlite", "postgres"]


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_answers_every_reading_verb_as_its_source(place: Place, kind: str, to: str) -> None:
    source, destination = filled(place(kind)), place(to)

    counts = copied(source, destination)

    with closing(opened(source)) as store, closing(opened(destination)) as copy:
        assert answers(copy) == answers(store)
    rows = rows_of(source)
    assert rows_of(destination) == rows
    assert counts == {table.name: len(rows[table.name]) for table in TABLES}
    assert 0 not in counts.values()


def test_a_way_there_and_back_changes_no_row(place: Place) -> None:
    first, server, second = filled(place("sqlite")), place("postgres"), place("sqlite")

    copied(first, server)
    copied(server, second)

    assert _whole_file(second) == _whole_file(first)


def _whole_file(path: str) -> dict[str, list[object]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: list(connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2")) for name in tables}


def test_the_filled_store_has_units_in_every_state(place: Place) -> None:
    with closing(opened(filled(place("sqlite")))) as store:
        assert [state for state in STATES if not store.units(state=state).units] == []


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_goes_on_as_its_source_does(place: Place, kind: str, to: str) -> None:
    source, destination = filled(place(kind)), place(to)
    copied(source, destination)

    with closing(opened(source)) as store, closing(opened(destination)) as copy:
        assert _go_on(copy) == _go_on(store)
        assert answers(copy) == answers(store)


def _go_on(store: Store) -> tuple[object, ...]:
    """Use all numbers that are given: of events, campaigns, slots, and fences of units."""
    last = store.append_events([Event("engine.leading", NOW)])
    store.add_campaign(Campaign(name="new"), [UnitSpec(id="a"), UnitSpec(id="b")], update=False, now=NOW)
    more = [UnitSpec(id="more", prompt=ODD_TEXT)]
    added = store.add_campaign(Campaign(name="odd"), more, update=False, now=NOW)
    store.save_slots([StoredSlot(id="0 the last", scopes=("runs",))], [])
    woken = store.wake_units(now=NOW)
    claims = [
        store.claim_units(name, account, 9, attempt_ids=[f"n{each}" for each in range(9)], lease_until=NOW, now=NOW)
        for name in ("odd", "new", "one")
        for account in ("max-2", "other")
    ]
    return last, added, woken, claims, store.units(limit=1000)


def test_every_table_and_column_is_copied_or_named(place: Place) -> None:
    file, server = place("sqlite"), place("postgres")
    opened(file).close()
    opened(server).close()
    with closing(sqlite3.connect(file)) as connection:
        in_file = {
            name: {column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")} | {"rowid"}
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    with psycopg.connect(server) as database:
        columns = database.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        ).fetchall()
    on_server = {name: {column for table, column in columns if table == name} for name, _ in columns}

    copied_names = {table.name for table in TABLES}
    assert set(in_file) - NOT_COPIED == copied_names
    assert set(on_server) - NOT_COPIED == copied_names
    for table in TABLES:
        assert {column.sqlite_name or column.name for column in table.columns} | {"rowid"} == in_file[table.name]
        assert {column.name for column in table.columns} == on_server[table.name]


@pytest.mark.parametrize("to", KINDS)
def test_a_store_that_is_not_empty_is_left_as_it_is(place: Place, to: str) -> None:
    source, destination = filled(place("sqlite")), place(to)
    with closing(opened(destination)) as store:
        store.append_events([Event("engine.leading", NOW)])
    before = rows_of(destination)

    with pytest.raises(InvalidInput, match=r"is not empty \(events: 1\); nothing was changed"):
        copied(source, destination)

    assert rows_of(destination) == before


@pytest.mark.parametrize("to", KINDS)
def test_a_store_with_nothing_but_an_identity_is_empty(place: Place, to: str) -> None:
    source, known, destination = filled(place("sqlite")), filled(place("sqlite")), [place(to), place(to)]
    for address, identity in ((known, b"old"), (destination[0], b"new"), (destination[1], b"new")):
        with closing(opened(address)) as store:
            store.save_state(IDENTITY_STATE, identity)

    copied(source, destination[0])
    copied(known, destination[1])

    with closing(opened(destination[0])) as one, closing(opened(destination[1])) as two:
        assert (one.load_state(IDENTITY_STATE), two.load_state(IDENTITY_STATE)) == (b"new", b"old")
        assert answers(one) == answers(two)


@pytest.mark.parametrize("led", ["source", "destination"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_led_is_not_copied(place: Place, kind: str, led: str) -> None:
    source, destination = filled(place(kind)), place(kind)
    with closing(opened(source if led == "source" else destination)) as store:
        store.lead("box-1", until=time.time() + 600.0, now=time.time())

        with pytest.raises(EngineBusy, match="the engine box-1 leads"):
            copied(source, destination)
        assert is_empty(destination)
        copied(source, destination, gone=frozenset({"box-1"}))

    with closing(opened(destination)) as copy:
        assert copy.leader() == ("box-1" if led == "destination" else None)


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_writes_to_either_store_during_a_copy(place: Place, kind: str, to: str) -> None:
    source, destination = filled(place(kind)), place(to)
    refused: set[tuple[str, str]] = set()

    def write(stage: str, table: str, done: int, total: int) -> None:
        if (table, done) == ("slots", total):
            for address in (source, destination):
                with closing(_impatient(address)) as store, pytest.raises(StoreBusy):
                    store.save_state("governor", b"later")
                refused.add((stage, address))

    copied(source, destination, report=write)

    assert refused == {(stage, address) for stage in ("copying", "comparing") for address in (source, destination)}
    assert rows_of(destination) == rows_of(source)


def _impatient(address: str) -> Store:
    return (
        PostgresStore(address, busy_seconds=0.05) if "dbname=" in address else SqliteStore(address, busy_seconds=0.05)
    )


def test_a_row_that_differs_is_named_and_nothing_is_copied(place: Place) -> None:
    source, destination = filled(place("sqlite")), place("postgres")
    opened(destination).close()
    with psycopg.connect(destination) as connection:
        connection.execute(
            """CREATE FUNCTION lie() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF NEW.reason IS NOT NULL THEN NEW.reason = 'none'; END IF; RETURN NEW; END $$"""
        )
        connection.execute("CREATE TRIGGER lie BEFORE INSERT ON units FOR EACH ROW EXECUTE FUNCTION lie()")

    with pytest.raises(StoreError, match=r"^reason of units \d+ .* in .* and 'none' in .*; nothing was copied$"):
        copied(source, destination)

    assert is_empty(destination)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("DELETE FROM events WHERE id = (SELECT max(id) FROM events)", "events {last} is not in {destination}"),
        ("INSERT INTO prompts (key, prompt) VALUES (9223372036854775807, 'x')", "prompts {most} is not in {source}"),
    ],
)
def test_a_row_too_few_or_too_many_is_named(place: Place, lie: str, said: str) -> None:
    source, destination = filled(place("sqlite")), place("sqlite")
    last = rows_of(source)["events"][-1][0]
    opened(destination).close()
    with closing(sqlite3.connect(destination)) as connection:
        connection.execute(f"CREATE TRIGGER lie AFTER INSERT ON states WHEN new.key = 'governor' BEGIN {lie}; END")

    with pytest.raises(StoreError) as raised:
        copied(source, destination)

    names = {"last": last, "most": (1 << 63) - 1, "source": source, "destination": destination}
    assert str(raised.value) == f"{said.format(**names)}; nothing was copied"
    assert is_empty(destination)


def test_a_damaged_row_is_named_with_what_to_do(place: Place) -> None:
    source, destination = filled(place("sqlite")), place("postgres")
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE events SET body = x'ff' WHERE id = 50")

    with pytest.raises(StoreDamaged) as raised:
        copied(source, destination)

    assert str(raised.value).startswith(f"body of events 50 in {source} cannot be read")
    assert str(raised.value).endswith(f"sqlite3 {source} 'DELETE FROM events WHERE id = 50'")
    assert is_empty(destination)


def test_an_event_that_nobody_understands_is_copied_as_it_is(place: Place) -> None:
    source, destination = filled(place("sqlite")), place("postgres")
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE events SET body = '{\"half' WHERE id = 50")

    copied(source, destination)

    assert rows_of(destination) == rows_of(source)


@pytest.mark.parametrize("table", ["campaigns", "states"])
@pytest.mark.parametrize(("kind", "to"), [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_a_copy_that_is_killed_leaves_nothing_and_the_next_one_works(
    place: Place, kind: str, to: str, table: str
) -> None:
    source, destination = filled(place(kind)), place(to)

    killed = subprocess.run([sys.executable, "-m", "tests.store.copies", source, destination, table], check=False)

    assert killed.returncode == -signal.SIGKILL
    assert is_empty(destination)
    copied(source, destination)
    assert rows_of(destination) == rows_of(source)


@pytest.mark.parametrize("is_source", [False, True])
def test_a_copy_whose_server_stops_leaves_nothing_and_the_next_one_works(place: Place, is_source: bool) -> None:
    with running_server() as server:
        address = psycopg.conninfo.make_conninfo(server.url, dbname="postgres")
        source, destination = (filled(address), place("sqlite")) if is_source else (filled(place("sqlite")), address)

        def stop(stage: str, table: str, done: int, total: int) -> None:
            if (stage, table, done) == ("comparing", "units", 0):
                server.stop("immediate")

        with pytest.raises(StoreUnreachable, match=r"does not answer .*; the copy was not finished, run it again$"):
            copied(source, destination, report=stop)

        server.start()
        assert is_empty(destination)
        copied(source, destination)
        assert rows_of(destination) == rows_of(source)


def test_units_of_an_import_that_was_killed_long_ago_are_not_copied(place: Place) -> None:
    source, destination = filled(place("sqlite")), place("postgres")
    with closing(opened(source)) as store:
        before = answers(store)
        plan = (UnitSpec(id=f"half-{number}", prompt="x") for number in range(1000))
        steps = store.add_campaign_in_steps(Campaign(name="odd"), plan, update=False, now=time.time() - 7200.0)
        next(steps)
        next(steps)

        copied(source, destination)

    with closing(opened(destination)) as copy:
        assert answers(copy) == before


def test_a_plan_that_is_being_added_is_waited_for(place: Place) -> None:
    source, destination = filled(place("sqlite")), place("postgres")
    with closing(opened(source)) as store:
        plan = (UnitSpec(id=f"half-{number}", prompt="x") for number in range(1000))
        steps = store.add_campaign_in_steps(Campaign(name="odd"), plan, update=False, now=time.time())
        next(steps)

        with pytest.raises(StoreBusy, match="another process is adding units to odd"):
            copied(source, destination)

    assert is_empty(destination)


def test_a_server_without_tables_is_no_source_and_gets_none(place: Place) -> None:
    source, destination = place("postgres"), place("sqlite")

    with pytest.raises(InvalidInput, match=r"there is nothing to copy in .*: it has no tables of Paceline"):
        copied(source, destination)

    with psycopg.connect(source) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchone() == (
            0,
        )
