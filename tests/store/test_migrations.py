"""A file of an older version is migrated, and one of a newer version is refused. Nothing is lost."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.errors import EngineBusy, StoreError, StoreTooNew, StoreTooOld
from paceline.store import SqliteStore
from paceline.store.schema import MIGRATIONS, Migration
from paceline.store.sqlite import APPLICATION_ID, UNRELEASED_ID
from paceline.testing.store_steps import add, specs

ADDS_NOTES = Migration(("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('from version 2')"))
COUNTS_NOTES = Migration(("CREATE TABLE notes_count AS SELECT count(*) AS notes FROM notes",))
BREAKS = Migration(("INSERT INTO notes VALUES ('half done')", "INSERT INTO nowhere VALUES (1)"))


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


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_file_of_a_version_that_was_never_released_is_refused_and_left(path: Path, journal: str) -> None:
    old = sqlite3.connect(path)
    old.execute(f"PRAGMA journal_mode = {journal}")
    old.execute(f"PRAGMA application_id = {UNRELEASED_ID}")
    old.execute("PRAGMA user_version = 12")
    old.execute("CREATE TABLE campaigns (number INTEGER PRIMARY KEY, name TEXT)")
    old.close()
    before = path.read_bytes()

    with pytest.raises(StoreTooOld, match=r"paceline\.db .* never released.*finish its work with that"):
        SqliteStore(path)

    assert path.read_bytes() == before
