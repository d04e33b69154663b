"""The engine's own records in a PostgreSQL database: events, slots, the cost of calls, saved state, leadership."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from paceline.errors import LeadLost
from paceline.events import Event
from paceline.store import rules
from paceline.store.damage_report import DamageReport
from paceline.store.interface import StoredEvent, StoredSlot
from paceline.store.postgres_connection import Connection
from paceline.store.postgres_database import Fence, PostgresDatabase
from paceline.store.postgres_notifications import announce
from paceline.store.postgres_values import BigintArray, BooleanArray, FloatArray, TextArray
from paceline.store.spend import SPEND_COLUMNS, SpendRow, spend_row, spend_values, summed

_APPEND: Final = """WITH counter AS (UPDATE last_event SET id = id + %s RETURNING id), appended AS (
        INSERT INTO events (id, unit, is_slot, body)
        SELECT counter.id - %s + e.place, e.unit, e.is_slot, e.body
        FROM counter, unnest(%s, %s, %s) WITH ORDINALITY AS e (unit, is_slot, body, place)
    ) SELECT id FROM counter"""
_SAVE_SLOTS: Final = """WITH kept AS (
        INSERT INTO slots (id, body) SELECT * FROM unnest(%s, %s)
        ON CONFLICT (id) DO UPDATE SET body = excluded.body
    )
    DELETE FROM slots WHERE id = ANY(%s)"""
_SPEND_ARRAYS: Final = (*[TextArray] * 4, *[BigintArray] * 5, *[FloatArray] * 2, *[BigintArray] * 2)
_ADD_SPEND: Final = f"""INSERT INTO gateway_spend AS s ({", ".join(SPEND_COLUMNS)})
    SELECT * FROM unnest({", ".join(["%s"] * len(SPEND_COLUMNS))})
    ON CONFLICT (day, key, account, model)
    DO UPDATE SET {", ".join(f"{name} = s.{name} + excluded.{name}" for name in SPEND_COLUMNS[4:])}"""
_TRIM: Final = """DELETE FROM events WHERE is_slot = %s
    AND id <= (SELECT id FROM events WHERE is_slot = %s ORDER BY id DESC LIMIT 1 OFFSET %s)"""

_SERVER_TIME: Final = "extract(epoch FROM clock_timestamp())::float8"
_LEASE_LEFT: Final = f"SELECT until - {_SERVER_TIME}, owner, oldest FROM leader, paceline"
_TAKE_LEAD: Final = f"""UPDATE leader SET owner = %(owner)s, until = {_SERVER_TIME} + %(lease)s,
        epoch = epoch + CASE WHEN owner = %(owner)s THEN 0 ELSE 1 END
    WHERE owner IS NULL OR owner = %(owner)s OR until <= {_SERVER_TIME} RETURNING epoch"""


def insert_events(connection: Connection, events: Sequence[Event]) -> int:
    """Append events inside the caller's transaction. Return the id of the last one."""
    row = connection.execute(_APPEND, _event_columns(events)).fetchone()
    if _has_command(events):
        announce(connection, "commands")
    return 0 if row is None else int(row[0])


def _event_columns(events: Sequence[Event]) -> tuple[object, ...]:
    return (
        len(events),
        len(events),
        TextArray(rules.storable_text(event.unit) for event in events),
        BooleanArray(rules.is_slot_event(event) for event in events),
        TextArray(rules.encode_event(event).decode() for event in events),
    )


def _has_command(events: Sequence[Event]) -> bool:
    return any(event.name.startswith(rules.COMMAND_EVENTS) for event in events)


