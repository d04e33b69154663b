"""A disk that is full, a file that is locked, damaged, foreign, too new or old: a clear error, and nothing is lost."""

import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from paceline.core import Deferred
from paceline.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreTooNew, UnknownName
from paceline.store import Campaign, Page, ProcessId, SqliteStore, StoredSlot, Unit, UnitCounts, UnitSpec
from paceline.store.migrations import APPLICATION_ID, MIGRATIONS, Migration
from paceline.store.rules import unit_key
from paceline.store.sqlite_file import SqliteFile
from paceline.testing.store_steps import NOW, add, claim, ended, record, specs

BRIEF = 0.05


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "paceline.db"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a disk that is small enough to fill")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def pragma(path: Path, name: str) -> int:
    connection = sqlite3.connect(path)
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    connection.close()
    return value


# -- the disk ---------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_what_was_stored_stays(tiny_disk: Path) -> None:
    store = SqliteStore(tiny_disk / "paceline.db")
    add(store, specs("a", "b"))
    (unit,) = claim(store)
    big = [UnitSpec(id=f"big{number}", prompt="x" * 100_000) for number in range(40)]

    with pytest.raises(StoreFull, match=r"paceline\.db"):
        add(store, big)

    assert store.counts() == {"night": UnitCounts(todo=1, running=1)}
    assert record(store, [ended(unit, "succeeded")]) == [True]
    store.close()
    store = SqliteStore(tiny_disk / "paceline.db")
    assert store.counts() == {"night": UnitCounts(todo=1, done=1)}
    store.close()


def test_a_disk_without_any_room_is_told_at_once(tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(b"x" * (2 << 20))

    with pytest.raises(StoreFull, match=r"paceline\.db"):
        SqliteStore(tiny_disk / "paceline.db")


def test_a_database_at_its_largest_is_full_and_undoes_the_transaction(path: Path) -> None:
    file = SqliteFile(str(path), busy_seconds=BRIEF, migrations=MIGRATIONS)
    with file.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")

    with pytest.raises(StoreFull), file.writing() as connection:
        connection.execute("INSERT INTO states VALUES ('small', x'00'), ('large', zeroblob(1000000))")

    with file.reading() as connection:
        assert connection.execute("SELECT * FROM states").fetchall() == []
    file.close()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere.*No such file"):
        SqliteStore(tmp_path / "nowhere" / "paceline.db")
    with pytest.raises(StoreError, match="unable to open"):
        SqliteStore(tmp_path)


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()

    with pytest.raises(StoreError, match="closed"):
        store.campaigns()


def test_nobody_else_can_read_prompts(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs("a"))

    assert {stat.S_IMODE(os.stat(f"{path}{suffix}").st_mode) for suffix in ("", "-wal", "-shm")} == {0o600}
    store.close()


def test_every_commit_waits_for_the_disk(path: Path) -> None:
    file = SqliteFile(str(path), busy_seconds=BRIEF, migrations=MIGRATIONS)

    with file.reading() as connection:
        chosen = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert chosen == ["wal", 2]
    file.close()


def test_one_commit_that_need_not_wait_changes_nothing_for_the_next(path: Path) -> None:
    file = SqliteFile(str(path), busy_seconds=BRIEF, migrations=MIGRATIONS)

    with file.writing_without_wait() as connection:
        not_waited_for = connection.execute("PRAGMA synchronous").fetchone()[0]
    with pytest.raises(StoreError, match="nowhere"), file.writing_without_wait() as connection:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with file.writing() as connection:
        assert (not_waited_for, connection.execute("PRAGMA synchronous").fetchone()[0]) == (1, 2)
    file.close()


# -- other processes --------------------------------------------------------------------------------


def test_another_writer_is_waited_for_and_then_told(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=BRIEF)
    add(store, specs("a"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreBusy, match=r"another process is writing to .*paceline\.db"):
        claim(store)

    assert (store.counts(), store.wake_units(now=NOW)) == ({"night": UnitCounts(todo=1)}, 0)
    other.execute("ROLLBACK")
    assert len(claim(store)) == 1
    other.close()
    store.close()


def test_two_stores_on_one_file_never_claim_the_same(path: Path) -> None:
    one, two = SqliteStore(path), SqliteStore(path)
    add(one, specs(*(f"u{number}" for number in range(10))))

    claimed = [unit.id for store in (one, two, one, two) for unit in claim(store, 3)]

    assert claimed == [f"night/u{number}" for number in range(10)]
    one.close()
    two.close()


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    def open_and_look(number: int) -> list[Campaign]:
        store = SqliteStore(tmp_path / f"{number // 6}.db")
        campaigns = store.campaigns()
        store.close()
        return campaigns

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(open_and_look, range(120))) == [[]] * 120


def test_writers_at_the_same_time_wait_for_each_other(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs(*(f"u{number}" for number in range(600))))
    store.close()

    with ThreadPoolExecutor(3) as threads:
        drained = [unit for part in threads.map(drain, [path] * 3) for unit in part]

    assert sorted(drained) == sorted(f"night/u{number}" for number in range(600))


def drain(path: Path) -> list[str]:
    store = SqliteStore(path, busy_seconds=30.0)
    drained: list[str] = []
    while units := claim(store, 3):
        assert all(record(store, [ended(unit, "succeeded") for unit in units]))
        drained += [unit.id for unit in units]
    store.close()
    return drained


# -- the file ---------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_named_and_left(path: Path) -> None:
    path.write_bytes(b"this is a letter, not a database\n" * 100)

    with pytest.raises(StoreDamaged, match=r"paceline\.db"):
        SqliteStore(path)

    assert path.read_bytes() == b"this is a letter, not a database\n" * 100


def test_a_damaged_file_is_named(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs(*(f"u{number}" for number in range(3_000))))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))

    with pytest.raises(StoreDamaged, match=r"paceline\.db"):
        read_all(path)


def read_all(path: Path) -> None:
    store = SqliteStore(path)
    try:
        store.units(limit=10_000)
    finally:
        store.close()


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(StoreDamaged, match="another program"):
        SqliteStore(path)

    assert path.read_bytes() == before


# -- versions ---------------------------------------------------------------------------------------

ADDS_NOTES: Migration = ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('from version 2')")
COUNTS_NOTES: Migration = ("CREATE TABLE notes_count AS SELECT count(*) AS notes FROM notes",)
BREAKS: Migration = ("INSERT INTO notes VALUES ('half done')", "INSERT INTO nowhere VALUES (1)")


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


# -- several verbs at once --------------------------------------------------------------------------


def test_verbs_that_are_put_together_are_undone_together(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs("a"))

    def cancel_and_fail() -> None:
        with store.together():
            store.cancel_units("night", now=NOW)
            store.set_campaign(Campaign(name="dusk"))

    with pytest.raises(UnknownName):
        cancel_and_fail()

    assert store.counts() == {"night": UnitCounts(todo=1)}
    add(store, specs("b"))
    other = SqliteStore(path)
    assert other.counts() == {"night": UnitCounts(todo=2)}
    for each in (store, other):
        each.close()


# -- what is left behind ----------------------------------------------------------------------------


def test_a_deleted_campaign_leaves_no_row_behind(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs("a", "b"))
    store.delete_campaign("night")
    store.close()

    connection = sqlite3.connect(path)
    tables = ("campaigns", "units", "prompts", "tallies", "arrivals")
    assert [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables] == [[], [], [], [], []]
    connection.close()
