"""The whole content of a store as JSON lines, and back into an empty store of either database.

The first line names the tables and their columns, one line follows for each row, and the last line counts them: a file
without it was cut off. Rows are read in one transaction, so the store may be in use meanwhile, and written in one, so
that nothing is imported by halves. A column that a later version adds is left at its default.

Left out: the lead, plans whose import is under way, the batches of running processes, and what is counted from units.
"""

import base64
import binascii
import math
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from paceline.errors import EngineBusy, InvalidInput
from paceline.store.rules import ALL_KEYS, UNIT_FIELDS, Span
from paceline.store.schema import COUNT_UNITS
from paceline.store.spend import SPEND_COLUMNS
from paceline.store.sql_store import Connection, SqlStore

FORMAT: Final = 1
"""The version of the form of the file. Its first line has the columns."""
ROWS_AT_ONCE: Final = 500
"""Rows that are read or written at once: a prompt may be 1 MB, and so many of them are in memory."""
IDENTITY_STATE: Final = "fleet"
"""The state by which homes know their database. A database that has nothing else is empty."""

TABLES: Final = {
    "counters": ("name", "value"),
    "campaigns": ("number", "name", "next_position", "body"),
    "units": (*UNIT_FIELDS, "campaign"),
    "prompts": ("key", "prompt"),
    "results": ("key", "body", "checks", "texts"),
    "events": ("id", "unit", "is_slot", "body"),
    "slots": ("number", "id", "body"),
    "states": ("key", "value"),
    "client_keys": ("number", "name", "digest", "revoked_at", "body"),
    "gateway_spend": SPEND_COLUMNS,
}
"""What is exported, in this order. The first column is the number that orders the rows, except in small tables."""
NOT_EXPORTED: Final = frozenset({"leader", "arrivals", "spend_batches", "tallies", "schema_version"})
_SMALL: Final = frozenset({"counters", "states", "gateway_spend"})
_OF_UNITS: Final = frozenset({"units", "prompts", "results"})
"""Tables that may have rows of a plan whose import is under way: nobody sees them yet."""
_NUMBERED_ANEW: Final = frozenset({"slots", "client_keys"})
_TIMES: Final = frozenset({"resume_at", "lease_until", "started_at", "ended_at", "begun_at", "revoked_at"})
_FLAGS: Final = frozenset({"is_parked", "is_slot"})
_UNCHANGED: Final = ", so nothing was imported: export the home again"


class _Head(msgspec.Struct, frozen=True):
    """The first line."""

    paceline_export: int
    tables: dict[str, tuple[str, ...]]


class _End(msgspec.Struct, frozen=True):
    """The last line."""

    rows: int


class _Row(NamedTuple):
    """Any other line."""

    table: str
    values: list[Any]


def export_store(store: SqlStore, write: Callable[[bytes], object]) -> int:
    """Write everything, line by line. Return the number of rows."""
    count = 0
    write(_line(_Head(FORMAT, TABLES)))
    with store.database.reading(is_slow=True) as connection:
        spans = list(store.visible_spans(connection, *ALL_KEYS))
        for table, columns in TABLES.items():
            for row in _stored(connection, table, spans):
                write(_line(_Row(table, [_sent(name, value) for name, value in zip(columns, row, strict=True)])))
                count += 1
    write(_line(_End(count)))
    return count


