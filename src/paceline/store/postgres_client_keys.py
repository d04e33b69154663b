"""The keys of clients in a PostgreSQL database."""

from typing import Final

from paceline.store.client_keys import ClientKey, HashedKey, decode_key, encode_key, name_taken, unknown_key
from paceline.store.damage_report import DamageReport
from paceline.store.postgres_connection import Connection
from paceline.store.postgres_database import PostgresDatabase

_PRESENT: Final = "SELECT number, body FROM client_keys WHERE name = %s AND revoked_at IS NULL"
_ALL: Final = "SELECT name, digest, revoked_at, body FROM client_keys ORDER BY number"
_CREATE: Final = """INSERT INTO client_keys (number, name, digest, body)
    SELECT coalesce(max(number), 0) + 1, %s, %s, %s FROM client_keys"""


class PostgresClientKeys:
    """Keys that clients of the gateway present."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._damage = DamageReport(database.place)

    def create(self, key: ClientKey, digest: str) -> None:
        with self._database.writing() as connection:
            if _present(connection, key.name) is not None:
                raise name_taken(key.name)
            connection.execute(_CREATE, (key.name, digest, encode_key(key).decode()))

    def revoke(self, name: str, *, now: float) -> ClientKey:
        with self._database.writing() as connection:
            found = _present(connection, name)
            if found is None:
                raise unknown_key(name)
            connection.execute("UPDATE client_keys SET revoked_at = %s WHERE number = %s", (now, found[0]))
            key = decode_key(found[1].encode(), now)
        return ClientKey(name=name, revoked_at=now) if key is None else key

    def all(self) -> list[HashedKey]:
        with self._database.query() as connection:
            rows = connection.execute(_ALL).fetchall()
        return [found for row in rows if (found := self._decoded(*row)) is not None]

    def _decoded(self, name: str, digest: str, revoked_at: float | None, body: str) -> HashedKey | None:
        key = decode_key(body.encode(), revoked_at)
        if key is None:
            self._damage.report("key", name)
            return None
        return HashedKey(key, digest)


def _present(connection: Connection, name: str) -> tuple[int, str] | None:
    row = connection.execute(_PRESENT, (name,)).fetchone()
    return None if row is None else (int(row[0]), str(row[1]))
