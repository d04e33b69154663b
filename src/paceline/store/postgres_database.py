"""The connections to a PostgreSQL database: opening them, transactions, text, and errors.

Here: every error of `psycopg` becomes a `StoreError`; no other module sees one. Never here: a verb of the store.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import psycopg
import psycopg_pool
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from paceline.errors import (
    InvalidInput,
    InvalidSettings,
    LeadLost,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from paceline.store.postgres_schema import Migration, migrate

logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # it prints every attempt; the caller reports the outage

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]

CONNECT_SECONDS: Final = 5
"""How long one attempt to connect may take. It runs in a thread, so nobody waits for it."""
POOL_WAIT_SECONDS: Final = 0.25
"""How long a verb waits for a connection: long enough to open one on a network, too short to freeze an engine."""
RECONNECT_SECONDS: Final = 2.0
"""After this the pool gives up, and the next verb makes it try again. By itself it would wait longer and longer."""
OPENING_SECONDS: Final = 10.0
"""How long the first connection may take: a command at a terminal rather waits than fails."""
MOST_CONNECTIONS: Final = 4
"""One for verbs, one for each import of a plan that is under way, and one to spare."""
WRITER_LOCK: Final = 0x50414345_0002
"""The advisory lock of writing transactions. One writer at a time: no deadlock, and events in order."""

_BEGIN_APART: Final = "BEGIN; SET LOCAL lock_timeout = {milliseconds}"
_TAKE_LOCK: Final = "SELECT pg_advisory_xact_lock({lock})"
_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_BEGIN_READING: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ESCAPE: Final = "\ue000"
"""Stands before a letter for a character that PostgreSQL cannot store, or that means something here."""


class Fence(NamedTuple):
    """The lead that a process has taken. It counts as long as nobody has led after it."""

    owner: str
    epoch: int


class PostgresDatabase:
    """A few connections, with one transaction of the store at a time."""

    def __init__(self, url: str, *, busy_seconds: float, migrations: Sequence[Migration]) -> None:
        self.fence: Fence | None = None
        """Set while this process leads."""
        self.place = server_place(url)
        self.address = _with_time_limits(url)
        self._busy_seconds = busy_seconds
        self._begin_apart = _BEGIN_APART.format(milliseconds=round(busy_seconds * 1000))
        self._begin_writing = f"{self._begin_apart}; {_TAKE_LOCK.format(lock=WRITER_LOCK)}"
        self._joint: Connection | None = None
        self._pool: psycopg_pool.ConnectionPool[Connection] = psycopg_pool.ConnectionPool(
            self.address,
            min_size=1,
            max_size=MOST_CONNECTIONS,
            timeout=POOL_WAIT_SECONDS,
            kwargs={"autocommit": True},
            configure=_configure,
            reconnect_timeout=RECONNECT_SECONDS,
            open=False,
        )
        with self._translated_errors():
            with _first_connection(url) as connection:
                migrate(connection, self.place, migrations)
            self._pool.open(wait=True, timeout=OPENING_SECONDS)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Begin a transaction that commits at the end of the block, and rolls back if the block raises.

        Raise `LeadLost` if this process led, and another one has taken the lead since. The lead changes only under the
        writer's lock, so it cannot be lost inside the transaction.
        """
        with self._translated_errors():
            if self._joint is not None:
                yield self._joint
                return
            with self._pool.connection() as connection, _transaction(connection, self._begin_writing, self.fence):
                yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a transaction that reads one consistent state. It does not block writers."""
        with self._translated_errors():
            if self._joint is not None:
                yield self._joint
                return
            with self._pool.connection() as connection, _transaction(connection, _BEGIN_READING):
                yield connection

    @contextlib.contextmanager
    def query(self) -> Iterator[Connection]:
        """Give a connection for one statement that reads. It needs no transaction, so it is one trip to the server."""
        with self._translated_errors():
            if self._joint is not None:
                yield self._joint
                return
            with self._pool.connection() as connection:
                yield connection

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Begin a transaction that all transactions in the block become part of, also those of such blocks in it."""
        was_joint, fence = self._joint, self.fence
        try:
            with self.writing() as connection:
                self._joint = connection
                try:
                    yield
                finally:
                    self._joint = was_joint
        except BaseException:
            self.fence = fence  # the lead that the block took or gave up is as it was
            raise

    @contextlib.contextmanager
    def apart(self) -> Iterator[Connection]:
        """Begin a transaction on a connection of its own, without the writer's lock. Other verbs continue beside it."""
        with self._translated_errors():
            if self._joint is not None:
                yield self._joint
                return
            with self._pool.connection() as connection, _transaction(connection, self._begin_apart):
                yield connection

    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""
        self._pool.close()

    def check(self) -> None:
        """Read every table. Raise `StoreDamaged` if a part of it is not what it should be."""
        with self.reading() as connection:
            for (table,) in connection.execute(_TABLES).fetchall():
                connection.execute(f'SELECT count(*) FROM (SELECT t::text FROM "{table}" t) AS whole')

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._store_error(error) from error
        except psycopg_pool.PoolTimeout as error:
            raise StoreUnreachable(f"{self.place} does not answer; Paceline tries again by itself") from error
        except psycopg_pool.PoolClosed as error:
            raise StoreError(f"{self.place} was closed") from error
        except UnicodeEncodeError as error:
            raise InvalidInput(f"text that is not Unicode: {error.object!r}") from error

    def _store_error(self, error: psycopg.Error) -> StoreError:
        said = _first_line(error)
        match error:
            case psycopg.errors.LockNotAvailable() | psycopg.errors.DeadlockDetected():
                return StoreBusy(
                    f"another process is writing to {self.place}, and has been for {self._busy_seconds:g} s or more"
                )
            case psycopg.errors.DiskFull() | psycopg.errors.OutOfMemory():
                return StoreFull(f"no space left for {self.place} ({said}); nothing that was stored is lost")
            case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
                return StoreDamaged(f"{self.place} is damaged ({said}): restore a copy of it")
            case psycopg.errors.InsufficientPrivilege() | psycopg.errors.InvalidSchemaName():
                return StoreError(f"{self.place}: {said}; grant the user CREATE and USAGE on its schema")
            case psycopg.OperationalError():
                return StoreUnreachable(f"{self.place} does not answer ({said}); Paceline tries again by itself")
        return StoreError(f"{self.place}: {said}")


