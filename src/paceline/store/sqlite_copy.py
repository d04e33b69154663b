"""A SQLite file as one side of a copy.

Here: the names and types of its columns, and which of its rows are hidden. Never here: the order of the work.
"""

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final, Self

from paceline.errors import StoreBusy, StoreDamaged
from paceline.store.migrations import MIGRATIONS
from paceline.store.rules import ALL_KEYS
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_import import FORGOTTEN_SECONDS
from paceline.store.sqlite_keys import visible_spans
from paceline.store.table_copy import CopiedTable, Kind, LastNumbers, Row, leads

_COUNTED: Final = ("campaigns", "events")
_HAS_HIDDEN_ROWS: Final = frozenset({"units", "prompts", "results"})


class SqliteCopySide:
    """The file that `file` has open."""

    def __init__(self, file: SqliteFile) -> None:
        self.place = file.path
        self._file = file
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def at(cls, path: str, *, busy_seconds: float) -> Self:
        """Open the file, which is created if it does not exist."""
        return cls(SqliteFile(path, busy_seconds=busy_seconds, migrations=MIGRATIONS))

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._file.writing() as connection:
            # Text as bytes: one that is not Unicode would raise without the name of its row.
            connection.text_factory = bytes
            self._connection = connection
            try:
                yield
            finally:
                self._connection = None
                connection.text_factory = str

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Give the connection. Its errors name this file also inside the block of the other side."""
        assert self._connection is not None, "a side is used inside of `locked`"
        with self._file.translated_errors():
            yield self._connection

    def check_idle(self, gone: frozenset[str]) -> None:
        now = time.time()
        with self._open() as connection:
            leader = connection.execute("SELECT owner FROM leader WHERE until > ?", (now,)).fetchone()
            since = now - FORGOTTEN_SECONDS
            arrival = connection.execute("SELECT name FROM arrivals WHERE began_at > ?", (since,)).fetchone()
        if leader is not None and (owner := leader[0].decode()) not in gone:
            raise leads(owner, self.place)
        if arrival is not None:
            raise StoreBusy(
                f"another process is adding units to {arrival[0].decode()} in {self.place}: wait until it has; "
                "if it was killed, add the plan again first"
            )

    def count(self, table: CopiedTable) -> int:
        with self._open() as connection:
            if table.name not in _HAS_HIDDEN_ROWS:
                return int(connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])
            count = f"SELECT count(*) FROM {table.name} WHERE key BETWEEN ? AND ?"
            return sum(connection.execute(count, span).fetchone()[0] for span in visible_spans(connection, *ALL_KEYS))

    def read(self, table: CopiedTable) -> Generator[Row, None, None]:
        with self._open() as connection, closing(_stored(connection, table)) as stored:
            rows = self._converted(table, stored)
            yield from sorted(rows) if table.is_small else rows

    def _converted(self, table: CopiedTable, stored: Iterable[Row]) -> Iterator[Row]:
        kinds = [column.kind for column in table.columns]
        conversions = [(place, _READ[kind]) for place, kind in enumerate(kinds) if kind in _READ]
        for each in stored:
            row = list(each)
            for place, convert in conversions:
                if (value := row[place]) is not None:
                    try:
                        row[place] = convert(value)
                    except (UnicodeDecodeError, TypeError) as error:
                        raise self._damage(table, place, row[0], error) from error
            yield tuple(row)

    def _damage(self, table: CopiedTable, place: int, row: object, error: Exception) -> StoreDamaged:
        return StoreDamaged(
            f"{table.columns[place].name} of {table.name} {row} in {self.place} cannot be read ({error}); nothing was "
            f"copied. Correct it or delete the row: sqlite3 {self.place} "
            f"'DELETE FROM {table.name} WHERE {_name(table, 0)} = {row}'"
        )

    def write(self, table: CopiedTable, rows: Iterable[Row]) -> None:
        documents = [place for place, column in enumerate(table.columns) if column.kind == "document"]
        insert = f"INSERT INTO {table.name} ({_names(table)}) VALUES ({', '.join('?' * len(table.columns))})"
        with self._open() as connection:
            connection.executemany(insert, (_with_bytes(row, documents) for row in rows))

    def counters(self) -> LastNumbers:
        with self._open() as connection:
            found = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
        return LastNumbers(**{name: int(found.get(name.encode(), 0)) for name in _COUNTED})

    def set_counters(self, counters: LastNumbers) -> None:
        with self._open() as connection:
            for name in _COUNTED:
                connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                last = getattr(counters, name)
                connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, last))

    def delete_state(self, key: str) -> None:
        with self._open() as connection:
            connection.execute("DELETE FROM states WHERE key = ?", (key,))

    def close(self) -> None:
        self._file.close()


def _stored(connection: sqlite3.Connection, table: CopiedTable) -> Generator[Row, None, None]:
    select = f"SELECT {_names(table)} FROM {table.name}"
    if table.name not in _HAS_HIDDEN_ROWS:
        yield from connection.execute(f"{select} ORDER BY {_name(table, 0)}")
        return
    for span in visible_spans(connection, *ALL_KEYS):
        yield from connection.execute(f"{select} WHERE key BETWEEN ? AND ? ORDER BY key", span)


def _names(table: CopiedTable) -> str:
    return ", ".join(_name(table, place) for place in range(len(table.columns)))


def _name(table: CopiedTable, place: int) -> str:
    column = table.columns[place]
    return column.sqlite_name or column.name


def _with_bytes(row: Row, documents: list[int]) -> Row:
    if not documents:
        return row
    return tuple(value.encode() if place in documents else value for place, value in enumerate(row))


def _read_flag(value: object) -> bool:
    if value not in (0, 1):
        raise TypeError(f"{value!r} is neither 0 nor 1")
    return bool(value)


_READ: Final[dict[Kind, Callable[[Any], object]]] = {
    "text": bytes.decode,
    "document": bytes.decode,
    "flag": _read_flag,
}
