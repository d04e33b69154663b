"""The connection to a SQLite file: opening it, transactions, and errors.

Here: every error of `sqlite3` becomes a `StoreError`; no other module sees one. Never here: a verb of the store.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from paceline.errors import InvalidInput, StoreBusy, StoreDamaged, StoreError, StoreFull, StoreGone
from paceline.store.migrations import Migration, migrate, missing

USUAL: Final = "FULL"
"""Every commit waits for the disk."""
CACHE_KIB: Final = 16_384
"""Eight times the default of SQLite, so that the indexes of a large campaign stay in memory."""
OPENING_RETRY_SECONDS: Final = 0.005
"""Short, because another process holds this lock only while it creates the file."""
LARGEST_IDLE_JOURNAL_BYTES: Final = 64 << 20
"""Gives disk space back after a very long plan was imported."""

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FULL_EXTENDED: Final = {sqlite3.SQLITE_IOERR_SHMSIZE}  # no room for the index of the journal

MigrationGuard = Callable[[], AbstractContextManager[object]]
"""Held while an existing file is migrated. It raises if a program of the older version still uses the file."""


class SqliteFile:
    """One connection with one transaction at a time."""

    def __init__(
        self,
        path: str,
        *,
        busy_seconds: float,
        migrations: Sequence[Migration],
        while_migrating: MigrationGuard = nullcontext,
    ) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._is_joint = False
        self._absolute_path = os.path.abspath(path)
        self._identity: tuple[int, int] | None = None
        _create_private(path)
        with self.translated_errors():
            # One thread at a time, but not always the same: the engine may use the store outside its loop.
            self._connection = sqlite3.connect(
                path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
            )
        try:
            self._open(migrations, while_migrating)
            self._identity = _identity_of(self._absolute_path)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, migrations: Sequence[Migration], while_migrating: MigrationGuard) -> None:
        # One transaction, before anything is written: another process may be creating the same file.
        with self.reading() as connection:
            absent = len(missing(connection, self.path, migrations))
        with self.translated_errors():
            self._use_journal()
            self._connection.execute(f"PRAGMA synchronous = {USUAL}")
            self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._connection.execute(f"PRAGMA journal_size_limit = {LARGEST_IDLE_JOURNAL_BYTES}")
        if absent:
            is_new = absent == len(migrations)
            with nullcontext() if is_new else while_migrating(), self.writing() as connection:
                migrate(connection, self.path, migrations)

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

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a transaction that commits at the end of the block, and rolls back if the block raises."""
        return self._transaction("BEGIN IMMEDIATE")

    def writing_without_wait(self) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a transaction whose commit does not wait for the disk.

        It survives `kill -9`; a loss of power may undo it. The next commit that waits takes it along.
        """
        return self._transaction("BEGIN IMMEDIATE", synchronous="NORMAL")

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a transaction that reads one consistent state. It does not block writers."""
        return self._transaction("BEGIN")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Begin a transaction that all transactions in the block become part of, also those of such blocks in it."""
        was_joint = self._is_joint
        with self.writing():
            self._is_joint = True
            try:
                yield
            finally:
                self._is_joint = was_joint

    def check(self) -> None:
        """Read the whole file. Raise `StoreDamaged` if a part of it is not what it should be."""
        with self.reading() as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreDamaged(f"{self.path} is damaged ({found}): {recovery_advice(self.path)}")

    def close(self) -> None:
        """Close the connection. Closing twice is harmless."""
        with self.translated_errors():
            self._connection.close()

    @contextmanager
    def _transaction(self, begin: str, *, synchronous: str = USUAL) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with self.translated_errors():
            if self._is_joint:
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
                f"{self.path} was deleted or replaced while it was in use: stop every program that uses it, "
                "put the file back or restore a copy of it, and start again"
            )

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise errors of the driver as those of a store."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._store_error(error) from error
        except UnicodeEncodeError as error:
            raise InvalidInput(f"text that is not Unicode: {error.object!r}") from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        extended: int = getattr(error, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code in _BUSY:
            return StoreBusy(
                f"another process is writing to {self.path}, and has been for {self._busy_seconds:g} s or more"
            )
        if code == sqlite3.SQLITE_FULL or extended in _FULL_EXTENDED:
            return StoreFull(f"no disk space left for {self.path}: free some; nothing that was stored is lost")
        if code in _DAMAGED:
            return StoreDamaged(f"{self.path} is damaged or not a database ({error}): {recovery_advice(self.path)}")
        return StoreError(f"{self.path}: {error}")


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
