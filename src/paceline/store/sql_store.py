"""The verbs of the store in SQL that both databases understand.

Verbs only: which unit may run, and what becomes of it, comes from the core. Statements are in the dialect of SQLite; a
connection to PostgreSQL translates the few differences (`postgres_connection.translated`). `postgres.py` replaces the
busiest verbs by one statement each, because there a statement is a trip to the server.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol

from msgspec.json import Decoder
from msgspec.structs import astuple, replace

from paceline.core.unit_lifecycle import UnitState
from paceline.errors import IllegalStep, InvalidInput, StoreBusy, StoreError, UnknownName
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import (
    Added,
    Campaign,
    LeadLease,
    OutcomeRecord,
    Page,
    Phase,
    StoppedUnits,
    StoredEvent,
    StoredSlot,
    Topic,
    Unit,
    UnitCounts,
    UnitSpec,
)
from paceline.store.rules import Decoded, Row, Span
from paceline.store.spend import (
    SPEND_COLUMNS,
    SUMS_BY_KEY,
    BatchId,
    ClientKey,
    HashedKey,
    SpendRow,
    spend_row,
    spend_values,
    summed,
)
from paceline.store.unit_result import UnitResult

if TYPE_CHECKING:
    from paceline.store.plan_import import PlanImport

log = logging.getLogger("paceline.store")

BUSY_SECONDS: Final = 2.0
"""How long a verb waits for another writer before `StoreBusy`: far longer than any transaction of ours takes."""
MOST_REPORTED: Final = 1000
"""Damaged rows that are logged one by one: more would bury everything else in the log."""

UNIT_COLUMNS: Final = ", ".join(f"u.{each}" for each in rules.UNIT_FIELDS)
# As blobs: text that is not Unicode would raise in SQLite, and hide the rows around it.
WHOLE_RESULT: Final = "CAST(r.body AS BLOB), CAST(r.checks AS BLOB), CAST(r.texts AS BLOB)"
BRIEF_RESULT: Final = "CAST(r.body AS BLOB), CAST(r.checks AS BLOB), NULL"
"""The result without its long texts."""
RESULT_COLUMNS: Final = 3
UNIT_AND_RESULT: Final = f"{UNIT_COLUMNS}, {WHOLE_RESULT}"
BODY: Final = "CAST(body AS BLOB)"

READY_AGAIN: Final = """state = 'todo', failures = 0, windows_spent = 0, refusals = 0,
    losses = 0, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = FALSE, denials = 0, warnings = NULL,
    resume_at = lease_until"""
"""The assignments that let a unit begin again once its attempt before has ended. Attempts and parks stay counted."""
IS_STOPPED: Final = "state IN ('held', 'quarantined', 'unverified')"
FORGET_CHECKS: Final = """UPDATE results SET checks = NULL WHERE checks IS NOT NULL
    AND key IN (SELECT key FROM units WHERE {} AND {})"""
_SAVE_RESULT: Final = """INSERT INTO results (body, checks, texts, key)
    SELECT ?, ?, ?, key FROM units WHERE campaign = ? AND name = ?
    ON CONFLICT (key) DO UPDATE SET body = excluded.body, checks = excluded.checks, texts = excluded.texts"""
IS_CLAIMABLE: Final = "u.state = 'todo' AND u.resume_at IS NULL"
_TEXTS: Final = "LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key"
_IS_BOUND: Final = f"{IS_CLAIMABLE} AND u.conversation_id IS NOT NULL AND u.account = ? AND u.key BETWEEN ? AND ?"

# The state of a unit that is found by its name is compared in a way that no index can serve (`state || '' = 'todo'`):
# an index of states has an entry of every unit that was in it since the last vacuum of PostgreSQL.
_CLAIM_BOUND: Final = f"""SELECT {UNIT_AND_RESULT}, p.prompt FROM units u INDEXED BY claimable_on_account {_TEXTS}
    WHERE {_IS_BOUND} ORDER BY u.resume_cost, u.key LIMIT ?"""
_CLAIM_FRESH: Final = f"""SELECT {UNIT_AND_RESULT}, p.prompt FROM units u INDEXED BY claimable_afresh {_TEXTS}
    WHERE {IS_CLAIMABLE} AND u.conversation_id IS NULL AND u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?"""
_CLAIM: Final = """UPDATE units SET state = 'running', attempts = attempts + 1, fence = fence + 1, account = ?,
    attempt_id = ?, lease_until = ?,
    begun_at = CASE WHEN conversation_id IS NULL THEN ? ELSE coalesce(begun_at, started_at) END,
    started_at = ?, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = FALSE, denials = 0, warnings = NULL,
    phase = 'working' WHERE key = ?"""
_RECORD_OUTCOME: Final = """UPDATE units SET state = ?, failures = ?, attempts = ?, parks = ?, windows_spent = ?,
    refusals = ?, losses = ?, resume_at = ?, reason = ?, account = coalesce(?, account),
    conversation_id = CASE WHEN coalesce(?, account, '') <> '' THEN ? END, ended_at = ?, exit_code = ?, is_parked = ?,
    denials = ?, warnings = ?, resume_cost = ?, lease_until = NULL, phase = NULL
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_RECORDED_OUTCOME: Final = """SELECT fence, state, failures, attempts, parks, windows_spent, refusals, losses
    FROM units WHERE campaign = ? AND name = ?"""
