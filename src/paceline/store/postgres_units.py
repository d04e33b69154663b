"""Units in a PostgreSQL database: claims, outcomes, leases, parking and pages.

Statements and nothing else: which unit may run, and what becomes of it, comes from the core. Verbs over many units
are one statement over arrays, because each statement is a trip to the server.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from paceline.core.unit_lifecycle import UnitState
from paceline.store import rules
from paceline.store.interface import OutcomeRecord, Page, Phase, Unit
from paceline.store.postgres_connection import Connection, Row
from paceline.store.postgres_database import PostgresDatabase
from paceline.store.postgres_keys import GIVEN_KEY, find_number, known_number
from paceline.store.postgres_values import BigintArray, BooleanArray, FloatArray, TextArray
from paceline.store.rows import RESULT_COLUMNS, is_stored_already, outcome_row, result_from, result_row, unit_from
from paceline.store.rules import ALL_KEYS, Span, campaign_span
from paceline.store.stopped_units import StoppedUnits
from paceline.store.unit_result import UnitResult

UNIT_COLUMNS: Final = (
    "u.key, u.name, u.cwd, u.output, u.state,"
    " u.failures, u.attempts, u.parks, u.windows_spent, u.refusals, u.losses,"
    " u.resume_at, u.reason, u.account, u.conversation_id, u.attempt_id, u.fence,"
    " u.lease_until, u.started_at, u.ended_at, u.exit_code,"
    " u.begun_at, u.is_parked, u.denials, u.warnings, u.phase, u.resume_cost"
)
_NO_RESULT: Final = (None, None, None)
WHOLE_RESULT: Final = "r.body, r.checks, r.texts"
BRIEF_RESULT: Final = "r.body, r.checks, NULL"
"""The result without its long texts."""

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
    SELECT {UNIT_COLUMNS}, {WHOLE_RESULT}, p.prompt FROM named u
    LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key ORDER BY u.place"""
_RECORD_OUTCOMES: Final = """WITH given AS MATERIALIZED (
        SELECT *, {key} FROM unnest({columns}) WITH ORDINALITY AS g (state, failures, attempts, parks, windows_spent,
            refusals, losses, resume_at, reason, account, new_account, conversation_id, ended_at, exit_code, is_parked,
            denials, warnings, resume_cost, campaign, name, fence, body, checks, texts, place)
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
    *(TextArray, *[BigintArray] * 6, FloatArray, TextArray, TextArray, TextArray, TextArray),
    *(FloatArray, BigintArray, BooleanArray, BigintArray, TextArray, BigintArray),
    *(TextArray, TextArray, BigintArray),
    *[TextArray] * 3,
)
"""The types of the columns of `outcome_row` and `result_row`."""
_RECORDED_OUTCOME: Final = """SELECT fence, state, failures, attempts, parks, windows_spent, refusals, losses
    FROM units u JOIN campaigns c ON c.number = u.campaign WHERE c.name = %s AND u.name = %s"""
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
        SELECT *, {GIVEN_KEY} FROM unnest(%s, %s, %s) AS g (campaign, name, fence)
    )
    UPDATE units AS u SET lease_until = %s FROM given g
    WHERE u.key = g.key AND u.fence = g.fence AND u.state || '' = 'running' RETURNING g.campaign, g.name"""
_BOUND: Final = """SELECT name FROM units WHERE state = 'todo' AND resume_at IS NULL AND conversation_id IS NOT NULL
    AND account = %s AND key BETWEEN %s AND %s ORDER BY resume_cost, key LIMIT %s"""
_WAKE_DUE: Final = """UPDATE units SET resume_at = NULL, is_parked = FALSE WHERE key IN (
    SELECT key FROM units WHERE state = 'todo' AND resume_at IS NOT NULL AND resume_at <= %s
    ORDER BY resume_at, key LIMIT %s)"""
_WAKE_ACCOUNT: Final = """UPDATE units SET resume_at = NULL, is_parked = FALSE WHERE key IN (
    SELECT key FROM units WHERE state = 'todo' AND resume_at IS NOT NULL AND is_parked AND account = %s
        AND key BETWEEN %s AND %s ORDER BY resume_at, key LIMIT %s)"""
_RENAME_ACCOUNT: Final = "UPDATE units SET account = %s WHERE key BETWEEN %s AND %s AND account = %s"
_SHORTEN: Final = """UPDATE units SET resume_at = %s + resume_at - ended_at, ended_at = %s
    WHERE state = 'todo' AND resume_at IS NOT NULL AND NOT is_parked AND ended_at > %s"""
