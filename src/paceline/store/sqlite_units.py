"""Units in a SQLite file: claims, outcomes, leases, parking and pages.

Statements and nothing else: which unit may run, and what becomes of it, comes from the core.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from paceline.core.unit_lifecycle import UnitState
from paceline.store import rules
from paceline.store.damage_report import DamageReport
from paceline.store.interface import OutcomeRecord, Page, Phase, Unit
from paceline.store.rows import (
    BRIEF_RESULT,
    RESULT_COLUMNS,
    UNIT_COLUMNS,
    WHOLE_RESULT,
    Row,
    is_stored_already,
    outcome_row,
    result_from,
    result_row,
    unit_from,
)
from paceline.store.rules import ALL_KEYS, Span, campaign_span
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_keys import (
    IS_VISIBLE,
    campaign_names,
    campaign_numbers,
    find_number,
    known_number,
    unit_address,
    visible_span,
    visible_spans,
)
from paceline.store.stopped_units import StoppedUnits
from paceline.store.unit_result import UnitResult

_CLAIM_BOUND: Final = f"""SELECT {UNIT_COLUMNS}, {WHOLE_RESULT}, p.prompt FROM units u INDEXED BY claimable_on_account
    LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key
    WHERE u.state = 'todo' AND u.resume_at IS NULL AND u.session_id IS NOT NULL
        AND u.account = ? AND u.key BETWEEN ? AND ? ORDER BY u.resume_cost, u.key LIMIT ?"""
_CLAIM_FRESH: Final = f"""SELECT {UNIT_COLUMNS}, {WHOLE_RESULT}, p.prompt FROM units u INDEXED BY claimable_afresh
    LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key
    WHERE u.state = 'todo' AND u.resume_at IS NULL AND u.session_id IS NULL
        AND u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?"""
_BOUND: Final = """SELECT name FROM units INDEXED BY claimable_on_account
    WHERE state = 'todo' AND resume_at IS NULL AND session_id IS NOT NULL
        AND account = ? AND key BETWEEN ? AND ? ORDER BY resume_cost, key LIMIT ?"""
_CLAIM: Final = """UPDATE units SET state = 'running', tries = tries + 1, fence = fence + 1, account = ?, attempt = ?,
    lease_until = ?, begun_at = CASE WHEN session_id IS NULL THEN ? ELSE coalesce(begun_at, started_at) END,
    started_at = ?, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = 0, denials = 0, warnings = NULL,
    phase = 'working' WHERE key = ?"""
_RECORD_OUTCOME: Final = """UPDATE units SET state = ?, attempts = ?, tries = ?, parks = ?, windows_spent = ?,
    refusals = ?, losses = ?, resume_at = ?, reason = ?, account = coalesce(?, account),
    session_id = CASE WHEN coalesce(?, account, '') <> '' THEN ? END, ended_at = ?, exit_code = ?, is_parked = ?,
    denials = ?, warnings = ?, resume_cost = ?, lease_until = NULL, phase = NULL
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_RECORDED_OUTCOME: Final = """SELECT fence, state, attempts, tries, parks, windows_spent, refusals, losses
    FROM units WHERE campaign = ? AND name = ?"""
_SAVE_PHASE: Final = """UPDATE units SET phase = coalesce(?, phase)
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_SAVE_RESULT: Final = """INSERT INTO results SELECT key, ?, ?, ? FROM units WHERE campaign = ? AND name = ?
    ON CONFLICT DO UPDATE SET body = excluded.body, checks = excluded.checks, texts = excluded.texts"""
_RENEW: Final = """UPDATE units SET lease_until = ?
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_DUE: Final = """SELECT key FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND resume_at <= ? ORDER BY resume_at, key LIMIT ?"""
_PARKED_ON: Final = """SELECT key FROM units INDEXED BY parked
    WHERE state = 'todo' AND resume_at IS NOT NULL AND is_parked AND account = ? AND key BETWEEN ? AND ?
    ORDER BY resume_at, key LIMIT ?"""
_ON_ACCOUNT: Final = "SELECT 1 FROM units WHERE key BETWEEN ? AND ? AND account = ? LIMIT 1"
_RENAME_ACCOUNT: Final = "UPDATE units SET account = ? WHERE key BETWEEN ? AND ? AND account = ?"
_WAKE: Final = "UPDATE units SET resume_at = NULL, is_parked = 0 WHERE key = ?"
_SHORTEN: Final = """UPDATE units INDEXED BY parked SET resume_at = ? + resume_at - ended_at, ended_at = ?
    WHERE state = 'todo' AND resume_at IS NOT NULL AND NOT is_parked AND ended_at > ?"""