_END_LEASE: Final = """UPDATE units SET lease_until = NULL, resume_at = NULL
    WHERE campaign = ? AND name = ? AND state || '' <> 'running' AND fence = ? AND lease_until IS NOT NULL"""
_SAVE_PHASE: Final = """UPDATE units SET phase = coalesce(?, phase)
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_RENEW: Final = """UPDATE units SET lease_until = ?
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_WAKE_DUE: Final = """UPDATE units SET resume_at = NULL, is_parked = FALSE WHERE key IN (
    SELECT key FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND resume_at <= ? AND lease_until IS NULL
    ORDER BY resume_at, key LIMIT ?)"""
_ON_ACCOUNT: Final = "SELECT 1 FROM units WHERE key BETWEEN ? AND ? AND account = ? LIMIT 1"
_RENAME_ACCOUNT: Final = "UPDATE units SET account = ? WHERE key BETWEEN ? AND ? AND account = ?"
_WAKE_ACCOUNT: Final = """UPDATE units SET resume_at = NULL, is_parked = FALSE WHERE key IN (
    SELECT key FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND is_parked AND account = ? AND key BETWEEN ? AND ?
    ORDER BY resume_at, key LIMIT ?)"""
_NEXT_RESUME: Final = """SELECT resume_at FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND lease_until IS NULL ORDER BY resume_at, key LIMIT 1"""
_SHORTEN: Final = """UPDATE units INDEXED BY parked SET resume_at = ? + resume_at - ended_at, ended_at = ?
    WHERE state = 'todo' AND resume_at IS NOT NULL AND NOT is_parked AND ended_at > ?"""
_HASTEN: Final = """UPDATE units AS u SET resume_at = ?
    WHERE campaign = ? AND name = ? AND state || '' = 'todo' AND resume_at > ? AND {visible}"""
_MOVE: Final = """UPDATE units AS u SET state = ?, reason = ?, resume_at = NULL, ended_at = ?
    WHERE campaign = ? AND name = ? AND state || '' = ? AND {visible}"""
_MOVED_FROM: Final = {"held": "todo", "done": "unverified"}
_CANCEL: Final = """UPDATE units SET state = 'cancelled', resume_at = NULL, ended_at = ?, phase = NULL
    WHERE {} AND state NOT IN ('done', 'cancelled')"""
_FORGET_CONVERSATION: Final = """UPDATE units AS u SET conversation_id = NULL, is_parked = FALSE,
    resume_at = CASE WHEN is_parked THEN NULL ELSE resume_at END
    WHERE campaign = ? AND name = ? AND {visible}"""
_RESULT_OF: Final = f"""SELECT {WHOLE_RESULT} FROM results r
    WHERE r.key = (SELECT key FROM units WHERE campaign = ? AND name = ?)"""
# SQLite begins a CROSS JOIN with the table on its left.
_UNIT: Final = f"""SELECT {UNIT_AND_RESULT}, p.prompt FROM campaigns c CROSS JOIN units u {_TEXTS}
    WHERE c.name = ? AND u.campaign = c.number AND u.name = ?"""
_UNITS: Final = """SELECT {columns}, c.name FROM units u{index} LEFT JOIN results r ON r.key = u.key
    CROSS JOIN campaigns c WHERE {which} AND c.number = u.campaign"""
_STOPPED: Final = f"""SELECT c.name, g.state, g.reason, g.amount, u.name FROM (
        SELECT campaign, state, reason, count(*) AS amount, min(key) AS first_key FROM units INDEXED BY units_by_state
        WHERE {IS_STOPPED} GROUP BY campaign, state, reason
    ) g CROSS JOIN units u CROSS JOIN campaigns c WHERE u.key = g.first_key AND c.number = g.campaign
    ORDER BY g.amount DESC, g.first_key LIMIT ?"""
