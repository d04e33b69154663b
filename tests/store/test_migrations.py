"""A file of an older version is migrated, and one of a newer version is refused. Nothing is lost."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from paceline.core import Deferred
from paceline.errors import EngineBusy, StoreError, StoreTooNew
from paceline.store import Campaign, Page, ProcessId, SqliteStore, StoredSlot, Unit, UnitCounts, UnitSpec
from paceline.store.migrations import APPLICATION_ID, MIGRATIONS, Migration
from paceline.store.rules import unit_key
from paceline.testing.store_steps import add, specs

ADDS_NOTES: Migration = ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('from version 2')")
COUNTS_NOTES: Migration = ("CREATE TABLE notes_count AS SELECT count(*) AS notes FROM notes",)
BREAKS: Migration = ("INSERT INTO notes VALUES ('half done')", "INSERT INTO nowhere VALUES (1)")


def pragma(path: Path, name: str) -> int:
    connection = sqlite3.connect(path)
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    connection.close()
    return value


def test_a_new_file_has_the_newest_schema(path: Path) -> None:
    SqliteStore(path).close()

    assert (pragma(path, "user_version"), pragma(path, "application_id")) == (len(MIGRATIONS), APPLICATION_ID)


def test_an_older_file_is_migrated_in_order_and_keeps_its_units(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs("a", "b"))
    before = store.units()
    store.close()

    store = SqliteStore(path, migrations=(*MIGRATIONS, ADDS_NOTES, COUNTS_NOTES))

    assert store.units() == before
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT notes FROM notes_count").fetchall() == [(1,)]
    connection.close()
    assert pragma(path, "user_version") == len(MIGRATIONS) + 2


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    SqliteStore(path).close()

    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(path, migrations=(*MIGRATIONS, ADDS_NOTES, BREAKS))

    assert pragma(path, "user_version") == len(MIGRATIONS)
    store = SqliteStore(path)
    assert add(store, specs("a")).added == 1
    store.close()


def test_an_older_file_is_left_while_an_older_program_uses_it(path: Path) -> None:
    @contextmanager
    def in_use() -> Iterator[None]:
        raise EngineBusy("an engine runs here")
        yield

    SqliteStore(path, while_migrating=in_use).close()  # a new file has no other user
    SqliteStore(path, while_migrating=in_use).close()  # nothing is migrated

    with pytest.raises(EngineBusy, match="an engine runs here"):
        SqliteStore(path, migrations=(*MIGRATIONS, ADDS_NOTES), while_migrating=in_use)

    assert pragma(path, "user_version") == len(MIGRATIONS)


def test_a_newer_file_is_refused_and_left(path: Path) -> None:
    SqliteStore(path, migrations=(*MIGRATIONS, ADDS_NOTES)).close()

    with pytest.raises(StoreTooNew, match=rf"paceline\.db .*schema {len(MIGRATIONS) + 1}.*upgrade"):
        SqliteStore(path)

    assert pragma(path, "user_version") == len(MIGRATIONS) + 1


def test_a_file_of_version_1_keeps_the_slots_of_its_programs(path: Path) -> None:
    SqliteStore(path, migrations=MIGRATIONS[:1]).close()
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("INSERT INTO campaigns VALUES (1, 'night', 1, ?)", (msgspec.json.encode(Campaign(name="night")),))
    old.execute("INSERT INTO units (key, campaign, name, cwd) VALUES (?, 1, 'a', '')", (unit_key(1, 0),))
    holder = {"pid": 42, "start_ticks": 7, "boot_id": "4c1f"}
    held = {"id": "one", "scopes": ["sessions"], "priority": 2, "holder": holder, "is_granted": True, "waiting": None}
    why = {"type": "Deferred", "ticket_id": "outside:two", "reason": "limit", "scope": "sessions", "detail": "full"}
    waits = {"id": "two", "scopes": ["sessions"], "priority": 0, "holder": holder, "is_granted": False, "waiting": why}
    old.execute("INSERT INTO states VALUES ('outside', ?)", (msgspec.json.encode({"one": held, "two": waits}),))
    old.execute("INSERT INTO states VALUES ('governor', ?)", (b"{}",))
    old.close()

    store = SqliteStore(path)

    process = ProcessId(42, 7, "4c1f")
    assert store.slots() == [
        StoredSlot(id="one", scopes=("sessions",), priority=2, granted_at=0.0, holder=process),
        StoredSlot(
            id="two",
            scopes=("sessions",),
            waiting=Deferred("outside:two", "limit", "sessions", "full"),
            holder=process,
        ),
    ]
    unit = Unit(id="night/a", campaign="night", spec=UnitSpec(id="a"), position=0)
    assert (store.units(), store.counts()) == (Page(units=(unit,)), {"night": UnitCounts(todo=1)})
    assert (store.load_state("governor"), store.load_state("outside")) == (b"{}", None)
    store.close()


def test_a_file_of_version_1_without_programs_gets_no_slots(path: Path) -> None:
    SqliteStore(path, migrations=MIGRATIONS[:1]).close()

    store = SqliteStore(path)

    assert store.slots() == []
    store.close()
