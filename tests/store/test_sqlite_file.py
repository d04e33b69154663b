"""A disk that is full, a file that is locked, damaged or foreign: a clear error, and nothing is lost."""

import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paceline.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreGone, UnknownName
from paceline.store import Campaign, SqliteStore, UnitCounts, UnitSpec
from paceline.store.schema import MIGRATIONS
from paceline.store.sqlite import SqliteFile
from paceline.testing.store_steps import NOW, add, claim, ended, record, specs

BRIEF = 0.05


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a disk that is small enough to fill")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


# -- the disk ---------------------------------------------------------------------------------------


def test_a_full_disk_is_reported_and_what_was_stored_stays(tiny_disk: Path) -> None:
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


def test_a_disk_without_any_room_is_reported_at_once(tiny_disk: Path) -> None:
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


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
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

    with file.writing(is_durable=False) as connection:
        not_waited_for = connection.execute("PRAGMA synchronous").fetchone()[0]
    with pytest.raises(StoreError, match="nowhere"), file.writing(is_durable=False) as connection:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with file.writing() as connection:
        assert (not_waited_for, connection.execute("PRAGMA synchronous").fetchone()[0]) == (1, 2)
    file.close()


# -- other processes --------------------------------------------------------------------------------


def test_another_writer_is_waited_for_and_then_reported(path: Path) -> None:
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


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_was_deleted_or_replaced_takes_nothing_more(path: Path, is_replaced: bool) -> None:
    store = SqliteStore(path)
    add(store, specs("a"))
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    if is_replaced:
        SqliteStore(path).close()

    with pytest.raises(StoreGone, match=r"paceline\.db was deleted or replaced"):
        claim(store)
    with pytest.raises(StoreGone):
        store.counts()
    store.close()


def test_a_store_is_found_from_any_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    store = SqliteStore(path.name)
    monkeypatch.chdir("/")

    assert add(store, specs("a")).added == 1
    store.close()


def test_damage_anywhere_in_the_file_is_found_with_what_to_do(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs(*(f"u{number}" for number in range(3_000))))
    store.close()
    with open(path, "r+b") as file:
        file.seek(-40_960, os.SEEK_END)
        file.write(b"\xff" * 20_480)

    store = SqliteStore(path)
    with pytest.raises(StoreDamaged, match=r"restore a copy of it, or save .*\.recover"):
        store.check()
    store.close()


@pytest.mark.parametrize("open_store", [SqliteStore.in_memory, lambda: SqliteStore(":memory:")])
def test_a_store_in_memory_leaves_no_file(
    open_store: Callable[[], SqliteStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = open_store(), open_store()

    assert add(one, specs("a")).added == 1
    one.check()

    assert (other.counts(), list(tmp_path.iterdir())) == ({}, [])
    one.close()
    other.close()


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
