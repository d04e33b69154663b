"""The connections to a PostgreSQL database: its migration, opening them, transactions, and errors.

Every error of `psycopg` becomes a `StoreError`; no other module sees one. All tables are in the schema that the
connection uses (`search_path`), which is Paceline's own. The one row of `schema_version` has the number of migrations
that were applied (`version`), and the lowest version that code must know to use the schema as it is (`oldest`).
Never here: a table (`schema.py`), or a verb of the store.
"""

import contextlib
import datetime
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import psycopg
import psycopg_pool

from paceline.errors import (
    EngineBusy,
    InvalidSettings,
    LeadLost,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from paceline.store.postgres_connection import (
    ANSWER_SECONDS,
    IMPORT_IDLE_SECONDS,
    Connection,
    Row,
    check_sessions,
    first_line,
    server_place,
    with_time_limits,
)
from paceline.store.schema import POSTGRES, Migration, check_known, unreleased
from paceline.store.sql_store import Database, Written

log = logging.getLogger("paceline.store")
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # it prints every attempt; the caller reports the outage

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

POOL_WAIT_SECONDS: Final = 0.25
"""How long a verb waits for a connection: long enough to open one on a network, too short to freeze an engine."""
NO_WAIT_SECONDS: Final = 0.001
"""The same while the server does not answer: the pool connects again in the background, and whoever asks gets an answer
at once. (For 0 the pool would not even start to connect.)"""
RECONNECT_SECONDS: Final = 2.0
"""After this the pool gives up, and the next verb makes it try again. By itself it would wait longer and longer."""
OPENING_SECONDS: Final = 10.0
"""How long the first connection may take: a command at a terminal waits rather than fails."""
CLOSING_SECONDS: Final = 1.0
"""How long the end waits for connections that are being opened. They end with the process in any case."""
MOST_CONNECTIONS: Final = 4
"""One for verbs, one for each import of a plan that is under way, and one to spare."""


def _silence_limit(seconds: float) -> str:
    """Return the statement by which the server ends the transaction when nothing was sent for so long."""
    return f"SET LOCAL idle_in_transaction_session_timeout = {round(seconds * 1000)}"


_SLOW_WAYS: Final = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "jit")
_BY_INDEX: Final = "; ".join(f"SET {way} = off" for way in _SLOW_WAYS)
"""Every statement finds its rows one by one in the order of an index. From statistics of an hour ago, when the table
was small or everything waited, the server would plan to read all of it. A way that is off counts as so costly that the
server would compile the statement first (`jit`), which takes longer than to run it."""
_PATIENT: Final = _silence_limit(IMPORT_IDLE_SECONDS)
_BEGIN_APART: Final = f"BEGIN; {_PATIENT}"
_LOCK: Final = f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"
_LOCK_WRITERS: Final = f"{_LOCK}; SELECT oldest, owner, epoch FROM schema_version, leader"
"""The second statement sees what was stored until the lock was granted. Both are one trip to the server."""
_BEGIN_WRITING: Final = f"BEGIN; {_LOCK_WRITERS}"
_END_FROZEN: Final = f"""SELECT pid, pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND (classid, objid, objsubid) = ({WRITER_LOCK}, 2)
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND wait_event_type = 'Client' AND state_change < clock_timestamp() - make_interval(secs => %s)"""
"""It ends the connection of a process that holds the writer's lock, and that the server has waited for that long. The
limits of that connection do not always end it: none of them counts between two messages that are sent at once, in the
middle of a message, and while the process takes no answer."""
_HAS_RIGHT: Final = """SELECT 1 / count(*) FROM schema_version, leader
    WHERE oldest <= %s AND (%s::text IS NULL OR (owner = %s AND epoch = %s))"""
"""It fails where `_check_right` would, so that nothing after it is done."""
_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_NOT_WRITABLE: Final = f"""SELECT tablename, current_user FROM ({_TABLES}) AS t WHERE NOT (
    SELECT bool_and(has_table_privilege(format('%I', tablename), needed))
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed)"""
_BEGIN_READING: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

Check = Callable[[psycopg.Cursor[Row]], object]
Values = Sequence[object] | Mapping[str, object]


def migrate(connection: Connection, place: str, migrations: Sequence[Migration]) -> None:
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
        connection.execute(_silence_limit(ANSWER_SECONDS))  # others cannot even start while this process is frozen
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


def _keep_others_out(connection: Connection, place: str, *, is_additive: bool) -> None:
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


def _lock_tables(connection: Connection) -> None:
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


def _applied(connection: Connection, place: str) -> tuple[int, int]:
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


def _tables(connection: Connection) -> set[str]:
    return {str(name) for (name,) in connection.execute(_TABLES).fetchall()}


class Fence(NamedTuple):
    """The lead that a process has taken. It counts as long as nobody has led after it."""

    owner: str
    epoch: int


