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
import errno
import os
import secrets
import sqlite3
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar, Final, Self

from paceline.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreGone
from paceline.store.interface import Added, UnitSpec
from paceline.store.plan_import import PlanImport, spec_chunks
from paceline.store.rules import Span, campaign_span
from paceline.store.schema import MIGRATIONS, SQLITE, Migration, check_known, unreleased
from paceline.store.sql_store import BUSY_SECONDS, Connection, Database, SqlStore, Written

APPLICATION_ID: Final = 0x50434C4E  # "PCLN"
"""Marks a file as Paceline's. `user_version` is the number of migrations that were applied."""
UNRELEASED_ID: Final = 0x50414345  # "PACE"
"""That of files from before the first release."""
USUAL: Final = "FULL"
"""Every commit waits for the disk."""
CACHE_KIB: Final = 16_384
"""Eight times the default of SQLite, so that the indexes of a large campaign stay in memory."""
OPENING_RETRY_SECONDS: Final = 0.005
"""Short, because another process holds this lock only while it creates the file."""
LARGEST_IDLE_JOURNAL_BYTES: Final = 64 << 20
"""Gives disk space back after a very long plan was imported."""
MEMORY: Final = ":memory:"
"""The path of a database without a file. It ends with its connection."""

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FULL_EXTENDED: Final = {sqlite3.SQLITE_IOERR_SHMSIZE}  # no room for the index of the journal

MigrationGuard = Callable[[], AbstractContextManager[object]]
"""Held while an existing file is migrated. It raises if a program of the older version still uses the file."""


class SqliteFile(Database):
    """One connection with one transaction at a time."""

    def __init__(
        self,
        path: str,
        *,
        busy_seconds: float,
        migrations: Sequence[Migration],
        while_migrating: MigrationGuard = nullcontext,
    ) -> None:
        super().__init__(path, busy_seconds, sqlite3.Error)
        self._absolute_path = path if path == MEMORY else os.path.abspath(path)
        self._identity: tuple[int, int] | None = None
        if path != MEMORY:
            _create_private(path)
        with self.translated_errors():
            # One thread at a time, but not always the same: the engine may use the store outside its loop.
            self._connection = sqlite3.connect(
                path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
            )
        # Nothing is lost if a store in memory is dropped without `close`, so nobody needs to call it.
        weakref.finalize(self, self._connection.close).atexit = False
        try:
            self._open(migrations, while_migrating)
            self._identity = None if path == MEMORY else _identity_of(self._absolute_path)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, migrations: Sequence[Migration], while_migrating: MigrationGuard) -> None:
        # One transaction, before anything is written: another process may be creating the same file.
        with self.reading() as connection:
            version = _version(connection, self.place, migrations)
        with self.translated_errors():
            self._use_journal()
            self._connection.execute(f"PRAGMA synchronous = {USUAL}")
            self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._connection.execute(f"PRAGMA journal_size_limit = {LARGEST_IDLE_JOURNAL_BYTES}")
        if version < len(migrations):
            with while_migrating() if version else nullcontext(), self.writing() as connection:
                for each in migrations[_version(connection, self.place, migrations) :]:
                    for statement in each.spelled(SQLITE):
                        connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {len(migrations)}")

    def _use_journal(self) -> None:
        """Switch to WAL. SQLite does not wait for a lock here, so retry while others open the same new file."""
        give_up_at = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > give_up_at:
                    raise
            time.sleep(OPENING_RETRY_SECONDS)

    def writing(self, *, is_slow: bool = False, is_durable: bool = True) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a transaction that writes.

        The commit of one that is not durable does not wait for the disk: it survives `kill -9`, but a loss of power
        may undo it. The next commit that waits takes it along.
        """
        return self._transaction("BEGIN IMMEDIATE", synchronous=USUAL if is_durable else "NORMAL")

    def write(self, statement: str, values: Sequence[object]) -> Written:
        with self.writing() as connection:
            found = connection.execute(statement, values)
            return Written(found.fetchall(), found.rowcount)

    def reading(self, *, is_slow: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("BEGIN")

    query = reading

    def check(self) -> None:
        with self.reading() as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreDamaged(f"{self.place} is damaged ({found}): {recovery_advice(self.place)}")

    def close(self) -> None:
        with self.translated_errors():
            self._connection.close()

    @contextmanager
    def _transaction(self, begin: str, *, synchronous: str = USUAL) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with self.translated_errors():
            if self._joint is not None:
                yield connection
                return
            self._check_still_there()
            if synchronous != USUAL:
                connection.execute(f"PRAGMA synchronous = {synchronous}")
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite has rolled back already if the disk is full
                    connection.execute("ROLLBACK")
                raise
            finally:
                if synchronous != USUAL:
                    connection.execute(f"PRAGMA synchronous = {USUAL}")

    def _check_still_there(self) -> None:
        """Raise `StoreGone` if the path no longer leads to the open file: what is written there would be lost."""
        if self._identity is not None and _identity_of(self._absolute_path) != self._identity:
            raise StoreGone(
                f"{self.place} was deleted or replaced while it was in use: stop every program that uses it, "
                "put the file back or restore a copy of it, and start again"
            )

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        extended: int = getattr(error, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code in _BUSY:
            return self._busy()
        if code == sqlite3.SQLITE_FULL or extended in _FULL_EXTENDED:
            return StoreFull(f"no disk space left for {self.place}: free some; nothing that was stored is lost")
        if code in _DAMAGED:
            return StoreDamaged(f"{self.place} is damaged or not a database ({error}): {recovery_advice(self.place)}")
        return StoreError(f"{self.place}: {error}")


def _version(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> int:
    """Return how many migrations were applied. Raise if the file must not be touched."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application == UNRELEASED_ID:
        raise unreleased(path)
    if application != APPLICATION_ID and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreDamaged(f"{path} is a database of another program; choose another file")
    check_known(path, version, migrations)
    return int(version)


