"""The store in one SQLite file. Statements and nothing else: no rule about units is decided here.

One process writes at a time, any number read. Every write is durable when its verb returns
(WAL with `synchronous=FULL`): it survives `kill -9` and the loss of power. Only that slots were dropped is not waited
for: it survives `kill -9`.
"""

import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.errors import IllegalStep, UnknownName
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import (
    Added,
    Campaign,
    OutcomeRecord,
    Page,
    StoredEvent,
    StoredSlot,
    Unit,
    UnitCounts,
    UnitSpec,
)
from paceline.store.migrations import MIGRATIONS, Migration
from paceline.store.rows import UNIT_COLUMNS, Row, campaign_from, is_stored_already, outcome_row, unit_from
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_import import Arrival, Span, hidden_spans, insert_events

BUSY_SECONDS: Final = 2.0
OTHERS_TURN_SECONDS: Final = 0.005
"""Between the steps of a long plan. A process that waits for the file looks for it every few milliseconds."""

_CLAIM_BOUND: Final = f"""SELECT {UNIT_COLUMNS}, p.prompt
    FROM units u INDEXED BY claimable_on_account LEFT JOIN prompts p ON p.key = u.key
    WHERE u.state = 'todo' AND u.resume_at IS NULL AND u.session_id IS NOT NULL
        AND u.account = ? AND u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?"""
_CLAIM_FRESH: Final = f"""SELECT {UNIT_COLUMNS}, p.prompt
    FROM units u INDEXED BY claimable_afresh LEFT JOIN prompts p ON p.key = u.key
    WHERE u.state = 'todo' AND u.resume_at IS NULL AND u.session_id IS NULL
        AND u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?"""
_CLAIM: Final = """UPDATE units SET state = 'running', tries = tries + 1, fence = fence + 1, account = ?, attempt = ?,
    lease_until = ?, started_at = ?, reason = NULL, ended_at = NULL, exit_code = NULL WHERE key = ?"""
_RECORD_OUTCOME: Final = """UPDATE units SET state = ?, attempts = ?, tries = ?, parks = ?, windows_spent = ?,
    refusals = ?, losses = ?, resume_at = ?, reason = ?, account = coalesce(?, account), session_id = ?, ended_at = ?,
    exit_code = ?, lease_until = NULL WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_RECORDED_OUTCOME: Final = """SELECT fence, state, attempts, tries, parks, windows_spent, refusals, losses
    FROM units WHERE campaign = ? AND name = ?"""
_RENEW: Final = """UPDATE units SET lease_until = ?
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_DUE: Final = """SELECT key FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND resume_at <= ? ORDER BY resume_at, key LIMIT ?"""
_PARKED_ON: Final = """SELECT key FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND account = ? ORDER BY resume_at, key LIMIT ?"""
_IS_THERE: Final = "NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.number = u.campaign AND u.key >= a.first_key)"
"""Of a unit `u` that was found by its name."""
_HOLD: Final = f"""UPDATE units AS u SET state = 'held', reason = ?, resume_at = NULL, ended_at = ?
    WHERE campaign = ? AND name = ? AND state = 'todo' AND {_IS_THERE}"""
_RETRY: Final = """UPDATE units SET state = 'todo', attempts = 0, tries = 0, parks = 0, windows_spent = 0, refusals = 0,
    losses = 0, reason = NULL, ended_at = NULL, exit_code = NULL
    WHERE key BETWEEN ? AND ? AND state IN ('held', 'quarantined')"""
_CANCEL: Final = """UPDATE units SET state = 'cancelled', resume_at = NULL, lease_until = NULL, ended_at = ?
    WHERE key BETWEEN ? AND ? AND state NOT IN ('done', 'cancelled')"""

_SAVE_SLOT: Final = "INSERT INTO slots (id, body) VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"


