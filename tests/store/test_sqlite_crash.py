"""What `kill -9` and a torn journal leave behind: all that was acknowledged, and nothing by halves. Real processes."""

import signal
import sqlite3
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from tests.store.workload import everything, states_after, verbs

from paceline.store import Campaign, SqliteStore, UnitSpec

ROOT = Path(__file__).parents[2]
WORKLOAD = [sys.executable, "-m", "tests.store.workload"]


@pytest.mark.parametrize("acknowledged", [0, 1, 2, 3, 4, 5, 8, 11, 16, 21])
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    batch = 400
    path = tmp_path / "paceline.db"

    with subprocess.Popen([*WORKLOAD, str(path), str(batch)], cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(1 + acknowledged):
            child.stdout.readline()
        child.kill()
        returned = acknowledged + child.stdout.read().count(b"\n")
        assert child.wait() == -signal.SIGKILL

    store = SqliteStore(path)
    assert everything(store) in states_after(batch, returned, returned + 1)
    store.close()


def test_a_process_that_dies_inside_a_verb_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "paceline.db"

    assert subprocess.run([*WORKLOAD, str(path)], cwd=ROOT).returncode == -signal.SIGKILL

    store, expected = SqliteStore(path), SqliteStore.in_memory()
    expected.add_campaign(Campaign(name="night"), [UnitSpec(id="a")], update=False, now=1.0)
    assert everything(store) == everything(expected)
    store.close()


def test_a_journal_torn_anywhere_gives_a_state_that_once_was(tmp_path: Path) -> None:
    batch, count = 15, 16
    path = tmp_path / "paceline.db"
    store = SqliteStore(path)
    for verb in islice(verbs(batch), count):
        verb(store)
    journal = Path(f"{path}-wal").read_bytes()
    database = path.read_bytes()
    store.close()
    states = states_after(batch, *range(count + 1))

    seen = set()
    for length in range(32, len(journal), len(journal) // 60 + 7):
        torn = tmp_path / "torn.db"
        torn.write_bytes(database)
        Path(f"{torn}-wal").write_bytes(journal[:length])
        survivor = SqliteStore(torn)
        seen.add(states.index(everything(survivor)))
        survivor.close()
        torn.unlink()

    assert len(seen) > count // 2


def test_a_copy_made_by_sqlite_is_a_backup(tmp_path: Path) -> None:
    path, copy = tmp_path / "paceline.db", tmp_path / "copy.db"
    store = SqliteStore(path)
    for verb in islice(verbs(20), 12):
        verb(store)

    other = sqlite3.connect(path)
    other.execute("VACUUM INTO ?", (str(copy),))
    other.close()

    restored = SqliteStore(copy)
    assert everything(restored) == everything(store)
    restored.close()
    store.close()
