"""The import of a plan into a SQLite file: new units are added, known ones compared.

A long plan is imported in many short transactions, so that other writers never wait for long. Until the last of them
its units are stored but hidden: they have their final keys, and the table `arrivals` names the first hidden key of the
campaign. The last transaction makes all of them visible at once. Leftovers of a killed import are deleted by the next
import of that campaign, or by any import after an hour.
"""

import contextlib
import secrets
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from paceline.errors import StoreBusy, StoreError
from paceline.events import Event
from paceline.store.interface import Added, Campaign, UnitSpec
from paceline.store.plan_import import (
    IS_REPAIRED,
    SpecComparison,
    StoredSpec,
    kept_campaign,
    spec_chunks,
    stored_specs,
)
from paceline.store.rows import campaign_from
from paceline.store.rules import campaign_span, unit_key
from paceline.store.sqlite_control import FORGET_CHECKS, READY_AGAIN
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_records import insert_events

SWEPT_AT_ONCE: Final = 1_000
"""Leftover units deleted in one transaction: short enough for other writers."""
FORGOTTEN_SECONDS: Final = 3600.0
"""An import older than this was killed: no import takes an hour."""

_INSERT_UNIT: Final = "INSERT INTO units (key, campaign, name, cwd, output) VALUES (?, ?, ?, ?, ?)"
_SAVE_PROMPT: Final = "INSERT INTO prompts VALUES (?, ?) ON CONFLICT DO UPDATE SET prompt = excluded.prompt"