class PostgresEvents:
    """The stream of events."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._damage = DamageReport(database.place)

    def append(self, events: Sequence[Event]) -> int:
        if not events:
            with self._database.query() as connection:
                row = connection.execute("SELECT id FROM last_event").fetchone()
                return 0 if row is None else int(row[0])
        if not _has_command(events):
            return int(self._database.write_at_once(_APPEND, _event_columns(events))[0][0])
        with self._database.writing() as connection:
            return insert_events(connection, events)

    def read(self, after: int, limit: int, unit: str | None) -> list[StoredEvent]:
        rules.check_page_size(limit)
        of_unit, parameters = ("", ()) if unit is None else ("AND unit = %s", (unit,))
        with self._database.query() as connection:
            rows = connection.execute(
                f"SELECT id, body FROM events WHERE id > %s {of_unit} ORDER BY id LIMIT %s", (after, *parameters, limit)
            ).fetchall()
        found = [(number, rules.decode_event(body)) for number, body in rows]
        for number, event in found:
            if event is None:
                self._damage.report("event", number)
        return [StoredEvent(number, event) for number, event in found if event is not None]

    def trim(self, *, keep: int, keep_slots: int) -> None:
        with self._database.writing() as connection:
            connection.execute(_TRIM, (False, False, keep))
            connection.execute(_TRIM, (True, True, keep_slots))

    def prune(self, *, before: float, through: int, limit: int) -> int:
        rules.check_page_size(limit)
        with self._database.writing() as connection:
            rows = connection.execute(
                "SELECT id, body FROM events WHERE id <= %s ORDER BY id LIMIT %s", (through, limit)
            ).fetchall()
            old = rules.old_events(rows, before)
            if old:
                connection.execute("DELETE FROM events WHERE id <= %s", (old[-1],))
        return len(old)


class PostgresSlots:
    """Slots of programs that the engine did not start."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._damage = DamageReport(database.place)

    def save(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        encoded = {slot.id: rules.encode_slot(slot).decode() for slot in kept}
        for slot_id in dropped:
            encoded.pop(slot_id, None)  # one statement changes a row once
        self._database.write_at_once(_SAVE_SLOTS, (TextArray(encoded), TextArray(encoded.values()), TextArray(dropped)))

    def all(self) -> list[StoredSlot]:
        with self._database.query() as connection:
            rows = connection.execute("SELECT id, body FROM slots ORDER BY number").fetchall()
        return [slot for slot_id, body in rows if (slot := self._decoded(slot_id, body)) is not None]

    def find(self, slot_id: str) -> StoredSlot | None:
        with self._database.query() as connection:
            row = connection.execute("SELECT body FROM slots WHERE id = %s", (slot_id,)).fetchone()
        return None if row is None else self._decoded(slot_id, row[0])

    def _decoded(self, slot_id: str, body: str) -> StoredSlot | None:
        slot = rules.decode_slot(body.encode())
        if slot is None:
            self._damage.report("slot", slot_id)
        return slot


class PostgresSpend:
    """What calls of the gateway have used."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def add(self, rows: Sequence[SpendRow]) -> None:
        values = [spend_values(row) for row in summed(map(rules.storable_spend, rows))]
        if values:
            columns = zip(_SPEND_ARRAYS, zip(*values, strict=True), strict=True)
            self._database.write_at_once(_ADD_SPEND, tuple(array(column) for array, column in columns))

    def read(self, since: str, key: str | None) -> list[SpendRow]:
        of_key, parameters = ("", ()) if key is None else ("AND key = %s", (key,))
        with self._database.query() as connection:
            rows = connection.execute(
                f"""SELECT {", ".join(SPEND_COLUMNS)} FROM gateway_spend WHERE day >= %s {of_key}
                    ORDER BY day, key, account, model""",
                (since, *parameters),
            ).fetchall()
        return [spend_row(row) for row in rows]


class PostgresEngineState:
    """Values saved under a key, and which engine leads."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def save(self, key: str, value: bytes) -> None:
        self._database.write_at_once(
            """INSERT INTO states (key, value) VALUES (%s, %s)
                ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
            (key, value),
        )

    def load(self, key: str) -> bytes | None:
        with self._database.query() as connection:
            row = connection.execute("SELECT value FROM states WHERE key = %s", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        """Take or keep the lead. The server measures the lease, because the clocks of engines may differ."""
        with self._database.writing() as connection:
            row = connection.execute(_TAKE_LEAD, {"owner": owner, "lease": until - now}).fetchone()
        if row is None:
            return False
        self._database.fence = Fence(owner, int(row[0]))
        return True

    def leader(self) -> str | None:
        with self._database.query() as connection:
            row = connection.execute("SELECT owner FROM leader").fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def lease_left(self, *, now: float) -> float | None:
        with self._database.query() as connection:
            row = connection.execute(_LEASE_LEFT).fetchone()
        if row is None:
            return None
        left, owner, oldest = row
        self._database.check_schema(oldest)  # here, because a process that stands by does not write
        return None if owner is None else float(left)

    @contextmanager
    def while_leading(self, owner: str) -> Iterator[None]:
        with self._database.query() as connection:
            row = connection.execute("SELECT epoch FROM leader WHERE owner = %s", (owner,)).fetchone()
        if row is None:
            raise LeadLost("another engine leads now")
        before, self._database.fence = self._database.fence, Fence(owner, int(row[0]))
        try:
            yield
        finally:
            self._database.fence = before

    def resign(self, owner: str) -> None:
        fence = self._database.fence
        if fence is not None and fence.owner == owner:
            self._database.fence = None
        with self._database.writing() as connection:
            resigned = connection.execute("UPDATE leader SET owner = NULL, until = 0 WHERE owner = %s", (owner,))
            if resigned.rowcount:
                announce(connection, "leader")
