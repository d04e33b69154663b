"""The store in a PostgreSQL database.

One transaction writes at a time, any number read. Every write is durable when its verb returns, as long as the server
keeps `synchronous_commit` on, which is its default.

Here: the lead, which is fenced; imports, each in one transaction on a connection of its own; and the busiest verbs,
each as one statement over arrays, because every statement is a trip to the server. All others are in `sql_store.py`.

Changes by other processes come by LISTEN, in a thread with a connection of its own. Who writes announces it in the same
transaction, so nobody receives it before it can be read. Commands, new units and the end of a lead are announced.
"""

import functools
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, get_args

import psycopg
from psycopg import sql

from paceline.errors import StoreBusy
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import Added, LeadLease, OutcomeRecord, Phase, Topic, Unit, UnitSpec
from paceline.store.plan_import import PlanImport, spec_chunks
from paceline.store.postgres_connection import ANSWER_SECONDS, Column, Connection, Row, first_line
from paceline.store.postgres_database import MIGRATION_LOCK, Fence, PostgresDatabase
from paceline.store.rules import campaign_span, encode_event, outcome_row, result_row
from paceline.store.schema import MIGRATIONS, Migration
from paceline.store.sql_store import BUSY_SECONDS, COUNT_ON, UNIT_AND_RESULT, SqlStore, find_number
from paceline.store.unit_result import UnitResult

log = logging.getLogger("paceline.store")

TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
FIRST_PAUSE: Final = 0.2
"""Seconds before the first new attempt to connect: a connection that was ended comes back at once."""
LONGEST_PAUSE: Final = 2.0
"""Seconds between later attempts: a server that returns is found soon, one that is away is not bothered."""

_CHANNEL: Final = "(('paceline_' || current_schema())::name)::text"
"""Notifications reach the whole database, so each schema has a channel. `name` cuts it to the length of a name."""
_NOTIFY: Final = f"SELECT pg_notify({_CHANNEL}, %s)"

Subscriber = Callable[[Topic], object]


def announce(connection: Connection, topic: Topic) -> None:
    """Notify every subscriber once the caller's transaction is stored. If it is not, nobody is notified."""
    connection.execute(_NOTIFY, (topic,))


class PostgresNotifications:
    """The subscribers of one process. They share one thread and one connection, which exist while there are any."""

    def __init__(self, address: str, place: str) -> None:
        self._address = address
        self._place = place
        self._lock = threading.RLock()
        self._subscribers: dict[object, Subscriber] = {}
        self._listener: _Listener | None = None

    def subscribe(self, on_change: Subscriber) -> Callable[[], None]:
        """Call `on_change` from the thread with each topic, until the returned function is called."""
        key = object()
        with self._lock:
            self._subscribers[key] = on_change
            if self._listener is None:
                self._listener = _Listener(self._address, self._place, self._notify)
                self._listener.start()
        return functools.partial(self._end, key)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            for key in list(self._subscribers):
                self._end(key)

    def _end(self, key: object) -> None:
        with self._lock:
            self._subscribers.pop(key, None)
            if not self._subscribers and self._listener is not None:
                self._listener.stop()
                self._listener = None

    def _notify(self, topic: Topic) -> None:
        with self._lock:  # so that nobody is called once its subscription has ended
            for on_change in list(self._subscribers.values()):
                try:
                    on_change(topic)
                except Exception:
                    log.exception("a subscriber to changes of %s failed", self._place)


