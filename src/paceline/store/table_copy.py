"""The copy of everything that a store holds into an empty one, compared row by row before it counts.

Here: which tables and columns there are, and the order of the work. Never here: a statement.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from itertools import zip_longest
from typing import Any, Final, Literal, Protocol

import msgspec

from paceline.errors import EngineBusy, InvalidInput, StoreError, StoreUnreachable

Row = tuple[Any, ...]
Kind = Literal["integer", "real", "flag", "text", "document", "bytes"]
"""What a column holds in Python: int, float, bool, str, str or bytes. A document is JSON, which SQLite has as bytes."""
Stage = Literal["copying", "comparing"]
Report = Callable[[Stage, str, int, int], object]
"""Called with the stage, the table, how many of its rows are done, and how many it has."""

REPORTED_ROWS: Final = 2_000
"""Rows between two reports of progress: a few in a second."""


class CopiedColumn(msgspec.Struct, frozen=True):
    """A column, whose values are None or of the kind. SQLite may know it by an older name."""

    name: str
    kind: Kind
    sqlite_name: str = ""


class CopiedTable(msgspec.Struct, frozen=True):
    """A table. Its first column is a number that orders its rows; a small table has none and is sorted in memory."""

    name: str
    columns: tuple[CopiedColumn, ...]
    is_small: bool = False


def _columns(kind: Kind, *names: str) -> tuple[CopiedColumn, ...]:
    return tuple(CopiedColumn(name, kind) for name in names)


_UNIT_COLUMNS: Final = (
    *_columns("integer", "key", "campaign"),
    *_columns("text", "name", "cwd", "output", "state"),
    CopiedColumn("failures", "integer", "attempts"),
    CopiedColumn("attempts", "integer", "tries"),
    *_columns("integer", "parks", "windows_spent", "refusals", "losses"),
    *_columns("real", "resume_at"),
    *_columns("text", "reason", "account"),
    CopiedColumn("conversation_id", "text", "session_id"),
    CopiedColumn("attempt_id", "text", "attempt"),
    *_columns("integer", "fence"),
    *_columns("real", "lease_until", "started_at", "ended_at"),
    *_columns("integer", "exit_code"),
    *_columns("real", "begun_at"),
    *_columns("flag", "is_parked"),
    *_columns("integer", "denials"),
    *_columns("text", "warnings", "phase"),
    *_columns("integer", "resume_cost"),
)

STATES: Final = CopiedTable("states", (*_columns("text", "key"), *_columns("bytes", "value")), is_small=True)
TABLES: Final = (
    CopiedTable(
        "campaigns",
        (
            *_columns("integer", "number"),
            *_columns("text", "name"),
            *_columns("integer", "next_position"),
            *_columns("document", "body"),
        ),
    ),
    CopiedTable("units", _UNIT_COLUMNS),
    CopiedTable("prompts", (*_columns("integer", "key"), *_columns("text", "prompt"))),
    CopiedTable("results", (*_columns("integer", "key"), *_columns("text", "body", "checks", "texts"))),
    CopiedTable(
        "tallies",
        (*_columns("integer", "campaign"), *_columns("text", "phase", "account"), *_columns("integer", "units")),
        is_small=True,
    ),
    CopiedTable(
        "events",
        (
            *_columns("integer", "id"),
            *_columns("text", "unit"),
            *_columns("flag", "is_slot"),
            *_columns("document", "body"),
        ),
    ),
    CopiedTable(
        "slots",
        (CopiedColumn("number", "integer", "rowid"), *_columns("text", "id"), *_columns("document", "body")),
    ),
    CopiedTable(
        "gateway_spend",
        (
            *_columns("text", "day", "key", "account", "model"),
            *_columns("integer", "requests", "input", "output", "cache_read", "cache_write"),
            *_columns("real", "billed", "imputed"),
            *_columns("integer", "unpriced", "estimated"),
        ),
        is_small=True,
    ),
    CopiedTable(
        "client_keys",
        (
            *_columns("integer", "number"),
            *_columns("text", "name", "digest"),
            *_columns("real", "revoked_at"),
            *_columns("document", "body"),
        ),
    ),
    STATES,
)
NOT_COPIED: Final = frozenset({"leader", "arrivals", "last_event", "paceline", "sqlite_sequence"})
"""The lead is taken, an import that was killed is swept, and what numbers rows is read as `LastNumbers`."""
IDENTITY_STATE: Final = "fleet"
"""The state by which homes know their database. A database that has nothing else is empty."""


class LastNumbers(msgspec.Struct, frozen=True):
    """The highest numbers that were ever given: none of them is given again."""

    campaigns: int
    events: int


class CopySide(Protocol):
    """One of the two stores of a copy. Everything but `close` is called inside of `locked`."""

    place: str

    def locked(self) -> AbstractContextManager[None]:
        """Keep other writers out while the block runs, and read one state. What was written is stored at its end."""

    def check_idle(self, gone: frozenset[str]) -> None:
        """Raise `EngineBusy` while an engine leads, unless it is known to be gone. Raise `StoreBusy` for an import."""

    def count(self, table: CopiedTable) -> int: ...
    def read(self, table: CopiedTable) -> Generator[Row, None, None]:
        """Yield the rows of a table in order, without the rows that verbs do not see."""

    def write(self, table: CopiedTable, rows: Iterable[Row]) -> None: ...
    def counters(self) -> LastNumbers: ...
    def set_counters(self, counters: LastNumbers) -> None:
        """Let new rows be numbered after all that were copied."""

    def delete_state(self, key: str) -> None: ...

    def close(self) -> None: ...


def copy_store(source: CopySide, destination: CopySide, *, gone: frozenset[str], report: Report) -> Mapping[str, int]:
    """Copy everything but the lead, and compare every row. Return how many rows each table has.

    The destination is changed completely or not at all. `gone` are owners of leases whose processes have ended.
    """
    try:
        return _copy_all(source, destination, gone, report)
    except StoreUnreachable as error:
        raise StoreUnreachable(f"{str(error).partition(';')[0]}; the copy was not finished, run it again") from error


def _copy_all(source: CopySide, destination: CopySide, gone: frozenset[str], report: Report) -> Mapping[str, int]:
    with destination.locked(), source.locked():  # in this order: the source is released before the copy counts
        for side in (source, destination):
            side.check_idle(gone)
        _check_empty(destination)
        own_identity = [] if _identity(source) else _identity(destination)
        destination.delete_state(IDENTITY_STATE)
        rows = {table.name: source.count(table) for table in TABLES}
        for table in TABLES:
            with closing(source.read(table)) as read:
                destination.write(table, _reported(read, report, "copying", table.name, rows[table.name]))
        destination.set_counters(source.counters())
        for table in TABLES:
            _compare(source, destination, table, report, rows[table.name])
        if source.counters() != destination.counters():
            raise _difference("the last numbers", source, source.counters(), destination, destination.counters())
        destination.write(STATES, own_identity)
        return rows


def leads(owner: str, place: str) -> EngineBusy:
    """Return the error for a store that is led."""
    return EngineBusy(f"the engine {owner} leads {place}: stop it first, and whatever else uses it")


def _identity(side: CopySide) -> list[Row]:
    return [row for row in side.read(STATES) if row[0] == IDENTITY_STATE]


def _check_empty(destination: CopySide) -> None:
    counts = {table.name: destination.count(table) for table in TABLES}
    counts[STATES.name] -= len(_identity(destination))
    if any(counts.values()):
        what = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
        raise InvalidInput(f"{destination.place} is not empty ({what}); nothing was changed. Choose an empty database")


def _reported(rows: Iterable[Row], report: Report, stage: Stage, table: str, total: int) -> Iterator[Row]:
    report(stage, table, 0, total)
    for done, row in enumerate(rows, 1):
        yield row
        if done % REPORTED_ROWS == 0:
            report(stage, table, done, total)
    report(stage, table, total, total)


def _compare(source: CopySide, destination: CopySide, table: CopiedTable, report: Report, total: int) -> None:
    with closing(source.read(table)) as ours, closing(destination.read(table)) as theirs:
        for expected, found in zip_longest(_reported(ours, report, "comparing", table.name, total), theirs):
            if expected != found:
                raise _row_difference(source, destination, table, expected, found)


def _row_difference(
    source: CopySide, destination: CopySide, table: CopiedTable, expected: Row | None, found: Row | None
) -> StoreError:
    if expected is None or found is None:
        row, place = (expected, destination.place) if found is None else (found, source.place)
        return StoreError(f"{_name_of(table, row or ())} is not in {place}; nothing was copied")
    differing = (
        _difference(f"{column.name} of {_name_of(table, expected)}", source, one, destination, other)
        for column, one, other in zip(table.columns, expected, found, strict=True)
        if one != other
    )
    return next(differing)


def _difference(what: str, source: CopySide, one: object, destination: CopySide, other: object) -> StoreError:
    return StoreError(
        f"{what} is {_brief(one)} in {source.place} and {_brief(other)} in {destination.place}; nothing was copied"
    )


def _name_of(table: CopiedTable, row: Row) -> str:
    """Return what a person finds the row by."""
    named = [f" ({value})" for column, value in zip(table.columns, row, strict=True) if column.name == "name"]
    return f"{table.name} {row[0]}{''.join(named)}"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