_HASTEN: Final = f"""WITH given AS MATERIALIZED (
        SELECT *, {GIVEN_KEY} FROM unnest(%s, %s, %s) AS g (campaign, name, resume_at)
    )
    UPDATE units AS u SET resume_at = g.resume_at FROM given g
    WHERE u.key = g.key AND u.state || '' = 'todo' AND u.resume_at > g.resume_at"""
_STOPPED: Final = """SELECT c.name, u.state, u.reason, count(*), (array_agg(u.name ORDER BY u.key))[1]
    FROM units u JOIN campaigns c ON c.number = u.campaign
    WHERE u.state IN ('held', 'quarantined', 'unverified')
    GROUP BY c.name, u.state, u.reason ORDER BY count(*) DESC, min(u.key) LIMIT %s"""


class PostgresUnits:
    """The units of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._numbers: dict[str, int] = {}
        """The numbers of campaigns that units were claimed from. No number is ever used again."""

    # -- their life cycle ---------------------------------------------------------------------------

    def claim(
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
        values: dict[str, Any] = {"account": account, "limit": limit, "now": now, "only_bound": only_bound}
        values |= {"attempt_ids": TextArray(attempt_ids), "lease_until": lease_until}
        rows = self._claim(campaign, values)
        return [
            rules.claimed(_unit(row[:-1], campaign, row[-1] or ""), account, attempt_id, lease_until, now)
            for row, attempt_id in zip(rows, attempt_ids, strict=False)
        ]

    def _claim(self, campaign: str, values: dict[str, Any]) -> list[Row]:
        """Claim units by the number of their campaign. A campaign that was deleted has no units under its number."""
        number = self._numbers.get(campaign)
        rows = [] if number is None else self._claim_from(number, values)
        if rows:
            return rows
        with self._database.query() as connection:
            found = find_number(connection, campaign)
        if found is None or found == number:
            return []
        self._numbers[campaign] = found
        return self._claim_from(found, values)

    def _claim_from(self, number: int, values: dict[str, Any]) -> list[Row]:
        low, high = campaign_span(number)
        return self._database.write_at_once(_CLAIM, {**values, "low": low, "high": high})

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        if not records:
            return []
        addresses = [rules.split_unit_id(each.unit_id) for each in records]
        with self._database.writing() as connection:
            if len(set(addresses)) == len(records):
                return _record_outcomes(connection, records, addresses, now)
            pairs = zip(records, addresses, strict=True)  # the second outcome of a unit is judged after the first
            return [_record_outcomes(connection, [each], [address], now)[0] for each, address in pairs]

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        columns = result_row(result or UnitResult())
        values = (phase, *rules.split_unit_id(unit_id), fence, *columns, result is not None)
        return bool(self._database.write_at_once(_SAVE_PROGRESS, values))

    def renew(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        if not fences:
            return []
        campaigns, names = zip(*map(rules.split_unit_id, fences), strict=True)
        columns = (TextArray(campaigns), TextArray(names), BigintArray(fences.values()))
        renewed = set(self._database.write_at_once(_RENEW, (*columns, lease_until)))
        return [identifier for identifier in fences if rules.split_unit_id(identifier) not in renewed]

    def wake(self, *, now: float, limit: int) -> int:
        rules.check_page_size(limit)
        first = self.next_resume_at()
        if first is None or first > now:  # the usual case at every pass: it needs no lock for writing
            return 0
        with self._database.writing() as connection:
            return connection.execute(_WAKE_DUE, (now, limit)).rowcount

    def wake_account(self, account: str, *, limit: int, campaign: str | None = None) -> int:
        rules.check_page_size(limit)
        with self._database.writing() as connection:
            span = ALL_KEYS if campaign is None else campaign_span(known_number(connection, campaign))
            return connection.execute(_WAKE_ACCOUNT, (account, *span, limit)).rowcount

    def rename_account(self, campaign: str, before: str, after: str) -> int:
        with self._database.writing() as connection:
            span = campaign_span(known_number(connection, campaign))
            connection.allow_slow_statements()
            return connection.execute(_RENAME_ACCOUNT, (after, *span, before)).rowcount

    def shorten_backoffs(self, *, now: float) -> int:
        with self._database.writing() as connection:
            connection.allow_slow_statements()
            return connection.execute(_SHORTEN, (now, now, now)).rowcount

    def hasten(self, resume_times: Mapping[str, float]) -> None:
        if not resume_times:
            return
        campaigns, names = zip(*map(rules.split_unit_id, resume_times), strict=True)
        columns = (TextArray(campaigns), TextArray(names), FloatArray(resume_times.values()))
        with self._database.writing() as connection:
            connection.execute(_HASTEN, columns)

    # -- reading ------------------------------------------------------------------------------------

    def find(self, unit_id: str) -> Unit | None:
        campaign, name = rules.split_unit_id(unit_id)
        with self._database.query() as connection:
            row = connection.execute(
                f"""SELECT {UNIT_COLUMNS}, {WHOLE_RESULT}, p.prompt FROM campaigns c
                    JOIN units u ON u.campaign = c.number AND u.name = %s
                    LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key WHERE c.name = %s""",
                (name, campaign),
            ).fetchone()
        return None if row is None else _unit(row[:-1], campaign, row[-1] or "")

    def page(self, campaign: str | None, state: UnitState | None, limit: int, cursor: str | None) -> Page:
        rules.check_page_size(limit)
        after = rules.key_after(cursor)
        with self._database.reading() as connection:
            low, high = ALL_KEYS if campaign is None else campaign_span(known_number(connection, campaign))
            rows = _select(connection, BRIEF_RESULT, state, (max(low, after + 1), high), limit + 1)
        units = [_unit(row[:-1], row[-1]) for row in rows[:limit]]
        return Page(units=tuple(units), cursor=str(rows[limit - 1][0]) if len(rows) > limit else None)

    def running(self) -> list[Unit]:
        with self._database.query() as connection:
            rows = _select(connection, WHOLE_RESULT, "running", ALL_KEYS, None)
        return [_unit(row[:-1], row[-1]) for row in rows]

    def next_resume_at(self) -> float | None:
        with self._database.query() as connection:
            row = connection.execute(
                """SELECT resume_at FROM units WHERE state = 'todo' AND resume_at IS NOT NULL
                    ORDER BY resume_at, key LIMIT 1"""
            ).fetchone()
        return None if row is None else float(row[0])

    def stopped(self, *, limit: int) -> list[StoppedUnits]:
        rules.check_page_size(limit)
        with self._database.query() as connection:
            rows = connection.execute(_STOPPED, (limit,)).fetchall()
        return [rules.stopped_group(*row) for row in rows]

    def claimable(self) -> dict[tuple[str, str | None], int]:
        with self._database.query() as connection:
            rows = connection.execute(
                """SELECT c.name, t.account, t.units FROM tallies t JOIN campaigns c ON c.number = t.campaign
                    WHERE t.phase = 'todo' AND t.units > 0 ORDER BY t.campaign, t.account"""
            ).fetchall()
        return {(campaign, account or None): units for campaign, account, units in rows}

    def bound(self, campaign: str, account: str, *, limit: int) -> list[str]:
        rules.check_page_size(limit)
        with self._database.query() as connection:
            number = find_number(connection, campaign)
            if number is None:
                return []
            rows = connection.execute(_BOUND, (account, *campaign_span(number), limit)).fetchall()
        return [rules.unit_id(campaign, name) for (name,) in rows]


def _unit(row: Row, campaign: str, prompt: str = "") -> Unit:
    """Return the unit of a row that ends with its result."""
    columns, (body, checks, texts) = row[:-RESULT_COLUMNS], row[-RESULT_COLUMNS:]
    result = UnitResult() if body is None else result_from(body, checks, texts)
    return unit_from(columns, campaign, prompt, result or UnitResult())


def _record_outcomes(
    connection: Connection, records: Sequence[OutcomeRecord], addresses: Sequence[tuple[str, str]], now: float
) -> list[bool]:
    rows = [
        outcome_row(record, address, now) + (_NO_RESULT if record.result is None else result_row(record.result))
        for record, address in zip(records, addresses, strict=True)
    ]
    columns = [kind(column) for kind, column in zip(_OUTCOME_COLUMNS, zip(*rows, strict=True), strict=True)]
    statement = _RECORD_OUTCOMES.format(key=GIVEN_KEY, columns=", ".join(["%s"] * len(columns)))
    recorded = {place for (place,) in connection.execute(statement, columns).fetchall()}
    return [
        place in recorded or _is_recorded_already(connection, record, address)
        for place, (record, address) in enumerate(zip(records, addresses, strict=True), 1)
    ]


def _is_recorded_already(connection: Connection, record: OutcomeRecord, address: tuple[str, str]) -> bool:
    stored = connection.execute(_RECORDED_OUTCOME, address).fetchone()
    return stored is not None and is_stored_already(stored, record)


def _select(connection: Connection, result: str, state: UnitState | None, span: Span, limit: int | None) -> list[Row]:
    """Return rows with the names of their campaigns, in the order of their keys."""
    of_state, parameters = ("", ()) if state is None else ("u.state = %s AND", (state,))
    return connection.execute(
        f"""SELECT {UNIT_COLUMNS}, {result}, c.name FROM units u JOIN campaigns c ON c.number = u.campaign
            LEFT JOIN results r ON r.key = u.key
            WHERE {of_state} u.key BETWEEN %s AND %s ORDER BY u.key LIMIT %s""",
        (*parameters, *span, limit),
    ).fetchall()
