"""What a person does to units in a SQLite file: hold, retry, revive, accept, cancel, forget a conversation."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from paceline.errors import UnknownName
from paceline.store import rules
from paceline.store.rows import WHOLE_RESULT, result_from, result_row
from paceline.store.rules import Span
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_keys import IS_VISIBLE, campaign_numbers, known_number, unit_address, visible_span
from paceline.store.unit_result import UnitResult

_HOLD: Final = f"""UPDATE units AS u SET state = 'held', reason = ?, resume_at = NULL, ended_at = ?
    WHERE campaign = ? AND name = ? AND state = 'todo' AND {IS_VISIBLE}"""
READY_AGAIN: Final = """state = 'todo', attempts = 0, tries = 0, parks = 0, windows_spent = 0, refusals = 0,
    losses = 0, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = 0, denials = 0, warnings = NULL"""
"""The assignments that let a unit begin again with its counters at zero."""
IS_STOPPED: Final = "state IN ('held', 'quarantined', 'unverified')"
FORGET_CHECKS: Final = """UPDATE results SET checks = NULL WHERE checks IS NOT NULL
    AND key IN (SELECT key FROM units WHERE key BETWEEN ? AND ? AND {})"""
_RETRY: Final = f"UPDATE units SET {READY_AGAIN} WHERE key BETWEEN ? AND ? AND {IS_STOPPED}"
_REVIVE: Final = f"""UPDATE units SET {READY_AGAIN}, resume_at = ?
    WHERE key BETWEEN ? AND ? AND state = 'cancelled'"""
_ACCEPT: Final = """UPDATE units SET state = 'done', reason = ?, ended_at = ?
    WHERE key BETWEEN ? AND ? AND state = 'unverified'"""
_CANCEL: Final = """UPDATE units SET state = 'cancelled', resume_at = NULL, lease_until = NULL, ended_at = ?,
    phase = NULL
    WHERE key BETWEEN ? AND ? AND state NOT IN ('done', 'cancelled')"""
_FORGET_CONVERSATION: Final = f"""UPDATE units AS u SET session_id = NULL, is_parked = 0,
    resume_at = CASE WHEN is_parked THEN NULL ELSE resume_at END
    WHERE campaign = ? AND name = ? AND {IS_VISIBLE}"""
_RESULT_OF: Final = f"""SELECT r.key, {WHOLE_RESULT} FROM results r
    WHERE r.key = (SELECT key FROM units WHERE campaign = ? AND name = ?)"""
_REPLACE_RESULT: Final = "UPDATE results SET body = ?, checks = ?, texts = ? WHERE key = ?"


class SqliteUnitControl:
    """The operator's verbs for the units of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

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
            for span in spans:
                connection.execute(FORGET_CHECKS.format(IS_STOPPED), span)
            return sum(connection.execute(_RETRY, span).rowcount for span in spans)

    def revive(self, campaign: str, unit_ids: Sequence[str] | None, *, resume_at: float) -> int:
        with self._file.writing() as connection:
            spans = _chosen_spans(connection, campaign, unit_ids)
            for span in spans:
                connection.execute(FORGET_CHECKS.format("state = 'cancelled'"), span)
            return sum(connection.execute(_REVIVE, (resume_at, *span)).rowcount for span in spans)

    def accept(self, campaign: str, unit_ids: Sequence[str], *, now: float) -> int:
        with self._file.writing() as connection:
            spans = _chosen_spans(connection, campaign, unit_ids)
            return sum(connection.execute(_ACCEPT, (rules.ACCEPTED, now, *span)).rowcount for span in spans)

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
            address = unit_address(campaign_numbers(connection, [unit_id]), unit_id)
            if not connection.execute(_FORGET_CONVERSATION, address).rowcount:
                raise UnknownName(f"there is no unit {unit_id!r}")
            found = connection.execute(_RESULT_OF, address).fetchone()
            if found is not None:
                key, *columns = found
                result = result_from(*columns) or UnitResult()
                connection.execute(_REPLACE_RESULT, (*result_row(result.without_work()), key))


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
