"""Units in a SQLite file: claims, outcomes, leases, parking and pages.

Statements and nothing else: which unit may run, and what becomes of it, comes from the core.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from paceline.core.unit_lifecycle import UnitState
from paceline.errors import UnknownName
from paceline.store import rules
from paceline.store.interface import OutcomeRecord, Page, Unit
from paceline.store.rows import UNIT_COLUMNS, Row, is_stored_already, outcome_row, unit_from
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_keys import (
    ALL_KEYS,
    IS_VISIBLE,
    Span,
    campaign_names,
    campaign_numbers,
    campaign_span,
    find_number,
    known_number,
    unit_address,
    visible_span,
    visible_spans,
)

_CLAIM_BOUND: Final = f"""SELECT {UNIT_COLUMNS}, p.prompt
    FROM units u INDEXED BY claimable_on_account LEFT JOIN prompts p ON p.key = u.key
    WHERE u.state = 'todo' AND u.resume_at IS NULL AND u.session_id IS NOT NULL
        AND u.account = ? AND u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?"""
_CLAIM_FRESH: Final = f"""SELECT {UNIT_COLUMNS}, p.prompt
    FROM units u INDEXED BY claimable_afresh LEFT JOIN prompts p ON p.key = u.key
    WHERE u.state = 'todo' AND u.resume_at IS NULL AND u.session_id IS NULL
        AND u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?"""
_CLAIM: Final = """UPDATE units SET state = 'running', tries = tries + 1, fence = fence + 1, account = ?, attempt = ?,
    lease_until = ?, begun_at = CASE WHEN session_id IS NULL THEN ? ELSE coalesce(begun_at, started_at) END,
    started_at = ?, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = 0, denials = 0, warnings = NULL
    WHERE key = ?"""
_RECORD_OUTCOME: Final = """UPDATE units SET state = ?, attempts = ?, tries = ?, parks = ?, windows_spent = ?,
    refusals = ?, losses = ?, resume_at = ?, reason = ?, account = coalesce(?, account),
    session_id = CASE WHEN coalesce(?, account, '') <> '' THEN ? END, ended_at = ?, exit_code = ?, is_parked = ?,
    denials = ?, warnings = ?, lease_until = NULL
    WHERE campaign = ? AND name = ? AND state = 'running' AND fence = ?"""
_RECORDED_OUTCOME: Final = """SELECT fence, state, attempts, tries, parks, windows_spent, refusals, losses
    FROM units WHERE campaign = ? AND name = ?"""
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
_SHORTEN: Final = """UPDATE units SET resume_at = ? + resume_at - ended_at, ended_at = ?
    WHERE state = 'todo' AND resume_at IS NOT NULL AND NOT is_parked AND ended_at > ?"""
_HASTEN: Final = f"""UPDATE units AS u SET resume_at = ?
    WHERE campaign = ? AND name = ? AND state = 'todo' AND resume_at > ? AND {IS_VISIBLE}"""
_HOLD: Final = f"""UPDATE units AS u SET state = 'held', reason = ?, resume_at = NULL, ended_at = ?
    WHERE campaign = ? AND name = ? AND state = 'todo' AND {IS_VISIBLE}"""
READY_AGAIN: Final = """state = 'todo', attempts = 0, tries = 0, parks = 0, windows_spent = 0, refusals = 0,
    losses = 0, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = 0, denials = 0, warnings = NULL"""
"""The assignments that let a unit begin again with its counters at zero."""
_RETRY: Final = f"""UPDATE units SET {READY_AGAIN}
    WHERE key BETWEEN ? AND ? AND state IN ('held', 'quarantined')"""
_REVIVE: Final = f"""UPDATE units SET {READY_AGAIN}, resume_at = ?
    WHERE key BETWEEN ? AND ? AND state = 'cancelled'"""
_CANCEL: Final = """UPDATE units SET state = 'cancelled', resume_at = NULL, lease_until = NULL, ended_at = ?
    WHERE key BETWEEN ? AND ? AND state NOT IN ('done', 'cancelled')"""


class SqliteUnits:
    """The units of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

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
            rules.claimed(unit_from(row[:-1], campaign, row[-1] or ""), account, attempt_id, lease_until, now)
            for row, attempt_id in named
        ]

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        if not records:
            return []
        with self._file.writing() as connection:
            numbers = campaign_numbers(connection, (each.unit_id for each in records))
            return [_record_outcome(connection, numbers, each, now) for each in records]

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

    def hold(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        with self._file.writing() as connection:
            numbers = campaign_numbers(connection, unit_ids)
            text = rules.storable_text(reason)
            return sum(
                connection.execute(_HOLD, (text, now, *unit_address(numbers, identifier))).rowcount
                for identifier in unit_ids
            )

    def retry(self, campaign: str, unit_ids: Sequence[str] | None) -> int:
        with self._file.writing() as connection:
            spans = _chosen_spans(connection, campaign, unit_ids)
            return sum(connection.execute(_RETRY, span).rowcount for span in spans)

    def revive(self, campaign: str, unit_ids: Sequence[str] | None, *, resume_at: float) -> int:
        with self._file.writing() as connection:
            spans = _chosen_spans(connection, campaign, unit_ids)
            return sum(connection.execute(_REVIVE, (resume_at, *span)).rowcount for span in spans)

    def cancel(self, campaign: str, unit_ids: Sequence[str] | None, *, now: float) -> list[str]:
        running: list[tuple[str]] = []
        with self._file.writing() as connection:
            for span in _chosen_spans(connection, campaign, unit_ids):
                running += connection.execute(
                    "SELECT name FROM units WHERE state = 'running' AND key BETWEEN ? AND ? ORDER BY key", span
                )
                connection.execute(_CANCEL, (now, *span))
        return [rules.unit_id(campaign, name) for (name,) in running]

    def forget_conversation(self, unit_id: str) -> None:
        with self._file.writing() as connection:
            if not connection.execute(
                f"""UPDATE units AS u SET session_id = NULL, is_parked = 0,
                    resume_at = CASE WHEN is_parked THEN NULL ELSE resume_at END
                    WHERE campaign = ? AND name = ? AND {IS_VISIBLE}""",
                unit_address(campaign_numbers(connection, [unit_id]), unit_id),
            ).rowcount:
                raise UnknownName(f"there is no unit {unit_id!r}")

    # -- reading ------------------------------------------------------------------------------------

    def find(self, unit_id: str) -> Unit | None:
        campaign, name = rules.split_unit_id(unit_id)
        with self._file.reading() as connection:
            row = connection.execute(
                f"""SELECT {UNIT_COLUMNS}, p.prompt FROM units u LEFT JOIN prompts p ON p.key = u.key
                    WHERE u.campaign = ? AND u.name = ? AND {IS_VISIBLE}""",
                (find_number(connection, campaign), name),
            ).fetchone()
        return None if row is None else unit_from(row[:-1], campaign, row[-1] or "")

    def page(self, campaign: str | None, state: UnitState | None, limit: int, cursor: str | None) -> Page:
        rules.check_page_size(limit)
        after = rules.key_after(cursor)
        with self._file.reading() as connection:
            low, high = ALL_KEYS if campaign is None else campaign_span(known_number(connection, campaign))
            names = campaign_names(connection)
            rows: list[Row] = []
            for first, last in visible_spans(connection, max(low, after + 1), high):
                rows += _select(connection, state, first, last, limit + 1 - len(rows))
        units = [_unit_without_prompt(row, names) for row in rows[:limit]]
        return Page(units=tuple(units), cursor=str(rows[limit - 1][0]) if len(rows) > limit else None)

    def running(self) -> list[Unit]:
        with self._file.reading() as connection:
            names = campaign_names(connection)
            rows = _select(connection, "running", *ALL_KEYS, -1)
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
                """SELECT c.name, t.account, t.units
                    FROM tallies t INDEXED BY tallies_claimable CROSS JOIN campaigns c ON c.number = t.campaign
                    WHERE t.phase = 'todo' AND t.units > 0"""
            ).fetchall()
        return {(campaign, account or None): units for campaign, account, units in rows}