def recovery_advice(path: str) -> str:
    """Return what a person can do about a damaged file."""
    return (
        "stop every program that uses it, then restore a copy of it, or save what can be read with "
        f"`sqlite3 {path} .recover | sqlite3 recovered.db`, or move it and the spool aside to start with an empty home"
    )


def _identity_of(path: str) -> tuple[int, int] | None:
    """Return the identity of the file at the path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create_private(path: str) -> None:
    """Create the file readable by its owner only: prompts are private. SQLite gives its journal the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return  # not opened here: closing it would drop the locks of other connections in this process
    except OSError as error:
        kind = StoreFull if error.errno == errno.ENOSPC else StoreError
        raise kind(f"cannot create {path}: {error.strerror}") from error


PAUSE_SECONDS: Final = 0.005
"""How long a blocking import sleeps between two steps: other processes try to lock the file every few milliseconds."""
SWEPT_AT_ONCE: Final = 1_000
"""Leftover units deleted in one transaction: short enough for other writers."""
FORGOTTEN_SECONDS: Final = 3600.0
"""An import older than this was killed: no import takes an hour."""


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


class SqliteStore(SqlStore):
    """The store in the file at `path`, which is created if it does not exist."""

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
        super().__init__(self._file, _HiddenImport)
        self.pause_seconds = 0.0 if self._file.place == MEMORY else PAUSE_SECONDS

    @classmethod
    def in_memory(cls) -> Self:
        """Return a store without a file: for tests and simulations. Nothing survives it."""
        return cls(MEMORY)

    def named(self, names: list[str]) -> tuple[str, tuple[object, ...]]:
        return f"name IN ({', '.join('?' * len(names))})", tuple(names)

    def visible_spans(self, connection: Connection, low: int, high: int) -> Iterator[Span]:
        for number, first_hidden in connection.execute("SELECT number, first_key FROM arrivals ORDER BY 1").fetchall():
            if low < first_hidden:
                yield low, min(first_hidden - 1, high)
            low = max(low, campaign_span(number)[1] + 1)
        if low <= high:
            yield low, high