_CLAIMABLE: Final = """SELECT c.name, t.account, t.units
    FROM tallies t INDEXED BY tallies_claimable CROSS JOIN campaigns c
    WHERE t.phase = 'todo' AND t.units > 0 AND c.number = t.campaign ORDER BY t.campaign, t.account"""
_COUNTS: Final = """SELECT c.name, t.phase, CAST(sum(t.units) AS BIGINT)
    FROM campaigns c LEFT JOIN tallies t ON t.campaign = c.number
    GROUP BY c.number, c.name, t.phase ORDER BY c.number"""
_HAS_RUNNING: Final = "SELECT 1 FROM tallies WHERE campaign = ? AND phase = 'running' AND units > 0"

COUNT_ON: Final = "UPDATE counters SET value = value + ? WHERE name = ? RETURNING value"
_INSERT_EVENT: Final = "INSERT INTO events (id, unit, is_slot, body) VALUES (?, ?, ?, ?)"
_TRIM: Final = """DELETE FROM events WHERE is_slot = ?
    AND id <= (SELECT id FROM events WHERE is_slot = ? ORDER BY id DESC LIMIT 1 OFFSET ?)"""
_SAVE_SLOT: Final = """INSERT INTO slots (id, body) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET body = excluded.body"""
_SAVE_STATE: Final = """INSERT INTO states (key, value) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
_ADD_SPEND: Final = f"""INSERT INTO gateway_spend ({", ".join(SPEND_COLUMNS)})
    VALUES ({", ".join("?" * len(SPEND_COLUMNS))}) ON CONFLICT (day, key, key_created_at, account, model)
    DO UPDATE SET {", ".join(f"{name} = gateway_spend.{name} + excluded.{name}" for name in SPEND_COLUMNS[5:])}"""
_BY_KEY: Final = "GROUP BY day, key, key_created_at, account"
_ADD_BATCH: Final = """INSERT INTO spend_batches (writer, number) VALUES (?, ?)
    ON CONFLICT (writer) DO UPDATE SET number = excluded.number WHERE spend_batches.number < excluded.number"""
_TAKE_LEAD: Final = """UPDATE leader SET owner = ?, until = ?, epoch = epoch + 1
    WHERE owner IS NULL OR owner = ? OR until <= ?"""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """What both drivers have."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Cursor: ...


class Written(NamedTuple):
    """The result of a statement that is stored."""

    rows: list[Row]
    changed: int


class Database(ABC):
    """Connections to one database, with one transaction of the store at a time."""

    def __init__(self, place: str, busy_seconds: float, driver_error: type[Exception]) -> None:
        self.place = place
        """The file or the address, for messages."""
        self._busy_seconds = busy_seconds
        self._driver_error = driver_error
        self._joint: Any = None
        """The connection of a block of `together`."""

    @abstractmethod
    def writing(self, *, is_slow: bool = False, is_durable: bool = True) -> AbstractContextManager[Any]:
        """Begin a transaction that commits at the end of the block, and rolls back if the block raises.

        A slow one may change every unit of a campaign. One that is not durable need not wait for the disk.
        """

    @abstractmethod
    def write(self, statement: str, values: Sequence[object]) -> Written:
        """Run a transaction of one statement."""

    @abstractmethod
    def reading(self, *, is_slow: bool = False) -> AbstractContextManager[Any]:
        """Begin a transaction that reads one consistent state. It does not block writers."""

    @abstractmethod
    def query(self) -> AbstractContextManager[Any]:
        """Give a connection for a statement that reads."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Begin a transaction that all transactions in the block become part of, also those of such blocks in it."""
        was_joint = self._joint
        with self.writing() as connection:
            self._joint = connection
            try:
                yield
            finally:
                self._joint = was_joint

    @abstractmethod
    def check(self) -> None:
        """Read everything. Raise `StoreDamaged` if a part of it is not what it should be."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise errors of the driver as those of a store."""
        try:
            yield
        except self._driver_error as error:
            raise self._store_error(error) from error
        except UnicodeEncodeError as error:
            raise InvalidInput(f"text that is not Unicode: {error.object!r}") from error

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"another process is writing to {self.place}, and has been for {self._busy_seconds:g} s or more"
        )

    @abstractmethod
    def _store_error(self, error: Any) -> StoreError:
        """Return what an error of the driver means."""


