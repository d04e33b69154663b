"""A PostgreSQL database as one side of a copy.

Here: the types of its columns, and what gives numbers to its rows. Never here: the order of the work.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Self

import psycopg

from paceline.store.postgres_connection import Connection
from paceline.store.postgres_database import PostgresDatabase
from paceline.store.postgres_schema import MIGRATIONS
from paceline.store.table_copy import TABLES, CopiedTable, Kind, LastNumbers, Row, leads

_TYPES: Final[dict[Kind, str]] = {
    "integer": "int8",
    "real": "float8",
    "flag": "bool",
    "text": "text",
    "document": "text",
    "bytes": "bytea",
}
_NO_TIME_LIMITS: Final = """SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
    SET LOCAL lock_timeout = 0"""
_SEQUENCE: Final = "pg_get_serial_sequence('{table}', 'number')"
_LAST_NUMBER: Final = "SELECT coalesce(pg_sequence_last_value({sequence}::regclass), 0)"
_LEADER: Final = "SELECT owner FROM leader WHERE until > extract(epoch FROM clock_timestamp())"


class PostgresCopySide:
    """The database that `database` is connected to. `is_source`: it is only read, all of it from one snapshot."""

    def __init__(self, database: PostgresDatabase, *, is_source: bool) -> None:
        self.place = database.place
        self._database = database
        self._is_source = is_source
        self._connection: Connection | None = None

    @classmethod
    def at(cls, url: str, *, busy_seconds: float, is_source: bool) -> Self:
        """Connect to a database. The source must have tables already; those of the destination may be created."""
        database = PostgresDatabase(url, busy_seconds=busy_seconds, migrations=MIGRATIONS, may_create=not is_source)
        return cls(database, is_source=is_source)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._database.writing() as writer:
            _lift_time_limits(writer)
            if not self._is_source:
                with self._using(writer):
                    yield
                return
            # Begun after the lock was granted: a snapshot of the writer's own would be older than its lock.
            with self._database.reading() as reader:
                _lift_time_limits(reader)
                with self._using(reader):
                    yield
                    writer.execute("SELECT 1")  # the lock is gone if this connection is

    @contextmanager
    def _using(self, connection: Connection) -> Iterator[None]:
        self._connection = connection
        try:
            yield
        finally:
            self._connection = None

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        """Give the connection. Its errors name this database also inside the block of the other side."""
        assert self._connection is not None, "a side is used inside of `locked`"
        with self._database.translated_errors():
            yield self._connection

    def check_idle(self, gone: frozenset[str]) -> None:
        with self._open() as connection:
            row = connection.execute(_LEADER).fetchone()
        if row is not None and row[0] not in gone:
            raise leads(row[0], self.place)

    def count(self, table: CopiedTable) -> int:
        return self._number(f"SELECT count(*) FROM {table.name}")

    def read(self, table: CopiedTable) -> Generator[Row, None, None]:
        yield from sorted(self._rows(table)) if table.is_small else self._rows(table)

    def _rows(self, table: CopiedTable) -> Iterator[Row]:
        select = f"SELECT {_names(table)} FROM {table.name} ORDER BY {table.columns[0].name}"
        with self._copying(f"COPY ({select}) TO STDOUT", table) as copy:
            yield from copy.rows()

    def write(self, table: CopiedTable, rows: Iterable[Row]) -> None:
        with self._copying(f"COPY {table.name} ({_names(table)}) FROM STDIN", table) as copy:
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def _copying(self, statement: str, table: CopiedTable) -> Iterator[psycopg.Copy]:
        """Stream rows in either direction. Only a few of them are in memory at a time."""
        with self._open() as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([_TYPES[column.kind] for column in table.columns])
            yield copy

    def counters(self) -> LastNumbers:
        return LastNumbers(
            campaigns=self._number(_LAST_NUMBER.format(sequence=_SEQUENCE.format(table="campaigns"))),
            events=self._number("SELECT id FROM last_event"),
        )

    def set_counters(self, counters: LastNumbers) -> None:
        last_slot = self._number("SELECT coalesce(max(number), 0) FROM slots")
        with self._open() as connection:
            connection.execute("UPDATE last_event SET id = %s", (counters.events,))
            for table, last in (("campaigns", counters.campaigns), ("slots", last_slot)):
                sequence = _SEQUENCE.format(table=table)
                connection.execute(f"SELECT setval({sequence}, greatest(%s, 1), %s)", (last, last > 0))
            # The server plans by the sizes of the tables, and these were empty a moment ago.
            connection.execute(f"ANALYZE {', '.join(table.name for table in TABLES)}")

    def _number(self, statement: str) -> int:
        with self._open() as connection:
            row = connection.execute(statement).fetchone()
        return 0 if row is None else int(row[0])

    def delete_state(self, key: str) -> None:
        with self._open() as connection:
            connection.execute("DELETE FROM states WHERE key = %s", (key,))

    def close(self) -> None:
        self._database.close()


def _lift_time_limits(connection: Connection) -> None:
    """Let the transaction take minutes: a million units do, and one side waits while the other works."""
    connection.allow_slow_statements()
    connection.execute(_NO_TIME_LIMITS)


def _names(table: CopiedTable) -> str:
    return ", ".join(column.name for column in table.columns)