class PostgresDatabase(Database):
    """A few connections, with one transaction of the store at a time."""

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float,
        answer_seconds: float = ANSWER_SECONDS,
        migrations: Sequence[Migration],
    ) -> None:
        self.fence: Fence | None = None
        """Set while this process leads."""
        super().__init__(server_place(url), busy_seconds, psycopg.Error)
        self.address = with_time_limits(url)
        self._answer_seconds = answer_seconds
        self._migrations = migrations
        self._silent_since: float | None = None
        """Since when the server does not answer."""
        self._not_connected = ""
        """Why the pool could not connect the last time."""
        self._pool: psycopg_pool.ConnectionPool[Connection] = psycopg_pool.ConnectionPool(
            self.address,
            connection_class=Connection,
            min_size=1,
            max_size=MOST_CONNECTIONS,
            kwargs={"on_failure": self._note_failure},
            configure=self._configure,
            reconnect_timeout=RECONNECT_SECONDS,
            open=False,
        )
        with self.translated_errors():
            with _first_connection(self.address) as connection:
                check_sessions(connection, self.address, self.place)
                migrate(connection, self.place, migrations)
            self._pool.open(wait=True, timeout=OPENING_SECONDS)

    def writing(self, *, is_slow: bool = False, is_durable: bool = True) -> AbstractContextManager[Connection]:
        """Begin a transaction that writes.

        Raise `LeadLost` if this process led, and another one has taken the lead since, and `StoreTooNew` if a newer
        Paceline has changed the schema too much since. Both change only under the writer's lock, so not inside the
        transaction.
        """
        return self._session(_BEGIN_WRITING, self._check_right, is_slow=is_slow)

    def write(self, statement: str, values: Values) -> Written:
        """Run a transaction of one statement in one trip to the server. Raise as `writing` does."""
        with self.translated_errors():
            if self._joint is not None:
                return _written(self._joint.execute(statement, values))
            if psycopg.capabilities.has_pipeline():
                with contextlib.suppress(psycopg.errors.DivisionByZero), self._connection() as connection:
                    return self._write_at_once(connection, statement, values)
        with self.writing() as connection:  # says what is wrong
            return _written(connection.execute(statement, values))

    def _write_at_once(self, connection: Connection, statement: str, values: Values) -> Written:
        owner, epoch = self.fence or (None, None)
        try:
            with connection.pipeline():
                connection.execute("BEGIN")
                connection.execute(_LOCK)
                connection.execute(_HAS_RIGHT, (len(self._migrations), owner, owner, epoch))
                found = connection.execute(statement, values)
                connection.execute("COMMIT")
            return _written(found)
        except BaseException:
            _roll_back(connection)
            raise

    def reading(self, *, is_slow: bool = False) -> AbstractContextManager[Connection]:
        return self._session(f"{_BEGIN_READING}; {_PATIENT}" if is_slow else _BEGIN_READING, is_slow=is_slow)

    def query(self) -> AbstractContextManager[Connection]:
        """Give a connection for one statement that reads. It needs no transaction, so it is one trip to the server."""
        return self._session()

    def apart(self) -> AbstractContextManager[Connection]:
        """Begin a transaction on a connection of its own, without the writer's lock. Other verbs continue beside it."""
        return self._session(_BEGIN_APART, is_slow=True)

    @contextlib.contextmanager
    def _session(self, begin: str = "", check: Check | None = None, *, is_slow: bool = False) -> Iterator[Connection]:
        """Give the transaction of `together`, or a new one that begins with these statements, if there are any."""
        with self.translated_errors(), contextlib.ExitStack() as held:
            connection: Connection | None = self._joint
            if connection is None:
                connection = held.enter_context(self._connection())
                if begin:
                    held.enter_context(_transaction(connection, begin, check))
            if is_slow:
                connection.allow_slow_statements()
            yield connection

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        fence = self.fence
        try:
            with super().together():
                yield
        except BaseException:
            self.fence = fence  # the lead that the block took or gave up is as it was
            raise

    def lock_writers(self, connection: Connection) -> None:
        """Make a transaction that was begun without the writer's lock one that may write, as `writing` does."""
        self._check_right(connection.execute(f"{_silence_limit(self._answer_seconds)}; {_LOCK_WRITERS}"))

    def check_schema(self, oldest: int) -> None:
        """Raise `StoreTooNew` if the schema needs newer code by now than that of this process."""
        check_known(self.place, oldest, self._migrations)

    def _check_right(self, found: psycopg.Cursor[Row]) -> None:
        """Raise if this process may not write any more, by what the last of the statements found."""
        while found.nextset():
            pass
        oldest, *leader = found.fetchone() or (0, None, None)
        self.check_schema(oldest)
        if self.fence is not None and tuple(leader) != self.fence:
            raise LeadLost("another engine has taken the lead; this one stores nothing more")

    def close(self) -> None:
        self._pool.close(CLOSING_SECONDS)

    def check(self) -> None:
        """Read every table, and ask for the right to change it. Raise if a part of it is not what it should be."""
        with self.reading(is_slow=True) as connection:
            for table, user in connection.execute(_NOT_WRITABLE).fetchall():
                raise StoreError(f"{self.place}: {user} may not change the table {table}; grant the user ALL on it")
            for (table,) in connection.execute(_TABLES).fetchall():
                connection.execute(f'SELECT count(*) FROM (SELECT t::text FROM "{table}" t) AS whole')

    # -- connections and their failures --------------------------------------------------------------

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Take a connection out of the pool for a transaction."""
        wait = POOL_WAIT_SECONDS if self._silent_since is None else NO_WAIT_SECONDS
        with self._pool.connection(wait) as connection:
            try:
                yield connection
            finally:
                connection.answer_seconds = self._answer_seconds
        self._silent_since = None

    def _configure(self, connection: Connection) -> None:
        connection.limit_times(lock_seconds=self._busy_seconds, answer_seconds=self._answer_seconds)
        connection.execute(_BY_INDEX)
        self._not_connected = ""

    def _note_failure(self, error: psycopg.Error) -> None:
        self._not_connected = _reason(error)

    def _store_error(self, error: psycopg.Error) -> StoreError:
        said = first_line(error)
        match error:
            case psycopg_pool.PoolClosed():
                return StoreError(f"{self.place} was closed")
            case psycopg_pool.PoolTimeout():
                return self._unreachable(self._not_connected or f"no connection within {POOL_WAIT_SECONDS:g} s")
            case psycopg.errors.LockNotAvailable() | psycopg.errors.DeadlockDetected():
                self._end_frozen_writer()
                return self._busy()
            case psycopg.errors.QueryCanceled():
                return StoreBusy(f"{self.place} is overloaded: it ended a statement that took too long ({said})")
            case psycopg.errors.DiskFull() | psycopg.errors.OutOfMemory():
                return StoreFull(f"no space left for {self.place} ({said}); nothing that was stored is lost")
            case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
                return StoreDamaged(f"{self.place} lacks tables that were there ({said}): restore a copy of it")
            case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
                return StoreDamaged(f"{self.place} is damaged ({said}): restore a copy of it")
            case psycopg.errors.InvalidSchemaName():
                advice = "create the schema that store.url names, and grant the user CREATE and USAGE on its schema"
                return StoreError(f"{self.place}: {said}; {advice}")
            case psycopg.errors.InsufficientPrivilege():
                needed = "CREATE and USAGE on its schema" if "for schema" in said else "ALL on its tables and sequences"
                return StoreError(f"{self.place}: {said}; grant the user {needed}")
            case psycopg.errors.ReadOnlySqlTransaction():
                return self._unreachable("it is read-only now, as a replica is")
            case psycopg.OperationalError() | psycopg.errors.IdleInTransactionSessionTimeout():
                return self._unreachable(_reason(error))
        return StoreError(f"{self.place}: {said}")

    def _end_frozen_writer(self) -> None:
        """End the connection of a process that is frozen while it holds the writer's lock. The next try can write."""
        with contextlib.suppress(psycopg.Error), self._connection() as connection:
            for pid, _ in connection.execute(_END_FROZEN, (self._answer_seconds,)).fetchall():
                log.warning(
                    "a process kept all others from writing to %s and sent nothing for %g s, as one that is frozen; "
                    "its connection (process %s of the server) was ended",
                    self.place,
                    self._answer_seconds,
                    pid,
                )

    def _unreachable(self, reason: str) -> StoreUnreachable:
        """Begin an outage, or continue it: what the pool has connected before is of no use any more."""
        if self._silent_since is None:
            self._silent_since = time.time()
        self._pool.drain()
        since = datetime.datetime.fromtimestamp(self._silent_since, datetime.UTC)
        return StoreUnreachable(
            f"{self.place} does not answer since {since:%H:%M:%S} UTC ({reason}); Paceline tries again by itself"
        )