_HASTEN: Final = f"""UPDATE units AS u SET resume_at = ?
    WHERE campaign = ? AND name = ? AND state = 'todo' AND resume_at > ? AND {IS_VISIBLE}"""
_STOPPED: Final = """SELECT c.name, u.state, u.reason, count(*), min(u.key), u.name
    FROM units u INDEXED BY units_by_state JOIN campaigns c ON c.number = u.campaign
    WHERE u.state IN ('held', 'quarantined', 'unverified')
    GROUP BY u.campaign, u.state, u.reason ORDER BY 4 DESC, 5 LIMIT ?"""
"""SQLite takes the name from the row with the least key."""


class SqliteUnits:
    """The units of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._damage = DamageReport(file.path)

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
        with self._file.writing() as connection:
            number = find_number(connection, campaign)
            if number is None:
                return []
            span = visible_span(connection, number)
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
        with self._file.writing() as connection:
            numbers = campaign_numbers(connection, (each.unit_id for each in records))
            addresses = [unit_address(numbers, each.unit_id) for each in records]
            results: list[Row] = []
            are_stored: list[bool] = []
            for record, address in zip(records, addresses, strict=True):
                is_new = connection.execute(_RECORD_OUTCOME, outcome_row(record, address, now)).rowcount > 0
                are_stored.append(is_new or _is_repetition(connection, address, record))
                if is_new and record.result is not None:
                    results.append((*result_row(record.result), *address))
            connection.executemany(_SAVE_RESULT, results)
        return are_stored

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        with self._file.writing() as connection:
            address = unit_address(campaign_numbers(connection, [unit_id]), unit_id)
            is_current = bool(connection.execute(_SAVE_PHASE, (phase, *address, fence)).rowcount)
            if is_current and result is not None:
                connection.execute(_SAVE_RESULT, (*result_row(result), *address))
        return is_current

    def renew(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        if not fences:
            return []
        with self._file.writing() as connection:
            numbers = campaign_numbers(connection, fences)
            return [
                identifier
                for identifier, fence in fences.items()
                if not connection.execute(_RENEW, (lease_until, *unit_address(numbers, identifier), fence)).rowcount
            ]

    def wake(self, *, now: float, limit: int) -> int:
        rules.check_page_size(limit)
        first = self.next_resume_at()
        if first is None or first > now:  # the usual case at every pass: it needs no lock for writing
            return 0
        with self._file.writing() as connection:
            due = connection.execute(_DUE, (now, limit)).fetchall()
            connection.executemany(_WAKE, due)
        return len(due)

    def wake_account(self, account: str, *, limit: int, campaign: str | None = None) -> int:
        rules.check_page_size(limit)
        with self._file.writing() as connection:
            span = ALL_KEYS if campaign is None else campaign_span(known_number(connection, campaign))
            parked = connection.execute(_PARKED_ON, (account, *span, limit)).fetchall()
            connection.executemany(_WAKE, parked)
        return len(parked)

    def rename_account(self, campaign: str, before: str, after: str) -> int:
        with self._file.reading() as connection:
            span = campaign_span(known_number(connection, campaign))
            is_known = connection.execute(_ON_ACCOUNT, (*span, before)).fetchone() is not None
        if not is_known:  # the usual case at every start: it needs no lock for writing
            return 0
        with self._file.writing() as connection:
            return connection.execute(_RENAME_ACCOUNT, (after, *span, before)).rowcount

    def shorten_backoffs(self, *, now: float) -> int:
        with self._file.writing() as connection:
            return connection.execute(_SHORTEN, (now, now, now)).rowcount

    def hasten(self, resume_times: Mapping[str, float]) -> None:
        with self._file.writing() as connection:
            numbers = campaign_numbers(connection, resume_times)
            for unit_id, resume_at in resume_times.items():
                connection.execute(_HASTEN, (resume_at, *unit_address(numbers, unit_id), resume_at))

    # -- reading ------------------------------------------------------------------------------------

    def find(self, unit_id: str) -> Unit | None:
        campaign, name = rules.split_unit_id(unit_id)
        with self._file.reading() as connection:
            row = connection.execute(
                f"""SELECT {UNIT_COLUMNS}, {WHOLE_RESULT}, p.prompt FROM units u
                    LEFT JOIN prompts p ON p.key = u.key LEFT JOIN results r ON r.key = u.key
                    WHERE u.campaign = ? AND u.name = ? AND {IS_VISIBLE}""",
                (find_number(connection, campaign), name),
            ).fetchone()
        return None if row is None else self._unit(row[:-1], campaign, row[-1] or "")

    def page(self, campaign: str | None, state: UnitState | None, limit: int, cursor: str | None) -> Page:
        rules.check_page_size(limit)
        after = rules.key_after(cursor)
        with self._file.reading() as connection:
            low, high = ALL_KEYS if campaign is None else campaign_span(known_number(connection, campaign))
            names = campaign_names(connection)
            rows: list[Row] = []
            for first, last in visible_spans(connection, max(low, after + 1), high):
                rows += _select(connection, BRIEF_RESULT, state, (first, last), limit + 1 - len(rows))
        units = [self._unit(row, names[rules.number_of(row[0])]) for row in rows[:limit]]
        return Page(units=tuple(units), cursor=str(rows[limit - 1][0]) if len(rows) > limit else None)

    def running(self) -> list[Unit]:
        with self._file.reading() as connection:
            names = campaign_names(connection)
            rows = _select(connection, WHOLE_RESULT, "running", ALL_KEYS, -1)
        return [self._unit(row, names[rules.number_of(row[0])]) for row in rows]

    def next_resume_at(self) -> float | None:
        with self._file.reading() as connection:
            row = connection.execute(
                """SELECT min(resume_at) FROM units INDEXED BY parked
                    WHERE state = 'todo' AND resume_at IS NOT NULL"""
            ).fetchone()
        return None if row[0] is None else float(row[0])

    def stopped(self, *, limit: int) -> list[StoppedUnits]:
        rules.check_page_size(limit)
        with self._file.reading() as connection:
            rows = connection.execute(_STOPPED, (limit,)).fetchall()
        return [
            rules.stopped_group(campaign, state, reason, units, name)
            for campaign, state, reason, units, _, name in rows
        ]

    def claimable(self) -> dict[tuple[str, str | None], int]:
        with self._file.reading() as connection:
            rows = connection.execute(
                """SELECT c.name, t.account, t.units
                    FROM tallies t INDEXED BY tallies_claimable CROSS JOIN campaigns c ON c.number = t.campaign
                    WHERE t.phase = 'todo' AND t.units > 0"""
            ).fetchall()
        return {(campaign, account or None): units for campaign, account, units in rows}

    def bound(self, campaign: str, account: str, *, limit: int) -> list[str]:
        rules.check_page_size(limit)
        with self._file.reading() as connection:
            number = find_number(connection, campaign)
            if number is None:
                return []
            rows = connection.execute(_BOUND, (account, *visible_span(connection, number), limit)).fetchall()
        return [rules.unit_id(campaign, name) for (name,) in rows]

    def _unit(self, row: Row, campaign: str, prompt: str = "") -> Unit:
        """Return the unit of a row that ends with its result. A damaged result is logged once and left out."""
        columns, stored = row[:-RESULT_COLUMNS], row[-RESULT_COLUMNS:]
        result = UnitResult() if stored[0] is None else result_from(*stored)
        if result is None:
            self._damage.report("result", row[0])
        return unit_from(columns, campaign, prompt, result or UnitResult())


def _is_repetition(connection: sqlite3.Connection, address: tuple[int | None, str], record: OutcomeRecord) -> bool:
    row = connection.execute(_RECORDED_OUTCOME, address).fetchone()
    return row is not None and is_stored_already(row, record)


def _select(connection: sqlite3.Connection, result: str, state: UnitState | None, span: Span, limit: int) -> list[Row]:
    """Return rows in the order of their keys. With a state, the index of states finds them."""
    of_state, parameters = ("", ()) if state is None else ("u.state = ? AND", (state,))
    return connection.execute(
        f"""SELECT {UNIT_COLUMNS}, {result} FROM units u LEFT JOIN results r ON r.key = u.key
            WHERE {of_state} u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?""",
        (*parameters, *span, limit),
    ).fetchall()
