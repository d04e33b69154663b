"""The import of a plan into a PostgreSQL database: new units are added, known ones compared.

A long plan is imported in many short steps, all in one transaction on a connection of its own. So nothing is visible
before the last step, other verbs continue meanwhile, and a killed import leaves nothing.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

import msgspec

from paceline.errors import StoreBusy
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
from paceline.store.postgres_connection import Connection
from paceline.store.postgres_control import FORGET_CHECKS, READY_AGAIN
from paceline.store.postgres_database import PostgresDatabase
from paceline.store.postgres_notifications import announce
from paceline.store.postgres_records import insert_events
from paceline.store.postgres_schema import MIGRATION_LOCK
from paceline.store.rows import campaign_from
from paceline.store.rules import unit_key

_COPY_UNITS: Final = "COPY units (key, campaign, name, cwd, output) FROM STDIN"
_COPY_PROMPTS: Final = "COPY prompts (key, prompt) FROM STDIN"
_SAVE_PROMPT: Final = """INSERT INTO prompts (key, prompt) VALUES (%s, %s)
    ON CONFLICT (key) DO UPDATE SET prompt = excluded.prompt"""
_NAME_LOCK: Final = "SELECT pg_try_advisory_xact_lock(20482, hashtext(current_schema() || '/' || %s))"
"""Of one campaign in one schema."""


class PostgresImport:
    """One import of a plan."""

    def __init__(
        self, database: PostgresDatabase, campaign: Campaign, *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> None:
        self._database = database
        self._campaign = campaign
        self._update = update
        self._now = now
        self._events = events
        self._number = 0
        self._before: Campaign | None = None
        """The campaign as it was when the import began, if it was stored."""
        self._first_key = 0
        self._next_key = 0
        self._comparison = SpecComparison()

    def steps(self, specs: Iterable[UnitSpec]) -> Generator[None, None, Added]:
        """Take some units per step. The last step returns the result."""
        chunks = spec_chunks(specs)
        chunk: list[UnitSpec] = next(chunks, [])
        with self._database.apart() as connection:
            self._begin(connection)
            while True:
                following = next(chunks, None)
                self._take(connection, chunk)
                if following is None:
                    return self._publish(connection)
                chunk = following
                yield

    def _begin(self, connection: Connection) -> None:
        name = self._campaign.name
        connection.execute(f"SELECT pg_advisory_xact_lock_shared({MIGRATION_LOCK})")
        row = connection.execute(_NAME_LOCK, (name,)).fetchone()
        if row is None or not row[0]:
            raise StoreBusy(f"another process is adding units to {name}; try again")
        row = connection.execute(
            "SELECT number, next_position, body FROM campaigns WHERE name = %s", (name,)
        ).fetchone()
        if row is None:
            row = connection.execute(
                "SELECT nextval(pg_get_serial_sequence('campaigns', 'number')), 0, NULL"
            ).fetchone()
            assert row is not None
        else:
            self._before = campaign_from(name, row[2])
        self._number = row[0]
        self._first_key = self._next_key = unit_key(self._number, row[1])

    def _publish(self, connection: Connection) -> Added:
        """Make all units visible, as one writer among others."""
        self._database.lock_writers(connection)
        self._save_campaign(connection)
        added = self._next_key - self._first_key
        connection.execute(
            """INSERT INTO tallies AS t (campaign, phase, account, units) VALUES (%s, 'todo', '', %s)
                ON CONFLICT (campaign, phase, account) DO UPDATE SET units = t.units + excluded.units""",
            (self._number, added),
        )
        result = self._comparison.apply(
            self._campaign.name, added, lambda stored, spec: self._update and _replace(connection, stored, spec)
        )
        if self._events:
            insert_events(connection, self._events)
        if result.added or result.updated:
            announce(connection, "commands")
        return result

    def _save_campaign(self, connection: Connection) -> None:
        name, next_position = self._campaign.name, self._next_key - unit_key(self._number, 0)
        if self._before is None:
            kept = msgspec.structs.replace(self._campaign, created_at=self._now)
            connection.execute(
                "INSERT INTO campaigns (number, name, next_position, body) VALUES (%s, %s, %s, %s)",
                (self._number, name, next_position, _encoded(kept)),
            )
            return
        row = connection.execute("SELECT body FROM campaigns WHERE number = %s", (self._number,)).fetchone()
        if row is None:
            raise StoreBusy(f"another process deleted {name} while units were added; add them again")
        kept = kept_campaign(self._campaign, self._before, campaign_from(name, row[0]))
        connection.execute(
            "UPDATE campaigns SET next_position = %s, body = %s WHERE number = %s",
            (next_position, _encoded(kept), self._number),
        )

    # -- its units -----------------------------------------------------------------------------------

    def _take(self, connection: Connection, chunk: list[UnitSpec]) -> None:
        stored = self._stored(connection, chunk) if self._before is not None else {}
        self._insert(connection, self._comparison.take(chunk, stored))

    def _stored(self, connection: Connection, chunk: list[UnitSpec]) -> dict[str, StoredSpec]:
        """Return the units of the chunk that an earlier plan described, with their keys."""
        rows = connection.execute(
            """SELECT u.key, u.name, coalesce(p.prompt, ''), u.cwd, u.output
                FROM units u LEFT JOIN prompts p ON p.key = u.key
                WHERE u.campaign = %s AND u.name = ANY(%s::text[])""",
            (self._number, [spec.id for spec in chunk]),
        ).fetchall()
        return stored_specs(rows)

    def _insert(self, connection: Connection, specs: list[UnitSpec]) -> None:
        keyed = list(enumerate(specs, self._next_key))
        with connection.cursor() as cursor, cursor.copy(_COPY_UNITS) as copy:
            for key, spec in keyed:
                copy.write_row((key, self._number, spec.id, spec.cwd, spec.output))
        with connection.cursor() as cursor, cursor.copy(_COPY_PROMPTS) as copy:
            for key, spec in keyed:
                if spec.prompt:
                    copy.write_row((key, spec.prompt))
        self._next_key += len(specs)


def _replace(connection: Connection, stored: StoredSpec, spec: UnitSpec) -> bool:
    replaced = connection.execute(
        "UPDATE units SET cwd = %s, output = %s WHERE key = %s AND state NOT IN ('running', 'done')",
        (spec.cwd, spec.output, stored.key),
    )
    connection.execute(FORGET_CHECKS.format(IS_REPAIRED), (stored.key, stored.key))
    connection.execute(f"UPDATE units SET {READY_AGAIN} WHERE key = %s AND {IS_REPAIRED}", (stored.key,))
    if replaced.rowcount and spec.prompt != stored.spec.prompt:
        connection.execute(_SAVE_PROMPT, (stored.key, spec.prompt))
    return bool(replaced.rowcount)


def _encoded(campaign: Campaign) -> str:
    return msgspec.json.encode(campaign).decode()
