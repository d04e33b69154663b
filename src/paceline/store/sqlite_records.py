"""The engine's own records in a SQLite file: events, external slots, saved state and leadership."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import StoredEvent, StoredSlot
from paceline.store.sqlite_file import SqliteFile

_SAVE_SLOT: Final = "INSERT INTO slots (id, body) VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"


def insert_events(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Append events inside the caller's transaction."""
    connection.executemany(
        "INSERT INTO events (unit, body) VALUES (?, ?)",
        [(rules.storable_text(event.unit), rules.encode_event(event)) for event in events],
    )


class SqliteEvents:
    """The stream of events."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def append(self, events: Sequence[Event]) -> int:
        with self._file.writing() as connection:
            insert_events(connection, events)
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def read(self, after: int, limit: int, unit: str | None) -> list[StoredEvent]:
        rules.check_page_size(limit)
        of_unit = "" if unit is None else "AND unit = ?"
        parameters = (after, limit) if unit is None else (after, unit, limit)
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT id, body FROM events WHERE id > ? {of_unit} ORDER BY id LIMIT ?", parameters
            ).fetchall()
        return [StoredEvent(number, rules.decode_event(body)) for number, body in rows]

    def trim(self, *, keep: int) -> None:
        with self._file.writing() as connection:
            connection.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (keep,))


class SqliteSlots:
    """Slots of programs that the engine did not start."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def save(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        encoded = [(slot.id, rules.encode_slot(slot)) for slot in kept]
        with self._file.writing() if kept else self._file.writing_without_wait() as connection:
            connection.executemany(_SAVE_SLOT, encoded)
            connection.executemany("DELETE FROM slots WHERE id = ?", [(slot_id,) for slot_id in dropped])

    def all(self) -> list[StoredSlot]:
        with self._file.reading() as connection:
            rows = connection.execute("SELECT body FROM slots ORDER BY rowid").fetchall()
        return [rules.decode_slot(body) for (body,) in rows]

    def find(self, slot_id: str) -> StoredSlot | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT body FROM slots WHERE id = ?", (slot_id,)).fetchone()
        return None if row is None else rules.decode_slot(row[0])


class SqliteEngineState:
    """Values saved under a key, and which engine leads."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def save(self, key: str, value: bytes) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO states VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value)
            )

    def load(self, key: str) -> bytes | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT value FROM states WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        with self._file.writing() as connection:
            written = connection.execute(
                """INSERT INTO leader VALUES (1, ?, ?) ON CONFLICT DO UPDATE
                    SET owner = excluded.owner, until = excluded.until WHERE owner = excluded.owner OR until <= ?""",
                (owner, until, now),
            )
            return written.rowcount == 1

    def resign(self, owner: str) -> None:
        with self._file.writing() as connection:
            connection.execute("DELETE FROM leader WHERE owner = ?", (owner,))