class SqlStore(ABC):
    """`Store` in a database."""

    is_shared = False
    visible: ClassVar[str] = "TRUE"
    """A condition for a unit `u` that was found by its name: no import hides it."""

    pause_seconds: float = 0.0
    """How long a blocking import sleeps between two steps."""

    def __init__(self, database: Database, plan_import: "type[PlanImport]") -> None:
        self.database = database
        self._plan_import = plan_import
        self._reported: set[tuple[str, object]] = set()

    def together(self) -> AbstractContextManager[None]:
        return self.database.together()

    def check(self) -> None:
        self.database.check()

    def subscribe(self, on_change: Callable[[Topic], object]) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        self.database.close()

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
            if self.pause_seconds:
                time.sleep(self.pause_seconds)

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        rules.check_campaign(campaign)
        plan_import = self._plan_import(self, campaign, update=update, now=now, events=events)
        return plan_import.steps(rules.checked_specs(units))

    def campaigns(self) -> list[Campaign]:
        rows = self._read(f"SELECT name, {BODY} FROM campaigns ORDER BY number")
        return [rules.campaign_from(name, body) for name, body in rows]

    def set_campaign(self, campaign: Campaign) -> None:
        rules.check_campaign(campaign)
        statement = "UPDATE campaigns SET body = ? WHERE name = ?"
        if not self.database.write(statement, (rules.encode(campaign), campaign.name)).changed:
            with self.database.query() as connection:
                raise _unknown(connection, campaign.name)

    def delete_campaign(self, name: str) -> None:
        with self.database.writing(is_slow=True) as connection:
            number = known_number(connection, name)
            if connection.execute(_HAS_RUNNING, (number,)).fetchone():
                raise IllegalStep(f"units of {name!r} are running: cancel it first")
            for table in ("prompts", "results", "units"):
                connection.execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", rules.campaign_span(number))
            connection.execute("DELETE FROM tallies WHERE campaign = ?", (number,))
            connection.execute("DELETE FROM campaigns WHERE number = ?", (number,))

    def counts(self) -> dict[str, UnitCounts]:
        tallies: dict[str, dict[str, int]] = {}
        for name, phase, units in self._read(_COUNTS):
            tallies.setdefault(name, {})[phase] = units
        return {name: rules.unit_counts(tally) for name, tally in tallies.items()}

    # -- the life cycle of units --------------------------------------------------------------------

    def claim_units(
        self,
        campaign: str,
        account: str,
        limit: int,
        *,
        attempt_ids: Sequence[str],
        lease_until: float,
        now: float,
        only_bound: bool = False,
    ) -> list[Unit]:
        rules.check_attempt_ids(limit, len(attempt_ids))
        with self.database.writing() as connection:
            number = find_number(connection, campaign)
            if number is None:
                return []
            span = self._visible_span(connection, number)
            rows = connection.execute(_CLAIM_BOUND, (account, *span, limit)).fetchall()
            if not only_bound:
                rows += connection.execute(_CLAIM_FRESH, (*span, limit - len(rows))).fetchall()
            named = list(zip(rows, attempt_ids, strict=False))
            connection.executemany(
                _CLAIM, [(account, attempt_id, lease_until, now, now, row[0]) for row, attempt_id in named]
            )
        return [
            rules.claimed(self._unit(row[:-1], campaign, row[-1] or ""), account, attempt_id, lease_until, now)
            for row, attempt_id in named
        ]

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        if not records:
            return []
        with self.database.writing() as connection:
            addresses = _addresses(connection, [each.unit_id for each in records])
            results: list[Row] = []
            are_stored: list[bool] = []
            for record, address in zip(records, addresses, strict=True):
                is_new = connection.execute(_RECORD_OUTCOME, rules.outcome_row(record, address, now)).rowcount > 0
                if is_new and record.result is not None:
                    results.append((*rules.result_row(record.result), *address))
                are_stored.append(is_new or self._end_late(connection, record))
            connection.executemany(_SAVE_RESULT, results)
        return are_stored

    def _end_late(self, connection: Connection, record: OutcomeRecord) -> bool:
        """End the lease of a unit that was cancelled meanwhile. Return whether the outcome is recorded already."""
        address = _addresses(connection, [record.unit_id])[0]
        if connection.execute(_END_LEASE, (*address, record.fence)).rowcount and record.result is not None:
            found = connection.execute(_RESULT_OF, address).fetchone()
            work = UnitResult() if found is None else rules.result_from(*found) or UnitResult()
            connection.execute(_SAVE_RESULT, (*rules.result_row(record.result.with_work_of(work)), *address))
        stored = connection.execute(_RECORDED_OUTCOME, address).fetchone()
        transition = record.transition  # what this very record left is a repetition
        return bool(stored == (record.fence, transition.state, *astuple(transition.counters)))

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        with self.database.writing() as connection:
            address = _addresses(connection, [unit_id])[0]
            is_current = bool(connection.execute(_SAVE_PHASE, (phase, *address, fence)).rowcount)
            if is_current and result is not None:
                connection.execute(_SAVE_RESULT, (*rules.result_row(result), *address))
        return is_current

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        if not fences:
            return []
        with self.database.writing() as connection:
            renewals = zip(fences.items(), _addresses(connection, fences), strict=True)
            return [
                identifier
                for (identifier, fence), address in renewals
                if not connection.execute(_RENEW, (lease_until, *address, fence)).rowcount
            ]

    def wake_units(
        self, *, now: float = 0.0, account: str | None = None, campaign: str | None = None, limit: int = 10_000
    ) -> int:
        rules.check_page_size(limit)
        if account is None:
            first = self.next_resume_at()
            if first is None or first > now:  # the usual case at every pass: it needs no lock for writing
                return 0
            return self.database.write(_WAKE_DUE, (now, limit)).changed
        with self.database.writing() as connection:
            span = rules.ALL_KEYS if campaign is None else rules.campaign_span(known_number(connection, campaign))
            return int(connection.execute(_WAKE_ACCOUNT, (account, *span, limit)).rowcount)

    def rename_account(self, campaign: str, before: str, after: str) -> int:
        with self.database.query() as connection:
            span = rules.campaign_span(known_number(connection, campaign))
            is_known = connection.execute(_ON_ACCOUNT, (*span, before)).fetchone() is not None
        if not is_known:  # the usual case at every start: it needs no lock for writing
            return 0
        with self.database.writing(is_slow=True) as connection:
            return int(connection.execute(_RENAME_ACCOUNT, (after, *span, before)).rowcount)

    def hasten_units(self, resume_times: Mapping[str, float], *, set_back_to: float | None = None) -> int:
        if not resume_times and set_back_to is None:
            return 0
        with self.database.writing(is_slow=set_back_to is not None) as connection:
            if resume_times:
                times = zip(resume_times.values(), _addresses(connection, resume_times), strict=True)
                values = [(resume_at, *address, resume_at) for resume_at, address in times]
                connection.executemany(_HASTEN.format(visible=self.visible), values)
            return 0 if set_back_to is None else int(connection.execute(_SHORTEN, (set_back_to,) * 3).rowcount)

    def move_units(self, unit_ids: Sequence[str], to: Literal["held", "done"], reason: str, *, now: float) -> int:
        if not unit_ids:
            return 0
        with self.database.writing() as connection:
            moved = (to, rules.told_text(reason), now)
            values = [(*moved, *address, _MOVED_FROM[to]) for address in _addresses(connection, unit_ids)]
            return int(connection.executemany(_MOVE.format(visible=self.visible), values).rowcount)

    def retry_units(self, campaign: str, unit_ids: Sequence[str] | None = None, *, also_cancelled: bool = False) -> int:
        state = f"({IS_STOPPED} OR state = 'cancelled')" if also_cancelled else IS_STOPPED
        with self.database.writing(is_slow=unit_ids is None) as connection:
            chosen, values = self._chosen(connection, campaign, unit_ids)
            connection.execute(FORGET_CHECKS.format(chosen, state), values)
            retry = f"UPDATE units SET {READY_AGAIN} WHERE {chosen} AND {state}"
            return int(connection.execute(retry, values).rowcount)

    def cancel_units(self, campaign: str, unit_ids: Sequence[str] | None = None, *, now: float) -> list[str]:
        with self.database.writing(is_slow=unit_ids is None) as connection:
            chosen, values = self._chosen(connection, campaign, unit_ids)
            running = f"SELECT name FROM units WHERE {chosen} AND state = 'running' ORDER BY key"
            names = connection.execute(running, values).fetchall()
            connection.execute(_CANCEL.format(chosen), (now, *values))
        return [rules.unit_id(campaign, name) for (name,) in names]

    def forget_conversation(self, unit_id: str) -> None:
        with self.database.writing() as connection:
            address = _addresses(connection, [unit_id])[0]
            if not connection.execute(_FORGET_CONVERSATION.format(visible=self.visible), address).rowcount:
                raise UnknownName(f"there is no unit {unit_id!r}")
            found = connection.execute(_RESULT_OF, address).fetchone()
            if found is not None:
                result = rules.result_from(*found) or UnitResult()
                connection.execute(_SAVE_RESULT, (*rules.result_row(result.without_work()), *address))

    # -- reading units ------------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit | None:
        campaign, name = rules.split_unit_id(unit_id)
        rows = self._read(f"{_UNIT} AND {self.visible}", (campaign, name))
        return self._unit(rows[0][:-1], campaign, rows[0][-1] or "") if rows else None

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        bound_to: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        rules.check_page_size(limit)
        after = rules.key_after(cursor)
        with self.database.reading() as connection:
            low, high = rules.ALL_KEYS if campaign is None else rules.campaign_span(known_number(connection, campaign))
            rows: list[Row] = []
            for span in self.visible_spans(connection, max(low, after + 1), high):
                rows += self._brief_rows(connection, state, bound_to, span, limit + 1 - len(rows))
        units = [self._unit(row[:-1], row[-1]) for row in rows[:limit]]
        has_more = len(rows) > limit and bound_to is None
        return Page(units=tuple(units), cursor=str(rows[limit - 1][0]) if has_more else None)

    def _brief_rows(
        self, connection: Connection, state: UnitState | None, bound_to: str | None, span: Span, limit: int
    ) -> list[Row]:
        columns = f"{UNIT_COLUMNS}, {BRIEF_RESULT}"
        if bound_to is not None:
            select = _UNITS.format(columns=columns, index=" INDEXED BY claimable_on_account", which=_IS_BOUND)
            ordered = f"{select} ORDER BY u.resume_cost, u.key LIMIT ?"
            return connection.execute(ordered, (bound_to, *span, limit)).fetchall()
        of_state, values = ("", ()) if state is None else ("u.state = ? AND ", (state,))
        select = _UNITS.format(columns=columns, index="", which=f"{of_state}u.key BETWEEN ? AND ?")
        return connection.execute(f"{select} ORDER BY u.key LIMIT ?", (*values, *span, limit)).fetchall()

    def running_units(self, *, also_cancelled: bool = False) -> list[Unit]:
        index, which = (
            (" INDEXED BY leased", "u.lease_until IS NOT NULL") if also_cancelled else ("", "u.state = 'running'")
        )
        select = _UNITS.format(columns=UNIT_AND_RESULT, index=index, which=which)
        return [self._unit(row[:-1], row[-1]) for row in self._read(f"{select} ORDER BY u.key")]

    def next_resume_at(self) -> float | None:
        rows = self._read(_NEXT_RESUME)
        return float(rows[0][0]) if rows else None

    def stopped_units(self, *, limit: int) -> list[StoppedUnits]:
        rules.check_page_size(limit)
        return [
            StoppedUnits(
                campaign=campaign, state=state, reason=reason, units=units, example=rules.unit_id(campaign, name)
            )
            for campaign, state, reason, units, name in self._read(_STOPPED, (limit,))
        ]

    def claimable(self) -> dict[tuple[str, str | None], int]:
        return {(campaign, account or None): units for campaign, account, units in self._read(_CLAIMABLE)}

    # -- events -------------------------------------------------------------------------------------

    def append_events(self, events: Sequence[Event]) -> int:
        if not events:
            return int(self._read("SELECT value FROM counters WHERE name = 'events'")[0][0])
        with self.database.writing() as connection:
            return self.insert_events(connection, events)

    def insert_events(self, connection: Connection, events: Sequence[Event]) -> int:
        """Append events inside a transaction. Return the id of the last one."""
        last = int(connection.execute(COUNT_ON, (len(events), "events")).fetchall()[0][0])
        rows = [
            (number, rules.storable_text(event.unit), rules.is_slot_event(event), rules.encode_event(event))
            for number, event in enumerate(events, last - len(events) + 1)
        ]
        connection.executemany(_INSERT_EVENT, rows)
        return last

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        rules.check_page_size(limit)
        of_unit, values = ("", ()) if unit is None else ("AND unit = ?", (unit,))
        select = f"SELECT id, {BODY} FROM events WHERE id > ? {of_unit} ORDER BY id LIMIT ?"
        found: list[StoredEvent] = []
        with self.database.query() as connection:
            while len(found) < limit:
                rows = connection.execute(select, (after, *values, limit - len(found))).fetchall()
                missing = limit - len(found) - len(rows)
                found += [StoredEvent(row[0], event) for row, event in self._decoded("event", rules.EVENTS, rows)]
                if missing or not rows:
                    break
                after = rows[-1][0]
        return found

    def trim_events(
        self,
        *,
        keep: int | None = None,
        keep_slots: int | None = None,
        before: float | None = None,
        through: int = 0,
        limit: int = 1000,
    ) -> int:
        rules.check_page_size(limit)
        with self.database.writing() as connection:
            if keep is not None:
                connection.execute(_TRIM, (False, False, keep))
                connection.execute(_TRIM, (True, True, keep if keep_slots is None else keep_slots))
            if before is None:
                return 0
            rows = connection.execute(
                f"SELECT id, {BODY} FROM events WHERE id <= ? ORDER BY id LIMIT ?", (through, limit)
            ).fetchall()
            old = 0
            for _, body in rows:  # a damaged one goes with those around it
                event = rules.decoded(rules.EVENTS, body)
                if event is not None and event.at >= before:
                    break
                old += 1
            if old:
                connection.execute("DELETE FROM events WHERE id <= ?", (rows[old - 1][0],))
        return old

    # -- slots, keys and states ---------------------------------------------------------------------

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        encoded = [(slot.id, rules.encode_slot(slot)) for slot in kept]
        with self.database.writing(is_durable=bool(kept)) as connection:
            if encoded:
                connection.executemany(_SAVE_SLOT, encoded)
            if dropped:
                connection.executemany("DELETE FROM slots WHERE id = ?", [(slot_id,) for slot_id in dropped])

    def slots(self, slot_id: str | None = None) -> list[StoredSlot]:
        which, values = ("", ()) if slot_id is None else ("WHERE id = ?", (slot_id,))
        rows = self._read(f"SELECT id, {BODY} FROM slots {which} ORDER BY number", values)
        return [slot for _, slot in self._decoded("slot", rules.SLOTS, rows)]

    def client_keys(self) -> list[HashedKey]:
        rows = self._read(f"SELECT name, digest, revoked_at, {BODY} FROM client_keys ORDER BY number")
        return [
            HashedKey(replace(key, revoked_at=revoked_at), digest)
            for (_, digest, revoked_at, _), key in self._decoded("key", rules.CLIENT_KEYS, rows)
        ]

    def create_client_key(self, key: ClientKey, digest: str) -> None:
        with self.database.writing() as connection:
            present = "SELECT 1 FROM client_keys WHERE name = ? AND revoked_at IS NULL"
            if connection.execute(present, (key.name,)).fetchone() is not None:
                raise IllegalStep(
                    f"there is a key {key.name!r:.80} already; choose another name, or revoke it first: "
                    f"paceline keys revoke {key.name}"
                )
            insert = "INSERT INTO client_keys (name, digest, body) VALUES (?, ?, ?)"
            connection.execute(insert, (key.name, digest, rules.encode(key)))

    def revoke_client_key(self, name: str, *, now: float) -> ClientKey:
        revoke = f"UPDATE client_keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL RETURNING {BODY}"
        rows = self.database.write(revoke, (now, name)).rows
        if not rows:
            raise UnknownName(f"there is no key {name!r:.80}; `paceline keys list` lists them")
        return replace(rules.decoded(rules.CLIENT_KEYS, rows[0][0]) or ClientKey(name=name), revoked_at=now)

    def save_state(self, key: str, value: bytes) -> None:
        self.database.write(_SAVE_STATE, (key, value))

    def load_state(self, key: str) -> bytes | None:
        rows = self._read("SELECT value FROM states WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    # -- what calls of the gateway cost -------------------------------------------------------------

    def add_spend(self, rows: Sequence[SpendRow], batch: BatchId | None = None) -> None:
        values = [spend_values(row) for row in summed(map(rules.storable_spend, rows))]
        if values:
            with self.database.writing(is_durable=False) as connection:
                if batch is None or connection.execute(_ADD_BATCH, tuple(batch)).rowcount:
                    connection.executemany(_ADD_SPEND, values)

    def spend(self, *, since: str = "", key: str | None = None, by_model: bool = True) -> list[SpendRow]:
        columns, group = (", ".join(SPEND_COLUMNS), "") if by_model else (SUMS_BY_KEY, _BY_KEY)
        of_key, names = ("", ()) if key is None else ("AND key = ?", (key,))
        select = f"SELECT {columns} FROM gateway_spend WHERE day >= ? {of_key} {group} ORDER BY 1, 2, 3, 4, 5"
        return [spend_row(row) for row in self._read(select, (since, *names))]

    # -- the lead -----------------------------------------------------------------------------------

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        return bool(self.database.write(_TAKE_LEAD, (owner, until, owner, now)).changed)

    def leader(self, *, now: float) -> LeadLease | None:
        owner, until = self._read("SELECT owner, until FROM leader")[0]
        return None if owner is None else LeadLease(owner, until - now)

    def resign(self, owner: str) -> None:
        self.database.write("UPDATE leader SET owner = NULL, until = 0 WHERE owner = ?", (owner,))

    # -- rows ---------------------------------------------------------------------------------------

    def _read(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        with self.database.query() as connection:
            rows: list[Row] = connection.execute(statement, values).fetchall()
        return rows

    def _decoded(self, kind: str, decoder: Decoder[Decoded], rows: Iterable[Row]) -> Iterator[tuple[Row, Decoded]]:
        """Yield the rows with what is encoded in their last column. Those that are damaged are left out."""
        for row in rows:
            if (value := rules.decoded(decoder, row[-1])) is None:
                self._report_damage(kind, row[0])
            else:
                yield row, value

    def _chosen(
        self, connection: Connection, campaign: str, unit_ids: Sequence[str] | None
    ) -> tuple[str, tuple[object, ...]]:
        """Return the condition of the chosen units, or of all units of the campaign, and its values."""
        number = known_number(connection, campaign)
        span = self._visible_span(connection, number)
        if unit_ids is None:
            return "key BETWEEN ? AND ?", span
        names = [name for owner, name in map(rules.split_unit_id, unit_ids) if owner == campaign]
        named, values = self.named(names)
        return f"campaign = ? AND {named} AND +key BETWEEN ? AND ?", (number, *values, *span)

    @abstractmethod
    def named(self, names: list[str]) -> tuple[str, tuple[object, ...]]:
        """Return the condition that `name` is one of the names, and its values."""

    def _visible_span(self, connection: Connection, number: int) -> Span:
        """Return the keys of the campaign's units that no import hides."""
        low, high = rules.campaign_span(number)
        return next(iter(self.visible_spans(connection, low, high)), (low, low - 1))

    def visible_spans(self, connection: Connection, low: int, high: int) -> Iterable[Span]:
        """Return the spans between two keys that no import hides, in order."""
        return [(low, high)]

    def _unit(self, row: Row, campaign: str, prompt: str = "") -> Unit:
        """Return the unit of a row that ends with its result. A damaged result is logged once and left out."""
        columns, stored = row[:-RESULT_COLUMNS], row[-RESULT_COLUMNS:]
        result = UnitResult() if stored[0] is None else rules.result_from(*stored)
        if result is None:
            self._report_damage("result", row[0])
        return rules.unit_from(columns, campaign, prompt, result or UnitResult())

    def _report_damage(self, kind: str, name: object) -> None:
        """Log once that the row is left out. It stays in the database: perhaps a person can read it."""
        if (kind, name) not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add((kind, name))
            log.warning("%s %s in %s is damaged and is left out", kind, name, self.database.place)


def find_number(connection: Connection, campaign: str) -> int | None:
    """Return the campaign's number, or None if there is no such campaign."""
    row = connection.execute("SELECT number FROM campaigns WHERE name = ?", (campaign,)).fetchone()
    return None if row is None else int(row[0])


def known_number(connection: Connection, campaign: str) -> int:
    """Return the campaign's number. Raise `UnknownName` if there is no such campaign."""
    number = find_number(connection, campaign)
    if number is None:
        raise _unknown(connection, campaign)
    return number


def _unknown(connection: Connection, campaign: str) -> UnknownName:
    names = ", ".join(sorted(name for (name,) in connection.execute("SELECT name FROM campaigns").fetchall()))
    return UnknownName(f"there is no campaign {campaign!r}; there are: {names or 'none yet'}")


def _addresses(connection: Connection, unit_ids: Iterable[str]) -> list[tuple[int, str]]:
    """Return the columns `campaign` and `name` of each unit. They match no row if the campaign is not known."""
    pairs = [rules.split_unit_id(each) for each in unit_ids]
    numbers = {campaign: find_number(connection, campaign) or 0 for campaign in {pair[0] for pair in pairs}}
    return [(numbers[campaign], name) for campaign, name in pairs]