class SqliteStore:
    """`Store` in the file at `path`, which is made if there is none."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_seconds: float = BUSY_SECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self._file = SqliteFile(os.fspath(path), busy_seconds=busy_seconds, migrations=migrations)

    def together(self) -> AbstractContextManager[None]:
        return self._file.together()

    # -- campaigns ----------------------------------------------------------------------------------

    def add_campaign(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Added:
        steps = self.add_campaign_in_steps(campaign, units, update=update, now=now, events=events)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                added: Added = end.value
                return added
            time.sleep(OTHERS_TURN_SECONDS)

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        rules.check_campaign(campaign)
        arrival = Arrival(self._file, campaign, update=update, now=now, events=events)
        return arrival.steps(rules.checked_specs(units))

    def campaigns(self) -> list[Campaign]:
        with self._file.reading() as connection:
            return [campaign_from(body) for (body,) in connection.execute("SELECT body FROM campaigns ORDER BY number")]

    def set_campaign(self, campaign: Campaign) -> None:
        rules.check_campaign(campaign)
        with self._file.writing() as connection:
            number = _known_number(connection, campaign.name)
            connection.execute(
                "UPDATE campaigns SET body = ? WHERE number = ?", (msgspec.json.encode(campaign), number)
            )

    def delete_campaign(self, name: str) -> None:
        with self._file.writing() as connection:
            number = _known_number(connection, name)
            if connection.execute(
                "SELECT 1 FROM tallies WHERE campaign = ? AND phase = 'running' AND units > 0", (number,)
            ).fetchone():
                raise IllegalStep(f"units of {name!r} are running: cancel it first")
            span = _span(number)
            connection.execute("DELETE FROM prompts WHERE key BETWEEN ? AND ?", span)
            connection.execute("DELETE FROM units WHERE key BETWEEN ? AND ?", span)
            connection.execute("DELETE FROM tallies WHERE campaign = ?", (number,))
            connection.execute("DELETE FROM arrivals WHERE number = ?", (number,))
            connection.execute("DELETE FROM campaigns WHERE number = ?", (number,))

    def counts(self) -> dict[str, UnitCounts]:
        with self._file.reading() as connection:
            tallies: dict[str, dict[str, int]] = {name: {} for name in _names(connection).values()}
            for name, phase, units in connection.execute(
                """SELECT c.name, t.phase, sum(t.units)
                    FROM tallies t JOIN campaigns c ON c.number = t.campaign GROUP BY 1, 2"""
            ):
                tallies[name][phase] = units
        return {name: rules.unit_counts(tally) for name, tally in tallies.items()}

    # -- the life of a unit -------------------------------------------------------------------------

    def claim_units(
        self, campaign: str, account: str, limit: int, *, attempt_ids: Sequence[str], lease_until: float, now: float
    ) -> list[Unit]:
        rules.check_attempt_ids(limit, len(attempt_ids))
        with self._file.writing() as connection:
            number = _number(connection, campaign)
            if number is None:
                return []
            span = _visible_span(connection, number)
            rows = connection.execute(_CLAIM_BOUND, (account, *span, limit)).fetchall()
            rows += connection.execute(_CLAIM_FRESH, (*span, limit - len(rows))).fetchall()
            named = list(zip(rows, attempt_ids, strict=False))
            connection.executemany(
                _CLAIM, [(account, attempt_id, lease_until, now, row[0]) for row, attempt_id in named]
            )
        return [
            rules.claimed(unit_from(row[:-1], campaign, row[-1] or ""), account, attempt_id, lease_until, now)
            for row, attempt_id in named
        ]

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        if not records:
            return []
        with self._file.writing() as connection:
            numbers = _numbers(connection)
            return [_record_outcome(connection, numbers, each, now) for each in records]

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        if not fences:
            return []
        with self._file.writing() as connection:
            numbers = _numbers(connection)
            return [
                identifier
                for identifier, fence in fences.items()
                if not connection.execute(_RENEW, (lease_until, *_address(numbers, identifier), fence)).rowcount
            ]

    def wake_units(self, *, now: float, limit: int = 10_000) -> int:
        rules.check_limit(limit)
        first = self.next_resume_at()
        if first is None or first > now:  # asked at every pass, and then it need not wait for a writer
            return 0
        with self._file.writing() as connection:
            due = connection.execute(_DUE, (now, limit)).fetchall()
            connection.executemany("UPDATE units SET resume_at = NULL WHERE key = ?", due)
        return len(due)

    def wake_account(self, account: str, *, limit: int = 10_000) -> int:
        rules.check_limit(limit)
        with self._file.writing() as connection:
            parked = connection.execute(_PARKED_ON, (account, limit)).fetchall()
            connection.executemany("UPDATE units SET resume_at = NULL WHERE key = ?", parked)
        return len(parked)

    def hold_units(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        with self._file.writing() as connection:
            numbers = _numbers(connection)
            return sum(
                connection.execute(_HOLD, (rules.mended(reason), now, *_address(numbers, identifier))).rowcount
                for identifier in unit_ids
            )

    def retry_units(self, campaign: str) -> int:
        with self._file.writing() as connection:
            return connection.execute(_RETRY, _span(_known_number(connection, campaign))).rowcount

    def cancel_units(self, campaign: str, *, now: float) -> list[str]:
        with self._file.writing() as connection:
            span = _visible_span(connection, _known_number(connection, campaign))
            running = connection.execute(
                "SELECT name FROM units WHERE state = 'running' AND key BETWEEN ? AND ? ORDER BY key", span
            ).fetchall()
            connection.execute(_CANCEL, (now, *span))
        return [rules.unit_id(campaign, name) for (name,) in running]

    def forget_conversation(self, unit_id: str) -> None:
        with self._file.writing() as connection:
            if not connection.execute(
                f"UPDATE units AS u SET session_id = NULL WHERE campaign = ? AND name = ? AND {_IS_THERE}",
                _address(_numbers(connection), unit_id),
            ).rowcount:
                raise UnknownName(f"there is no unit {unit_id!r}")

    # -- looking in ---------------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit | None:
        campaign, name = rules.split_unit_id(unit_id)
        with self._file.reading() as connection:
            row = connection.execute(
                f"""SELECT {UNIT_COLUMNS}, p.prompt FROM units u LEFT JOIN prompts p ON p.key = u.key
                    WHERE u.campaign = ? AND u.name = ? AND {_IS_THERE}""",
                (_number(connection, campaign), name),
            ).fetchone()
        return None if row is None else unit_from(row[:-1], campaign, row[-1] or "")

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        rules.check_limit(limit)
        after = rules.key_after(cursor)
        with self._file.reading() as connection:
            low, high = _EVERYTHING if campaign is None else _span(_known_number(connection, campaign))
            names = _names(connection)
            rows: list[Row] = []
            for first, last in _visible_spans(connection, max(low, after + 1), high):
                rows += _page(connection, state, first, last, limit + 1 - len(rows))
        units = [_unit_without_prompt(row, names) for row in rows[:limit]]
        return Page(units=tuple(units), cursor=str(rows[limit - 1][0]) if len(rows) > limit else None)

    def running_units(self) -> list[Unit]:
        with self._file.reading() as connection:
            names = _names(connection)
            rows = _page(connection, "running", *_EVERYTHING, -1)
        return [_unit_without_prompt(row, names) for row in rows]

    def next_resume_at(self) -> float | None:
        with self._file.reading() as connection:
            row = connection.execute(
                """SELECT min(resume_at) FROM units INDEXED BY parked
                    WHERE state = 'todo' AND resume_at IS NOT NULL"""
            ).fetchone()
        return None if row[0] is None else float(row[0])

    def claimable(self) -> dict[tuple[str, str | None], int]:
        with self._file.reading() as connection:
            rows = connection.execute(
                """SELECT c.name, t.account, t.units FROM tallies t JOIN campaigns c ON c.number = t.campaign
                    WHERE t.phase = 'todo' AND t.units > 0"""
            ).fetchall()
        return {(campaign, account or None): units for campaign, account, units in rows}

    # -- the engine's own ---------------------------------------------------------------------------

    def append_events(self, events: Sequence[Event]) -> int:
        with self._file.writing() as connection:
            insert_events(connection, events)
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if row is None else int(row[0])

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        rules.check_limit(limit)
        of_unit = "" if unit is None else "AND unit = ?"
        parameters = (after, limit) if unit is None else (after, unit, limit)
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT id, body FROM events WHERE id > ? {of_unit} ORDER BY id LIMIT ?", parameters
            ).fetchall()
        return [StoredEvent(number, rules.decode_event(body)) for number, body in rows]

    def trim_events(self, *, keep: int) -> None:
        with self._file.writing() as connection:
            connection.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (keep,))

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        encoded = [(slot.id, rules.encode_slot(slot)) for slot in kept]
        with self._file.writing() if kept else self._file.writing_without_wait() as connection:
            connection.executemany(_SAVE_SLOT, encoded)
            connection.executemany("DELETE FROM slots WHERE id = ?", [(slot_id,) for slot_id in dropped])

    def slots(self) -> list[StoredSlot]:
        with self._file.reading() as connection:
            rows = connection.execute("SELECT body FROM slots ORDER BY rowid").fetchall()
        return [rules.decode_slot(body) for (body,) in rows]

    def slot(self, slot_id: str) -> StoredSlot | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT body FROM slots WHERE id = ?", (slot_id,)).fetchone()
        return None if row is None else rules.decode_slot(row[0])

    def save_state(self, key: str, value: bytes) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO states VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value)
            )

    def load_state(self, key: str) -> bytes | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT value FROM states WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        with self._file.writing() as connection:
            written = connection.execute(
                """INSERT INTO leader VALUES (1, ?, ?) ON CONFLICT DO UPDATE
                    SET owner = excluded.owner, until = excluded.until WHERE owner = excluded.owner OR until <= ?""",
                (owner, until, now),
            )
            return written.rowcount == 1

    def resign(self, owner: str) -> None:
        with self._file.writing() as connection:
            connection.execute("DELETE FROM leader WHERE owner = ?", (owner,))

    def close(self) -> None:
        self._file.close()


_EVERYTHING: Final = (0, (1 << 63) - 1)


def _span(number: int) -> tuple[int, int]:
    """The first and the last key that the campaign can have."""
    return rules.unit_key(number, 0), rules.unit_key(number + 1, 0) - 1


def _visible_span(connection: sqlite3.Connection, number: int) -> Span:
    """The same without what is arriving."""
    low, high = _span(number)
    row = connection.execute("SELECT first_key FROM arrivals WHERE number = ?", (number,)).fetchone()
    return low, high if row is None else row[0] - 1


def _visible_spans(connection: sqlite3.Connection, low: int, high: int) -> Iterator[Span]:
    """All that is there from key to key, around what is arriving."""
    for first_hidden, last_hidden in hidden_spans(connection):
        if low < first_hidden:
            yield low, min(first_hidden - 1, high)
        low = max(low, last_hidden + 1)
    if low <= high:
        yield low, high


def _names(connection: sqlite3.Connection) -> dict[int, str]:
    return dict(connection.execute("SELECT number, name FROM campaigns ORDER BY number"))


def _numbers(connection: sqlite3.Connection) -> dict[str, int]:
    return {name: number for number, name in _names(connection).items()}


def _number(connection: sqlite3.Connection, campaign: str) -> int | None:
    row = connection.execute("SELECT number FROM campaigns WHERE name = ?", (campaign,)).fetchone()
    return None if row is None else row[0]


def _known_number(connection: sqlite3.Connection, campaign: str) -> int:
    number = _number(connection, campaign)
    if number is None:
        raise rules.unknown_campaign(campaign, _names(connection).values())
    return number


def _address(numbers: dict[str, int], identifier: str) -> tuple[int | None, str]:
    """The columns that find a unit by its id; of an unknown campaign they find nothing."""
    campaign, name = rules.split_unit_id(identifier)
    return numbers.get(campaign), name


def _record_outcome(connection: sqlite3.Connection, numbers: dict[str, int], record: OutcomeRecord, now: float) -> bool:
    address = _address(numbers, record.unit_id)
    if connection.execute(_RECORD_OUTCOME, outcome_row(record, address, now)).rowcount:
        return True
    row = connection.execute(_RECORDED_OUTCOME, address).fetchone()
    return row is not None and is_stored_already(row, record)


def _page(connection: sqlite3.Connection, state: UnitState | None, low: int, high: int, limit: int) -> list[Row]:
    """Rows in the order of keys, found through the index of states if one is asked for."""
    of_state, parameters = ("", ()) if state is None else ("u.state = ? AND", (state,))
    return connection.execute(
        f"SELECT {UNIT_COLUMNS} FROM units u WHERE {of_state} u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?",
        (*parameters, low, high, limit),
    ).fetchall()


def _unit_without_prompt(row: Row, names: dict[int, str]) -> Unit:
    return unit_from(row, names[rules.number_of(row[0])], "")
