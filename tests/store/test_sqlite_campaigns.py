"""What deleting a campaign leaves in the file: nothing."""

import sqlite3
from pathlib import Path

from paceline.store import SqliteStore
from paceline.testing.store_steps import add, specs


def test_a_deleted_campaign_leaves_no_row_behind(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs("a", "b"))
    store.delete_campaign("night")
    store.close()

    connection = sqlite3.connect(path)
    tables = ("campaigns", "units", "prompts", "tallies", "arrivals")
    assert [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables] == [[], [], [], [], []]
    connection.close()
