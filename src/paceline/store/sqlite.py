"""The store in one SQLite file.

One process writes at a time, any number read. Every write is durable when its verb returns (WAL with
`synchronous=FULL`): it survives `kill -9` and the loss of power. One exception: dropping slots does not wait for the
disk, so it survives only `kill -9`.

A long plan is imported in many short transactions, so that other writers never wait for long. Until the last of them
its units are stored but hidden: they have their final keys, and the table `arrivals` names the first hidden key of the
campaign. The last transaction makes all of them visible at once. Leftovers of a killed import are deleted by the next
import of that campaign, or by any import after an hour.
"""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import ClassVar, Final, Self

from paceline.errors import StoreBusy, StoreError
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import Added, Campaign, UnitSpec
from paceline.store.plan_import import PlanImport, spec_chunks
from paceline.store.rules import Span, campaign_span
from paceline.store.schema import MIGRATIONS, Migration
from paceline.store.sql_store import BUSY_SECONDS, Connection, SqlStore
from paceline.store.sqlite_file import MEMORY, MigrationGuard, SqliteFile

PAUSE_SECONDS: Final = 0.005
"""How long a blocking import sleeps between two steps: other processes try to lock the file every few milliseconds."""
SWEPT_AT_ONCE: Final = 1_000
"""Leftover units deleted in one transaction: short enough for other writers."""
FORGOTTEN_SECONDS: Final = 3600.0
"""An import older than this was killed: no import takes an hour."""


class SqliteStore(SqlStore):
    """`Store` in the file at `path`, which is created if it does not exist."""

    visible: ClassVar[str] = (
        "NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.number = u.campaign AND u.key >= a.first_key)"
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_seconds: float = BUSY_SECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
        while_migrating: MigrationGuard = nullcontext,
    ) -> None:
        self._file = SqliteFile(
            os.fspath(path), busy_seconds=busy_seconds, migrations=migrations, while_migrating=while_migrating
        )
        super().__init__(self._file)
        self.pause_seconds = 0.0 if self._file.place == MEMORY else PAUSE_SECONDS

    @classmethod
    def in_memory(cls) -> Self:
        """Return a store without a file: for tests and simulations. Nothing survives it."""
        return cls(MEMORY)

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        rules.check_campaign(campaign)
        plan_import = _HiddenImport(self, campaign, update=update, now=now, events=events)
        return plan_import.steps(rules.checked_specs(units))

    def named(self, names: list[str]) -> tuple[str, tuple[object, ...]]:
        return f"name IN ({', '.join('?' * len(names))})", tuple(names)

    def visible_spans(self, connection: Connection, low: int, high: int) -> Iterator[Span]:
        for number, first_hidden in connection.execute("SELECT number, first_key FROM arrivals ORDER BY 1").fetchall():
            if low < first_hidden:
                yield low, min(first_hidden - 1, high)
            low = max(low, campaign_span(number)[1] + 1)
        if low <= high:
            yield low, high


class _HiddenImport(PlanImport):
    """An import in many transactions."""

    def steps(self, specs: Iterable[UnitSpec]) -> Generator[None, None, Added]:
        """Run one short transaction per step. The last one returns the result."""
        self._token = secrets.token_hex(8)
        yield from self._sweep_leftovers()
        try:
            chunks = spec_chunks(specs)
            chunk: list[UnitSpec] = next(chunks, [])
            while True:
                following = next(chunks, None)
                # Only the last transaction waits for the disk: it takes the earlier ones along.
                with self._database.writing(is_durable=following is None) as connection:
                    self._own(connection)
                    self.take(connection, chunk)
                    if following is None:
                        connection.execute("DELETE FROM arrivals WHERE token = ?", (self._token,))
                        return self.publish(connection)
                chunk = following
                yield
        except Exception:
            with contextlib.suppress(StoreError):  # the next import deletes what cannot be deleted now
                yield from self._sweep(self._token)
            raise

    def _own(self, connection: sqlite3.Connection) -> None:
        """Begin, or check that no other import has taken over since."""
        name = self.campaign.name
        if self.number:
            if not connection.execute("SELECT 1 FROM arrivals WHERE token = ?", (self._token,)).fetchone():
                raise StoreBusy(f"another process changed {name} while units were added; add them again")
            return
        if connection.execute("SELECT 1 FROM arrivals WHERE name = ?", (name,)).fetchone():
            raise StoreBusy(f"another process is adding units to {name}; try again")
        self.begin(connection)
        connection.execute(
            "INSERT INTO arrivals VALUES (?, ?, ?, ?, ?)", (self.number, name, self.first_key, self._token, self.now)
        )

    def _sweep_leftovers(self) -> Iterator[None]:
        """Delete leftovers of killed or superseded imports. A superseded import fails at its next step."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT token FROM arrivals WHERE name = ? OR began_at < ?",
                (self.campaign.name, self.now - FORGOTTEN_SECONDS),
            ).fetchall()
        for (token,) in found:
            with self._database.writing() as connection:
                swept = f"swept by {self._token}"
                connection.execute("UPDATE arrivals SET token = ? WHERE token = ?", (swept, token))
            yield from self._sweep(swept)

    def _sweep(self, token: str) -> Iterator[None]:
        is_swept = False
        while not is_swept:
            with self._database.writing() as connection:
                is_swept = _sweep_some(connection, token)
            yield


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