def import_store(store: SqlStore, lines: Iterable[bytes]) -> int:
    """Fill an empty store with what `export_store` wrote. Return the number of rows.

    Raise `InvalidInput`, and import nothing, if the store is not empty or the file is not whole.
    """
    count = 0
    with store.together(), store.database.writing(is_slow=True) as connection:
        _check_empty(store, connection)
        numbered = enumerate(lines, 1)
        rows = _rows(numbered, _head(numbered).tables)
        while portion := list(islice(rows, ROWS_AT_ONCE)):
            for statement in dict.fromkeys(each for each, _ in portion):
                connection.executemany(statement, [values for each, values in portion if each == statement])
            count += len(portion)
        connection.execute(COUNT_UNITS)
    return count


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _stored(connection: Connection, table: str, spans: list[Span]) -> Iterator[tuple[Any, ...]]:
    number, *_ = columns = TABLES[table]
    select = f"SELECT {', '.join(columns)} FROM {table}"
    if table in _SMALL:
        yield from connection.execute(f"{select} ORDER BY 1").fetchall()
        return
    portion = f"{select} WHERE {number} > ? AND {number} <= ? ORDER BY {number} LIMIT {ROWS_AT_ONCE}"
    for low, high in spans if table in _OF_UNITS else [ALL_KEYS]:
        after = low - 1
        while rows := connection.execute(portion, (after, high)).fetchall():
            yield from rows
            after = rows[-1][0]


def _sent(column: str, value: Any) -> object:
    """Return the value of a column as JSON can have it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return bool(value) if column in _FLAGS else value


def _received(table: str, column: str, value: Any) -> object:
    if table == "states" and column == "value":
        return base64.b64decode(value, validate=True)
    return float(value) if column in _TIMES and value is not None else value


def _check_empty(store: SqlStore, connection: Connection) -> None:
    """Raise unless the store has nothing but its identity, and no engine leads it."""
    leader = store.leader(now=time.time())
    if leader is not None and leader.seconds > 0:
        raise EngineBusy(f"the engine {leader.owner} leads {store.database.place}: stop it first")
    for table in sorted(TABLES, key="counters".__eq__):  # these last: they name what there was, and not what there is
        which = {"counters": "value > 0", "states": f"key <> '{IDENTITY_STATE}'"}.get(table, "TRUE")
        if connection.execute(f"SELECT 1 FROM {table} WHERE {which} LIMIT 1").fetchone():
            raise InvalidInput(
                f"{store.database.place} is not empty (it has {table.replace('_', ' ')}), so nothing was imported: "
                "name a new home (PACELINE_HOME) or another store.url"
            )


def _head(lines: Iterator[tuple[int, bytes]]) -> _Head:
    _, line = next(lines, (1, b""))
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidInput("this is no export of a home: `paceline export FILE` writes one") from None
    unknown = [f"{table}.{each}" for table in head.tables for each in head.tables[table] if each not in TABLES[table]]
    if head.paceline_export > FORMAT or unknown:
        raise InvalidInput("a newer Paceline wrote this export, so nothing was imported: upgrade first")
    return head


def _rows(lines: Iterator[tuple[int, bytes]], tables: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, list[object]]]:
    """Yield each row as the statement that inserts it and its values. Raise unless the last line counts them."""
    statements = {table: _insert(table, columns) for table, columns in tables.items()}
    count = 0
    for number, line in lines:
        try:
            found = _DECODER.decode(line)
            if isinstance(found, _End):
                break
            table, values = found
            pairs = zip(tables[table], values, strict=True)
            received = [_received(table, column, value) for column, value in pairs]
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError, binascii.Error):
            raise InvalidInput(f"line {number} cannot be read{_UNCHANGED}") from None
        yield statements[table], received[1:] if table in _NUMBERED_ANEW else received
        count += 1
    else:
        raise InvalidInput(f"the export is cut off after {count} rows{_UNCHANGED}")
    if found.rows != count:
        raise InvalidInput(f"the export has {count} of {found.rows} rows{_UNCHANGED}")


def _insert(table: str, columns: tuple[str, ...]) -> str:
    named = columns[1:] if table in _NUMBERED_ANEW else columns
    insert = f"INSERT INTO {table} ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})"
    if table not in ("counters", "states"):
        return insert
    return f"{insert} ON CONFLICT ({columns[0]}) DO UPDATE SET value = excluded.value"


_DECODER: Final = msgspec.json.Decoder(_Row | _End)