def server_place(url: str) -> str:
    """Return the address without its password, for messages."""
    parts = _parts(url)
    host = f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"
    return f"postgresql://{host}/{parts.get('dbname') or parts.get('user') or ''}"


def _parts(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise InvalidSettings(
            f"store.url is not an address of PostgreSQL ({_first_line(error)}); "
            "use postgresql://USER:PASSWORD@HOST:5432/DATABASE"
        ) from error


def _with_time_limits(url: str) -> str:
    """Return the address with limits for servers that vanish without a word. What the address sets itself wins."""
    limits: dict[str, str | int] = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "application_name": "paceline",
    }
    return make_conninfo(url, **{name: value for name, value in limits.items() if name not in _parts(url)})


def _first_connection(url: str) -> Connection:
    """Connect once by ourselves: the pool would hide a wrong password or name behind a time-out."""
    try:
        return psycopg.connect(_with_time_limits(url), autocommit=True)
    except psycopg.OperationalError as error:
        raise StoreUnreachable(
            f"cannot connect to {server_place(url)}: {_first_line(error)}; start the server, or correct store.url"
        ) from error


@contextlib.contextmanager
def _transaction(connection: Connection, begin: str, fence: Fence | None = None) -> Iterator[None]:
    try:
        if fence is None:
            connection.execute(begin)
        else:
            _begin_as_leader(connection, begin, fence)
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(psycopg.Error):  # a connection that is gone has rolled back already
            connection.execute("ROLLBACK")
        raise


def _begin_as_leader(connection: Connection, begin: str, fence: Fence) -> None:
    """Begin a transaction in one trip to the server, and raise `LeadLost` if the lead is no longer ours."""
    results = connection.execute(f"{begin}; SELECT owner, epoch FROM leader")
    while results.nextset():
        pass
    found = results.fetchone()
    if found != fence:
        raise LeadLost("another engine has taken the lead; this one stores nothing more")


def _configure(connection: Connection) -> None:
    connection.adapters.register_dumper(str, _TextDumper)
    connection.adapters.register_loader("text", _TextLoader)


class _TextDumper(Dumper):
    """Text of any Unicode characters. PostgreSQL refuses NUL, so it is stored as two others."""

    oid = psycopg.adapters.types["text"].oid

    def dump(self, obj: str) -> bytes:
        if "\x00" in obj or _ESCAPE in obj:
            obj = obj.replace(_ESCAPE, f"{_ESCAPE}e").replace("\x00", f"{_ESCAPE}0")
        return obj.encode()


class _TextLoader(Loader):
    """The text as it was before it was stored."""

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return text.replace(f"{_ESCAPE}0", "\x00").replace(f"{_ESCAPE}e", _ESCAPE) if _ESCAPE in text else text


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