class PlanImport:
    """One import of a plan."""

    def __init__(
        self, file: SqliteFile, campaign: Campaign, *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> None:
        self._file = file
        self._campaign = campaign
        self._update = update
        self._now = now
        self._events = events
        self._token = secrets.token_hex(8)
        self._number = 0
        self._before: Campaign | None = None
        """The campaign as it was when the import began, if it was stored."""
        self._first_key = 0
        self._next_key = 0
        self._comparison = SpecComparison()

    def steps(self, specs: Iterable[UnitSpec]) -> Generator[None, None, Added]:
        """Run one short transaction per step. The last one returns the result."""
        yield from self._sweep_leftovers()
        try:
            chunks = spec_chunks(specs)
            chunk: list[UnitSpec] = next(chunks, [])
            while True:
                following = next(chunks, None)
                with self._transaction(is_last=following is None) as connection:
                    self._own(connection)
                    self._take(connection, chunk)
                    if following is None:
                        return self._publish(connection)
                chunk = following
                yield
        except Exception:
            with contextlib.suppress(StoreError):  # the next import deletes what cannot be deleted now
                yield from self._sweep(self._token)
            raise

    def _transaction(self, *, is_last: bool) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Wait for the disk only in the last transaction: it takes the earlier ones along."""
        return self._file.writing() if is_last else self._file.writing_without_wait()

    # -- begin and end -------------------------------------------------------------------------------

    def _own(self, connection: sqlite3.Connection) -> None:
        """Begin, or check that no other import has taken over since."""
        if not self._number:
            self._begin(connection)
        elif not connection.execute("SELECT 1 FROM arrivals WHERE token = ?", (self._token,)).fetchone():
            raise StoreBusy(f"another process changed {self._campaign.name} while units were added; add them again")

    def _begin(self, connection: sqlite3.Connection) -> None:
        name = self._campaign.name
        if connection.execute("SELECT 1 FROM arrivals WHERE name = ?", (name,)).fetchone():
            raise StoreBusy(f"another process is adding units to {name}; try again")
        row = connection.execute("SELECT number, next_position, body FROM campaigns WHERE name = ?", (name,)).fetchone()
        if row is None:
            number, position = _reserved_number(connection), 0
        else:
            number, position = row[:2]
            self._before = campaign_from(name, row[2])
        self._first_key = self._next_key = unit_key(number, position)
        connection.execute(
            "INSERT INTO arrivals VALUES (?, ?, ?, ?, ?)", (number, name, self._first_key, self._token, self._now)
        )
        self._number = number

    def _publish(self, connection: sqlite3.Connection) -> Added:
        """Make all units visible."""
        self._save_campaign(connection)
        added = self._next_key - self._first_key
        connection.execute(
            "INSERT INTO tallies VALUES (?, 'todo', '', ?) ON CONFLICT DO UPDATE SET units = units + excluded.units",
            (self._number, added),
        )
        connection.execute("DELETE FROM arrivals WHERE token = ?", (self._token,))
        result = self._comparison.apply(
            self._campaign.name, added, lambda stored, spec: self._update and _replace(connection, stored, spec)
        )
        insert_events(connection, self._events)
        return result

    def _save_campaign(self, connection: sqlite3.Connection) -> None:
        name, next_position = self._campaign.name, self._next_key - unit_key(self._number, 0)
        if self._before is None:
            kept = msgspec.structs.replace(self._campaign, created_at=self._now)
            connection.execute(
                "INSERT INTO campaigns VALUES (?, ?, ?, ?)",
                (self._number, name, next_position, msgspec.json.encode(kept)),
            )
            return
        row = connection.execute("SELECT body FROM campaigns WHERE number = ?", (self._number,)).fetchone()
        kept = kept_campaign(self._campaign, self._before, campaign_from(name, row[0]))
        connection.execute(
            "UPDATE campaigns SET next_position = ?, body = ? WHERE number = ?",
            (next_position, msgspec.json.encode(kept), self._number),
        )

    # -- its units -----------------------------------------------------------------------------------

    def _take(self, connection: sqlite3.Connection, chunk: list[UnitSpec]) -> None:
        stored = self._stored(connection, chunk) if self._before is not None else {}
        self._insert(connection, self._comparison.take(chunk, stored))

    def _stored(self, connection: sqlite3.Connection, chunk: list[UnitSpec]) -> dict[str, StoredSpec]:
        rows = connection.execute(
            f"""SELECT u.key, u.name, coalesce(p.prompt, ''), u.cwd, u.output
                FROM units u LEFT JOIN prompts p ON p.key = u.key
                WHERE u.campaign = ? AND u.name IN ({", ".join("?" * len(chunk))})""",
            (self._number, *(spec.id for spec in chunk)),
        )
        return stored_specs(rows)

    def _insert(self, connection: sqlite3.Connection, specs: list[UnitSpec]) -> None:
        keyed = list(enumerate(specs, self._next_key))
        connection.executemany(
            _INSERT_UNIT, [(key, self._number, spec.id, spec.cwd, spec.output) for key, spec in keyed]
        )
        connection.executemany(_SAVE_PROMPT, [(key, spec.prompt) for key, spec in keyed if spec.prompt])
        self._next_key += len(specs)

    # -- leftovers -----------------------------------------------------------------------------------

    def _sweep_leftovers(self) -> Iterator[None]:
        """Delete leftovers of killed or superseded imports. A superseded import fails at its next step."""
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT token FROM arrivals WHERE name = ? OR began_at < ?",
                (self._campaign.name, self._now - FORGOTTEN_SECONDS),
            ).fetchall()
        for (token,) in found:
            with self._file.writing() as connection:
                swept = f"swept by {self._token}"
                connection.execute("UPDATE arrivals SET token = ? WHERE token = ?", (swept, token))
            yield from self._sweep(swept)

    def _sweep(self, token: str) -> Iterator[None]:
        is_swept = False
        while not is_swept:
            with self._file.writing() as connection:
                is_swept = _sweep_some(connection, token)
            yield


def _replace(connection: sqlite3.Connection, stored: StoredSpec, spec: UnitSpec) -> bool:
    replaced = connection.execute(
        "UPDATE units SET cwd = ?, output = ? WHERE key = ? AND state NOT IN ('running', 'done')",
        (spec.cwd, spec.output, stored.key),
    )
    connection.execute(FORGET_CHECKS.format(IS_REPAIRED), (stored.key, stored.key))
    connection.execute(f"UPDATE units SET {READY_AGAIN} WHERE key = ? AND {IS_REPAIRED}", (stored.key,))
    if replaced.rowcount and spec.prompt != stored.spec.prompt:
        connection.execute(_SAVE_PROMPT, (stored.key, spec.prompt))
    return bool(replaced.rowcount)


def _sweep_some(connection: sqlite3.Connection, token: str) -> bool:
    """Delete some leftovers of one import. Return whether none is left."""
    row = connection.execute("SELECT number, first_key FROM arrivals WHERE token = ?", (token,)).fetchone()
    if row is None:
        return True
    number, first_key = row
    some = "(SELECT key FROM units WHERE key BETWEEN ? AND ? LIMIT ?)"
    which = (first_key, campaign_span(number)[1], SWEPT_AT_ONCE)
    connection.execute(f"DELETE FROM prompts WHERE key IN {some}", which)
    if connection.execute(f"DELETE FROM units WHERE key IN {some}", which).rowcount == SWEPT_AT_ONCE:
        return False
    connection.execute("DELETE FROM arrivals WHERE token = ?", (token,))
    return True


def _reserved_number(connection: sqlite3.Connection) -> int:
    """Return a number for a new campaign that no other campaign can get."""
    number = connection.execute("INSERT INTO campaigns (name, body) VALUES ('', '')").lastrowid or 0
    connection.execute("DELETE FROM campaigns WHERE number = ?", (number,))
    return number
