"""Rows that are damaged are left out and reported; all others are still read."""

import logging
import sqlite3
from pathlib import Path

import pytest

from paceline.errors import StoreDamaged
from paceline.events import Event
from paceline.store import SqliteStore, StoredEvent, StoredSlot
from paceline.testing.store_steps import NOW, add, specs

DONE = Event("unit.done", NOW, unit="night/a")


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("body", ["'garbage'", "x'ff00'", "7", "x''", "CAST(x'22ff22' AS TEXT)"])
def test_a_damaged_event_is_left_out_and_reported_once(path: Path, body: str, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(path)
    store.append_events([DONE] * 6)
    damage(path, f"UPDATE events SET body = {body} WHERE id IN (2, 3, 6)")

    with caplog.at_level(logging.WARNING):
        pages = [store.events(limit=2), store.events(after=1, limit=2), store.events(after=5), store.events()]

    assert [[event.id for event in page] for page in pages] == [[1, 4], [4, 5], [], [1, 4, 5]]
    assert store.events(unit="night/a", limit=2) == [StoredEvent(1, DONE), StoredEvent(4, DONE)]
    assert [record.getMessage() for record in caplog.records] == [
        f"event {number} in {path} is damaged and is left out" for number in (2, 3, 6)
    ]
    assert store.append_events([DONE]) == 7
    store.close()


def test_a_damaged_event_is_deleted_with_those_around_it(path: Path) -> None:
    store = SqliteStore(path)
    store.append_events([DONE] * 4)
    damage(path, "UPDATE events SET body = 'garbage' WHERE id IN (1, 3)")

    assert store.trim_events(before=NOW, through=9, limit=9) == 1
    assert store.trim_events(before=NOW + 1.0, through=3, limit=9) == 2

    assert store.events() == [StoredEvent(4, DONE)]
    store.close()


def test_a_damaged_slot_is_left_out_and_the_others_count(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(path)
    whole = StoredSlot(id="whole", scopes=("runs",))
    store.save_slots([StoredSlot(id="torn", scopes=("runs",)), whole], [])
    damage(path, """UPDATE slots SET body = '{"id":' WHERE id = 'torn'""")

    assert (store.slots(), store.slots("torn"), store.slots("whole")) == ([whole], [], [whole])
    assert [record.getMessage() for record in caplog.records] == [f"slot torn in {path} is damaged and is left out"]
    store.close()


def test_a_campaign_that_cannot_be_read_is_named(path: Path) -> None:
    store = SqliteStore(path)
    add(store, specs("a"))
    damage(path, "UPDATE campaigns SET body = 'garbage'")

    with pytest.raises(StoreDamaged, match=r"the campaign 'night' .* cannot be read .* restore a copy"):
        store.campaigns()
    store.close()