def _first_connection(url: str) -> Connection:
    """Connect once by ourselves: the pool would hide a wrong password or name behind a time-out."""
    try:
        return Connection.connect(url)
    except psycopg.OperationalError as error:
        said = first_line(error)
        advice = "create it" if "does not exist" in said else "start the server"
        if "password" in said:
            advice = "correct the password in PACELINE_STORE_URL, PGPASSWORD or ~/.pgpass"
        raise StoreUnreachable(
            f"cannot connect to {server_place(url)}: {said}; {advice}, or correct store.url"
        ) from error


@contextlib.contextmanager
def _transaction(connection: Connection, begin: str, check: Check | None) -> Iterator[None]:
    try:
        begun = connection.execute(begin)
        if check is not None:
            check(begun)
        yield
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: Connection) -> None:
    with contextlib.suppress(psycopg.Error):  # a connection that is gone has rolled back already
        connection.execute("ROLLBACK")


def _written(found: psycopg.Cursor[Row]) -> Written:
    return Written(found.fetchall() if found.description else [], found.rowcount)


def _reason(error: psycopg.Error) -> str:
    """Return what the server or the network said, without the address, which the message names already."""
    line = first_line(error)
    for mark in ("FATAL: ", "failed: "):
        line = line.rpartition(mark)[2].strip() or line
    return line
