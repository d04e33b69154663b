"""The engine's own records in a SQLite file: events, external slots, the cost of calls, saved state, leadership."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from paceline.events import Event
from paceline.store import rules
from paceline.store.damage_report import DamageReport
from paceline.store.interface import StoredEvent, StoredSlot
from paceline.store.spend import SPEND_COLUMNS, SpendRow, spend_row, spend_values, summed
from paceline.store.sqlite_file import SqliteFile

_SAVE_SLOT: Final = "INSERT INTO slots (id, body) VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
_ADD_SPEND: Final = f"""INSERT INTO gateway_spend ({", ".join(SPEND_COLUMNS)})
    VALUES ({", ".join("?" * len(SPEND_COLUMNS))})
    ON CONFLICT DO UPDATE SET {", ".join(f"{name} = {name} + excluded.{name}" for name in SPEND_COLUMNS[4:])}"""
_TRIM: Final = """DELETE FROM events WHERE is_slot = ?
    AND id <= (SELECT id FROM events WHERE is_slot = ? ORDER BY id DESC LIMIT 1 OFFSET ?)"""


def insert_events(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Append events inside the caller's transaction."""
    connection.executemany(
        "INSERT INTO events (unit, body, is_slot) VALUES (?, ?, ?)",
        [(rules.storable_text(event.unit), rules.encode_event(event), rules.is_slot_event(event)) for event in events],
    )


class SqliteEvents:
    """The stream of events."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._damage = DamageReport(file.path)

    def append(self, events: Sequence[Event]) -> int:
        with self._file.writing() as connection:
            insert_events(connection, events)
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def read(self, after: int, limit: int, unit: str | None) -> list[StoredEvent]:
        rules.check_page_size(limit)
        found: list[StoredEvent] = []
        with self._file.reading() as connection:
            while len(found) < limit:
                rows = _event_rows(connection, after, limit - len(found), unit)
                found += self._readable(rows)
                if len(rows) < limit - len(found) or not rows:
                    break
                after = rows[-1][0]
        return found

    def _readable(self, rows: Sequence[tuple[int, bytes]]) -> Iterator[StoredEvent]:
        for number, body in rows:
            event = rules.decode_event(body)
            if event is None:
                self._damage.report("event", number)
            else:
                yield StoredEvent(number, event)

    def trim(self, *, keep: int, keep_slots: int) -> None:
        with self._file.writing() as connection:
            connection.execute(_TRIM, (False, False, keep))
            connection.execute(_TRIM, (True, True, keep_slots))

    def prune(self, *, before: float, through: int, limit: int) -> int:
        rules.check_page_size(limit)
        with self._file.writing() as connection:
            rows = connection.execute(
                "SELECT id, CAST(body AS BLOB) FROM events WHERE id <= ? ORDER BY id LIMIT ?", (through, limit)
            ).fetchall()
            old = rules.old_events(rows, before)
            if old:
                connection.execute("DELETE FROM events WHERE id <= ?", (old[-1],))
        return len(old)


def _event_rows(
    connection: sqlite3.Connection, after: int, limit: int, unit: str | None
) -> Sequence[tuple[int, bytes]]:
    of_unit, parameters = ("", (after, limit)) if unit is None else ("AND unit = ?", (after, unit, limit))
    # As a blob: text that is not Unicode would raise here, and hide the events around it.
    return connection.execute(
        f"SELECT id, CAST(body AS BLOB) FROM events WHERE id > ? {of_unit} ORDER BY id LIMIT ?", parameters
    ).fetchall()


class SqliteSlots:
    """Slots of programs that the engine did not start."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._damage = DamageReport(file.path)

    def save(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        encoded = [(slot.id, rules.encode_slot(slot)) for slot in kept]
        with self._file.writing() if kept else self._file.writing_without_wait() as connection:
            connection.executemany(_SAVE_SLOT, encoded)
            connection.executemany("DELETE FROM slots WHERE id = ?", [(slot_id,) for slot_id in dropped])

    def all(self) -> list[StoredSlot]:
        with self._file.reading() as connection:
            rows = connection.execute("SELECT id, CAST(body AS BLOB) FROM slots ORDER BY rowid").fetchall()
        return [slot for slot_id, body in rows if (slot := self._decoded(slot_id, body)) is not None]

    def find(self, slot_id: str) -> StoredSlot | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT CAST(body AS BLOB) FROM slots WHERE id = ?", (slot_id,)).fetchone()
        return None if row is None else self._decoded(slot_id, row[0])

    def _decoded(self, slot_id: str, body: bytes) -> StoredSlot | None:
        slot = rules.decode_slot(body)
        if slot is None:
            self._damage.report("slot", slot_id)
        return slot


class SqliteSpend:
    """What calls of the gateway have used."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def add(self, rows: Sequence[SpendRow]) -> None:
        values = [spend_values(row) for row in summed(map(rules.storable_spend, rows))]
        if values:
            with self._file.writing() as connection:
                connection.executemany(_ADD_SPEND, values)

    def read(self, since: str, key: str | None) -> list[SpendRow]:
        of_key, parameters = ("", (since,)) if key is None else ("AND key = ?", (since, key))
        with self._file.reading() as connection:
            rows = connection.execute(
                f"""SELECT {", ".join(SPEND_COLUMNS)} FROM gateway_spend WHERE day >= ? {of_key}
                    ORDER BY day, key, account, model""",
                parameters,
            ).fetchall()
        return [spend_row(row) for row in rows]


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

    def leader(self) -> str | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT owner FROM leader").fetchone()
        return None if row is None else str(row[0])

    def lease_left(self, *, now: float) -> float | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT until FROM leader").fetchone()
        return None if row is None else float(row[0]) - now

    def while_leading(self, owner: str) -> AbstractContextManager[None]:
        return nullcontext()

    def resign(self, owner: str) -> None:
        with self._file.writing() as connection:
            connection.execute("DELETE FROM leader WHERE owner = ?", (owner,))