class _Listener(threading.Thread):
    """Listens until stopped. It connects again by itself, then notifies of every topic: one may have been missed."""

    def __init__(self, address: str, place: str, notify: Subscriber) -> None:
        super().__init__(name="paceline-notifications", daemon=True)
        self._address = address
        self._place = place
        self._notify = notify
        self._stopped = threading.Event()
        self._wakes, self._waker = socket.socketpair()
        self._is_reported = False

    def stop(self) -> None:
        """End soon, without waiting for it."""
        self._stopped.set()
        self._waker.close()  # the other end becomes readable

    def run(self) -> None:
        pause = FIRST_PAUSE
        with self._wakes:
            while not self._stopped.is_set():
                try:
                    with Connection.connect(self._address) as connection:
                        self._begin(connection)
                        pause = FIRST_PAUSE
                        self._listen(connection)
                except (psycopg.Error, OSError) as error:
                    self._report(error)
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _begin(self, connection: Connection) -> None:
        row = connection.execute(f"SELECT {_CHANNEL}").fetchone()
        assert row is not None
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(row[0])))
        if self._is_reported:
            self._is_reported = False
            log.info("%s announces changes again", self._place)
        for topic in TOPICS:
            self._notify(topic)

    def _listen(self, connection: Connection) -> None:
        """Notify of what is announced, until stopped or until the connection breaks, which raises."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakes, selectors.EVENT_READ)
            selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            while not self._stopped.is_set():
                connection.pgconn.consume_input()
                while (announced := connection.pgconn.notifies()) is not None:
                    self._receive(announced.extra.decode())
                selector.select()

    def _receive(self, payload: str) -> None:
        for topic in TOPICS:
            if payload == topic:
                self._notify(topic)
                return
        log.debug("%s announces %r, which only a newer Paceline knows", self._place, payload)

    def _report(self, error: Exception) -> None:
        """Log the outage once."""
        if self._is_reported or self._stopped.is_set():
            return
        self._is_reported = True
        log.warning(
            "%s announces no changes (%s): until it does, commands of other processes wait for the next heartbeat",
            self._place,
            first_line(error),
        )


# -- the store ---------------------------------------------------------------------------------------

# A statement over many given units finds each by its name, in the order they are given.
_GIVEN_KEY: Final = """(SELECT v.key FROM campaigns c JOIN units v ON v.campaign = c.number
    WHERE c.name = g.campaign AND v.name = g.name) AS key"""
# A row that another transaction has locked is skipped: a person who changes a unit with SQL holds up nobody else. Rows
# are locked before they are joined, and the units come back as they were.
_CLAIM: Final = f"""WITH bound AS MATERIALIZED (
        SELECT * FROM units WHERE state = 'todo' AND resume_at IS NULL AND conversation_id IS NOT NULL
            AND account = %(account)s AND key BETWEEN %(low)s AND %(high)s
        ORDER BY resume_cost, key LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), fresh AS MATERIALIZED (
        SELECT * FROM units WHERE state = 'todo' AND resume_at IS NULL AND conversation_id IS NULL
            AND key BETWEEN %(low)s AND %(high)s
        ORDER BY key LIMIT CASE WHEN %(only_bound)s THEN 0 ELSE %(limit)s - (SELECT count(*) FROM bound) END
        FOR UPDATE SKIP LOCKED
    ), named AS (
        SELECT *, row_number() OVER (ORDER BY turn, CASE turn WHEN 0 THEN resume_cost END, key) AS place
        FROM (SELECT *, 0 AS turn FROM bound UNION ALL SELECT *, 1 FROM fresh) AS chosen
    ), claimed AS (
        UPDATE units AS u SET state = 'running', attempts = u.attempts + 1, fence = u.fence + 1,
            account = %(account)s, attempt_id = (%(attempt_ids)s)[n.place], lease_until = %(lease_until)s,
            begun_at = CASE WHEN u.conversation_id IS NULL THEN %(now)s ELSE coalesce(u.begun_at, u.started_at) END,
            started_at = %(now)s, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = FALSE, denials = 0,
            warnings = NULL, phase = 'working'
        FROM named n WHERE n.key = u.key
    )
    SELECT {UNIT_AND_RESULT}, p.prompt FROM named u
    LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key ORDER BY u.place"""
_RECORD_OUTCOMES: Final = f"""WITH given AS MATERIALIZED (
        SELECT *, {_GIVEN_KEY} FROM unnest({{columns}}) WITH ORDINALITY AS g (state, failures, attempts, parks,
            windows_spent, refusals, losses, resume_at, reason, account, new_account, conversation_id, ended_at,
            exit_code, is_parked, denials, warnings, resume_cost, campaign, name, fence, body, checks, texts, place)
    ), recorded AS (
        UPDATE units AS u SET state = g.state, failures = g.failures, attempts = g.attempts, parks = g.parks,
            windows_spent = g.windows_spent, refusals = g.refusals, losses = g.losses, resume_at = g.resume_at,
            reason = g.reason, account = coalesce(g.account, u.account),
            conversation_id = CASE WHEN coalesce(g.new_account, u.account, '') <> '' THEN g.conversation_id END,
            ended_at = g.ended_at, exit_code = g.exit_code, is_parked = g.is_parked, denials = g.denials,
            warnings = g.warnings, resume_cost = g.resume_cost, lease_until = NULL, phase = NULL
        FROM given g WHERE u.key = g.key AND u.fence = g.fence AND u.state || '' = 'running'
        RETURNING u.key, g.place, g.body, g.checks, g.texts
    ), saved AS (
        INSERT INTO results (key, body, checks, texts)
        SELECT key, body, checks, texts FROM recorded WHERE body IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET body = excluded.body, checks = excluded.checks, texts = excluded.texts
    )
    SELECT place FROM recorded"""
_OUTCOME_COLUMNS: Final = (
    *(str, *[int] * 6, float, *[str] * 4),
    *(float, int, bool, int, str, int),
    *(str, str, int),
    *[str] * 3,
)
"""The types of the columns of `outcome_row` and `result_row`."""
_RECORD_GIVEN: Final = _RECORD_OUTCOMES.format(columns=", ".join(["%s"] * len(_OUTCOME_COLUMNS)))
_NO_RESULT: Final = (None, None, None)
_SAVE_PROGRESS: Final = """WITH saved AS (
        UPDATE units AS u SET phase = coalesce(%s, u.phase) FROM campaigns c
        WHERE c.name = %s AND u.campaign = c.number AND u.name = %s AND u.fence = %s AND u.state || '' = 'running'
        RETURNING u.key
    ), result AS (
        INSERT INTO results (key, body, checks, texts)
        SELECT key, %s::text, %s::text, %s::text FROM saved WHERE %s
        ON CONFLICT (key) DO UPDATE SET body = excluded.body, checks = excluded.checks, texts = excluded.texts
    )
    SELECT key FROM saved"""
_RENEW: Final = f"""WITH given AS MATERIALIZED (
        SELECT *, {_GIVEN_KEY} FROM unnest(%s, %s, %s) AS g (campaign, name, fence)
    )
    UPDATE units AS u SET lease_until = %s FROM given g
    WHERE u.key = g.key AND u.fence = g.fence AND u.state || '' = 'running' RETURNING g.campaign, g.name"""
_APPEND: Final = """WITH counter AS (UPDATE counters SET value = value + %s WHERE name = 'events' RETURNING value),
    appended AS (
        INSERT INTO events (id, unit, is_slot, body)
        SELECT counter.value - %s + e.place, e.unit, e.is_slot, e.body
        FROM counter, unnest(%s, %s, %s) WITH ORDINALITY AS e (unit, is_slot, body, place)
    ) SELECT value FROM counter"""

_SERVER_TIME: Final = "extract(epoch FROM clock_timestamp())::float8"
_LEASE_LEFT: Final = f"SELECT until - {_SERVER_TIME}, owner, oldest FROM leader, schema_version"
_TAKE_LEAD: Final = f"""UPDATE leader SET owner = %(owner)s, until = {_SERVER_TIME} + %(lease)s,
        epoch = epoch + CASE WHEN owner = %(owner)s THEN 0 ELSE 1 END
    WHERE owner IS NULL OR owner = %(owner)s OR until <= {_SERVER_TIME} RETURNING epoch"""

_COPY_UNITS: Final = "COPY units (key, campaign, name, cwd, output) FROM STDIN"
_COPY_PROMPTS: Final = "COPY prompts (key, prompt) FROM STDIN"
_NAME_LOCK: Final = "SELECT pg_try_advisory_xact_lock(20482, hashtext(current_schema() || '/' || %s))"
"""Of one campaign in one schema."""


class _ImportApart(PlanImport):
    """An import in one transaction on a connection of its own.

    So nothing is visible before the last step, other verbs continue meanwhile, and a killed import leaves nothing.
    """

    def steps(self, specs: Iterable[UnitSpec]) -> Generator[None, None, Added]:
        chunks = spec_chunks(specs)
        chunk: list[UnitSpec] = next(chunks, [])
        with self._database.apart() as connection:
            connection.execute(f"SELECT pg_advisory_xact_lock_shared({MIGRATION_LOCK})")
            row = connection.execute(_NAME_LOCK, (self.campaign.name,)).fetchone()
            if row is None or not row[0]:
                raise StoreBusy(f"another process is adding units to {self.campaign.name}; try again")
            self.begin(connection)
            while True:
                following = next(chunks, None)
                self.take(connection, chunk)
                if following is None:
                    self._database.lock_writers(connection)  # from here on as one writer among others
                    added = self.publish(connection)
                    if added.added or added.updated:
                        announce(connection, "commands")
                    return added
                chunk = following
                yield

    def reserve_number(self, connection: object) -> int:
        return int(
            self._database.write(COUNT_ON, (1, "campaigns")).rows[0][0]
        )  # else others would wait for this import

    def insert(self, connection: Any, keyed: list[tuple[int, UnitSpec]]) -> None:
        with connection.cursor() as cursor, cursor.copy(_COPY_UNITS) as copy:
            for key, spec in keyed:
                copy.write_row((key, self.number, spec.id, spec.cwd, spec.output))
        with connection.cursor() as cursor, cursor.copy(_COPY_PROMPTS) as copy:
            for key, spec in keyed:
                if spec.prompt:
                    copy.write_row((key, spec.prompt))


class PostgresStore(SqlStore):
    """The store in the database at `url`. Its tables are created if they do not exist."""

    is_shared = True

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = BUSY_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self._postgres = PostgresDatabase(
            url, busy_seconds=busy_seconds, answer_seconds=answer_seconds, migrations=migrations
        )
        super().__init__(self._postgres, _ImportApart)
        self._changes = PostgresNotifications(self._postgres.address, self._postgres.place)
        self._numbers: dict[str, int] = {}
        """The numbers of campaigns that were claimed from. No number is given twice."""

    def subscribe(self, on_change: Callable[[Topic], object]) -> Callable[[], None]:
        return self._changes.subscribe(on_change)

    def close(self) -> None:
        self._changes.close()
        super().close()

    def named(self, names: list[str]) -> tuple[str, tuple[object, ...]]:
        return "name = ANY(?)", (Column(str, names),)

    # -- units --------------------------------------------------------------------------------------

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
        values = {
            "account": account,
            "limit": limit,
            "attempt_ids": Column(str, attempt_ids),
            "lease_until": lease_until,
            "now": now,
            "only_bound": only_bound,
        }
        return [
            rules.claimed(self._unit(row[:-1], campaign, row[-1] or ""), account, attempt_id, lease_until, now)
            for row, attempt_id in zip(self._claim(campaign, values), attempt_ids, strict=False)
        ]

    def _claim(self, campaign: str, values: dict[str, Any]) -> list[Row]:
        """Claim units by the number of their campaign. A campaign that was deleted has no units under its number."""
        number = self._numbers.get(campaign)
        rows = [] if number is None else self._claim_from(number, values)
        if rows:
            return rows
        with self._postgres.query() as connection:
            found = find_number(connection, campaign)
        if found is None or found == number:
            return []
        self._numbers[campaign] = found
        return self._claim_from(found, values)

    def _claim_from(self, number: int, values: dict[str, Any]) -> list[Row]:
        low, high = campaign_span(number)
        return self._postgres.write(_CLAIM, {**values, "low": low, "high": high}).rows

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        if not records:
            return []
        addresses = [rules.split_unit_id(each.unit_id) for each in records]
        with self._postgres.writing() as connection:
            if len(set(addresses)) == len(records):
                return self._record_given(connection, records, addresses, now)
            pairs = zip(records, addresses, strict=True)  # the second outcome of a unit is judged after the first
            return [self._record_given(connection, [each], [address], now)[0] for each, address in pairs]

    def _record_given(
        self, connection: Connection, records: Sequence[OutcomeRecord], addresses: Sequence[tuple[str, str]], now: float
    ) -> list[bool]:
        rows = [
            outcome_row(record, address, now) + (_NO_RESULT if record.result is None else result_row(record.result))
            for record, address in zip(records, addresses, strict=True)
        ]
        columns = [Column(kind, column) for kind, column in zip(_OUTCOME_COLUMNS, zip(*rows, strict=True), strict=True)]
        recorded = {place for (place,) in connection.execute(_RECORD_GIVEN, columns).fetchall()}
        return [place in recorded or self._end_late(connection, record) for place, record in enumerate(records, 1)]

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        columns = result_row(result or UnitResult())
        values = (phase, *rules.split_unit_id(unit_id), fence, *columns, result is not None)
        return bool(self._postgres.write(_SAVE_PROGRESS, values).rows)

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        if not fences:
            return []
        campaigns, names = zip(*map(rules.split_unit_id, fences), strict=True)
        columns = (Column(str, campaigns), Column(str, names), Column(int, list(fences.values())))
        renewed = set(self._postgres.write(_RENEW, (*columns, lease_until)).rows)
        return [identifier for identifier in fences if rules.split_unit_id(identifier) not in renewed]

    # -- events -------------------------------------------------------------------------------------

    def append_events(self, events: Sequence[Event]) -> int:
        if not events or any(map(_is_command, events)):
            return super().append_events(events)
        return int(self._postgres.write(_APPEND, _event_columns(events)).rows[0][0])

    def insert_events(self, connection: Any, events: Sequence[Event]) -> int:
        row = connection.execute(_APPEND, _event_columns(events)).fetchone()
        if any(map(_is_command, events)):
            announce(connection, "commands")
        return int(row[0])

    # -- the lead -----------------------------------------------------------------------------------

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        """Take or keep the lead. The server measures the lease, because the clocks of engines may differ."""
        with self._postgres.writing() as connection:
            row = connection.execute(_TAKE_LEAD, {"owner": owner, "lease": until - now}).fetchone()
        if row is None:
            return False
        self._postgres.fence = Fence(owner, int(row[0]))
        return True

    def leader(self, *, now: float) -> LeadLease | None:
        with self._postgres.query() as connection:
            left, owner, oldest = connection.execute(_LEASE_LEFT).fetchone() or (0.0, None, 0)
        self._postgres.check_schema(oldest)  # here, because a process that stands by does not write
        return None if owner is None else LeadLease(owner, left)

    def resign(self, owner: str) -> None:
        fence = self._postgres.fence
        if fence is not None and fence.owner == owner:
            self._postgres.fence = None
        with self._postgres.writing() as connection:
            resigned = connection.execute("UPDATE leader SET owner = NULL, until = 0 WHERE owner = ?", (owner,))
            if resigned.rowcount:
                announce(connection, "leader")


def _is_command(event: Event) -> bool:
    """Return whether an engine should read the event at once."""
    return event.name.startswith(rules.COMMAND_EVENTS)


def _event_columns(events: Sequence[Event]) -> tuple[object, ...]:
    return (
        len(events),
        len(events),
        Column(str, [rules.storable_text(event.unit) for event in events]),
        Column(bool, [rules.is_slot_event(event) for event in events]),
        Column(str, [encode_event(event) for event in events]),
    )
