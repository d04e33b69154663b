"""The migration of a PostgreSQL database: which steps are missing, and what keeps other processes out meanwhile.

The table `schema_version` has one row: `version` is the number of migrations that were applied, and `oldest` the lowest
version that code must know to use the schema as it is. All tables are in the schema that the connection uses
(`search_path`), which is Paceline's own. Never here: a table (`schema.py`).
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from paceline.errors import EngineBusy, InvalidSettings
from paceline.store.schema import POSTGRES, Migration, check_known, unreleased

OLDEST_SERVER: Final = 130000
"""PostgreSQL 13. Older ones get no security updates."""
MIGRATION_LOCK: Final = "20480, hashtext(current_schema())"
"""The advisory lock under which one process at a time creates or updates the schema. Imports share it."""
WRITER_LOCK: Final = "20481, hashtext(current_schema())"
"""The advisory lock of writing transactions. One writer at a time: no deadlock, and events in order. The lock is of the
whole database, so the schema is a part of it: fleets in other schemas do not wait for each other."""
MIGRATION_SECONDS: Final = 60.0
"""How long a migration waits for transactions of other processes: longer than the last step of an import takes."""
LOCK_RETRY_SECONDS: Final = 0.02
"""How long a migration sleeps before it tries to lock all tables again: about as long as a pass of an engine reads."""

_HAVE_OLDEST: Final = """SELECT c.relname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND a.attname = 'oldest'"""
_LEADER: Final = "SELECT owner FROM leader WHERE owner IS NOT NULL AND until > extract(epoch FROM clock_timestamp())"

_Connection = psycopg.Connection[Any]


def migrate(connection: _Connection, place: str, migrations: Sequence[Migration]) -> None:
    """Create or update the schema, in one transaction. Other processes wait for it. Raise if it must not be touched."""
    if connection.info.server_version < OLDEST_SERVER:
        raise InvalidSettings(
            f"{place} is PostgreSQL {connection.info.server_version // 10000}; Paceline needs "
            f"{OLDEST_SERVER // 10000} or newer: name another server in store.url"
        )
    version, oldest = _applied(connection, place)
    check_known(place, oldest, migrations, version)
    if version >= len(migrations):
        return
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {round(MIGRATION_SECONDS * 1000)}")
        connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        version, oldest = _applied(connection, place)  # another process may have been first
        check_known(place, oldest, migrations, version)
        missing = migrations[version:]
        if version == 0:
            connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL, oldest INTEGER NOT NULL)")
            connection.execute("INSERT INTO schema_version (version, oldest) VALUES (0, 0)")
        elif missing:
            _keep_others_out(connection, place, is_additive=all(each.is_additive for each in missing))
        for each in missing:
            for statement in each.spelled(POSTGRES):
                connection.execute(statement)
        if missing:
            known = len(migrations), _oldest(migrations)
            connection.execute("UPDATE schema_version SET version = %s, oldest = %s", known)


def _oldest(migrations: Sequence[Migration]) -> int:
    """Return the version that code must know after these migrations: the last that is not additive."""
    return max(number for number, each in enumerate(migrations, 1) if not each.is_additive)


def _keep_others_out(connection: _Connection, place: str, *, is_additive: bool) -> None:
    """Let nobody read or write before the end of the transaction. Raise `EngineBusy` if that would break an engine.

    The engine that leads is of an older version: a newer one would have updated the schema itself.
    """
    connection.execute(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")
    row = None if is_additive else connection.execute(_LEADER).fetchone()
    if row is not None:
        raise EngineBusy(
            f"the engine {row[0]} of an older Paceline leads {place}, and could not use it once this one has updated "
            "it: stop that engine first, and all others of its version"
        )
    _lock_tables(connection)


def _lock_tables(connection: _Connection) -> None:
    """Lock all tables at once, between the transactions that read them: to wait for one of them could be a deadlock."""
    names = ", ".join(sorted(_tables(connection)))
    give_up_at = time.monotonic() + MIGRATION_SECONDS
    while True:
        try:
            with connection.transaction():
                connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE NOWAIT")
            return
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(LOCK_RETRY_SECONDS)


def _applied(connection: _Connection, place: str) -> tuple[int, int]:
    """Return the version of the schema and the oldest of code. A schema with tables of another program is refused."""
    tables = _tables(connection)
    if not tables:
        return 0, 0
    with_versions = {name for (name,) in connection.execute(_HAVE_OLDEST).fetchall()}
    if "paceline" in with_versions:  # as the table of versions was called
        raise unreleased(place)
    if "schema_version" not in with_versions:
        raise InvalidSettings(
            f"{place} has tables of another program ({', '.join(sorted(tables)[:3])}); "
            "choose another database or schema in store.url"
        )
    row = connection.execute("SELECT version, oldest FROM schema_version").fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def _tables(connection: _Connection) -> set[str]:
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {str(name) for (name,) in found}