def _record_outcome(connection: sqlite3.Connection, numbers: dict[str, int], record: OutcomeRecord, now: float) -> bool:
    address = unit_address(numbers, record.unit_id)
    if connection.execute(_RECORD_OUTCOME, outcome_row(record, address, now)).rowcount:
        return True
    row = connection.execute(_RECORDED_OUTCOME, address).fetchone()
    return row is not None and is_stored_already(row, record)


def _select(connection: sqlite3.Connection, state: UnitState | None, low: int, high: int, limit: int) -> list[Row]:
    """Return rows in the order of their keys. With a state, the index of states finds them."""
    of_state, parameters = ("", ()) if state is None else ("u.state = ? AND", (state,))
    return connection.execute(
        f"SELECT {UNIT_COLUMNS} FROM units u WHERE {of_state} u.key BETWEEN ? AND ? ORDER BY u.key LIMIT ?",
        (*parameters, low, high, limit),
    ).fetchall()


def _unit_without_prompt(row: Row, names: dict[int, str]) -> Unit:
    return unit_from(row, names[rules.number_of(row[0])], "")


def _chosen_spans(connection: sqlite3.Connection, campaign: str, unit_ids: Sequence[str] | None) -> list[Span]:
    """Return the keys of the chosen units, or of all units of the campaign, as spans in order."""
    number = known_number(connection, campaign)
    span = visible_span(connection, number)
    if unit_ids is None:
        return [span]
    names = [name for owner, name in map(rules.split_unit_id, unit_ids) if owner == campaign]
    found = (
        connection.execute("SELECT key FROM units WHERE campaign = ? AND name = ?", (number, name)).fetchone()
        for name in names
    )
    return [(key, key) for key in sorted({row[0] for row in found if row}) if span[0] <= key <= span[1]]
