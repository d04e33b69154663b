"""The keys of clients in a SQLite file."""

import sqlite3
from typing import Final

from paceline.store.client_keys import ClientKey, HashedKey, decode_key, encode_key, name_taken, unknown_key
from paceline.store.damage_report import DamageReport
from paceline.store.sqlite_file import SqliteFile

_PRESENT: Final = "SELECT number, CAST(body AS BLOB) FROM client_keys WHERE name = ? AND revoked_at IS NULL"
_ALL: Final = "SELECT name, digest, revoked_at, CAST(body AS BLOB) FROM client_keys ORDER BY number"


class SqliteClientKeys:
    """Keys that clients of the gateway present."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._damage = DamageReport(file.path)

    def create(self, key: ClientKey, digest: str) -> None:
        with self._file.writing() as connection:
            if _present(connection, key.name) is not None:
                raise name_taken(key.name)
            connection.execute(
                "INSERT INTO client_keys (name, digest, body) VALUES (?, ?, ?)", (key.name, digest, encode_key(key))
            )

    def revoke(self, name: str, *, now: float) -> ClientKey:
        with self._file.writing() as connection:
            found = _present(connection, name)
            if found is None:
                raise unknown_key(name)
            connection.execute("UPDATE client_keys SET revoked_at = ? WHERE number = ?", (now, found[0]))
            key = decode_key(found[1], now)
        return ClientKey(name=name, revoked_at=now) if key is None else key

    def all(self) -> list[HashedKey]:
        with self._file.reading() as connection:
            rows = connection.execute(_ALL).fetchall()
        return [found for row in rows if (found := self._decoded(*row)) is not None]

    def _decoded(self, name: str, digest: str, revoked_at: float | None, body: bytes) -> HashedKey | None:
        key = decode_key(body, revoked_at)
        if key is None:
            self._damage.report("key", name)
            return None
        return HashedKey(key, digest)


def _present(connection: sqlite3.Connection, name: str) -> tuple[int, bytes] | None:
    found: tuple[int, bytes] | None = connection.execute(_PRESENT, (name,)).fetchone()
    return found
