"""What a person does to units in a PostgreSQL database: hold, retry, revive, accept, cancel, forget a conversation."""

from collections.abc import Sequence
from typing import Final

from paceline.errors import UnknownName
from paceline.store import rules
from paceline.store.postgres_connection import Connection
from paceline.store.postgres_database import PostgresDatabase
from paceline.store.postgres_keys import GIVEN_KEY, known_number
from paceline.store.postgres_values import TextArray
from paceline.store.rows import result_from, result_row
from paceline.store.rules import campaign_span
from paceline.store.unit_result import UnitResult

_HOLD: Final = f"""WITH given AS MATERIALIZED (SELECT {GIVEN_KEY} FROM unnest(%s, %s) AS g (campaign, name))
    UPDATE units AS u SET state = 'held', reason = %s, resume_at = NULL, ended_at = %s
    FROM given g WHERE u.key = g.key AND u.state || '' = 'todo'"""
READY_AGAIN: Final = """state = 'todo', failures = 0, attempts = 0, parks = 0, windows_spent = 0, refusals = 0,
    losses = 0, reason = NULL, ended_at = NULL, exit_code = NULL, is_parked = FALSE, denials = 0, warnings = NULL"""
"""The assignments that let a unit begin again with its counters at zero."""
_IS_STOPPED: Final = "state IN ('held', 'quarantined', 'unverified')"
FORGET_CHECKS: Final = """UPDATE results SET checks = NULL WHERE checks IS NOT NULL
    AND key IN (SELECT key FROM units WHERE key BETWEEN %s AND %s AND {})"""
_CHOSEN: Final = "key BETWEEN %s AND %s AND (%s::text[] IS NULL OR name = ANY(%s::text[]))"
_FORGET_CHOSEN_CHECKS: Final = """UPDATE results SET checks = NULL WHERE checks IS NOT NULL
    AND key IN (SELECT key FROM units WHERE {} AND {})"""
_RETRY: Final = f"UPDATE units SET {READY_AGAIN} WHERE {_CHOSEN} AND {_IS_STOPPED}"
_REVIVE: Final = f"UPDATE units SET {READY_AGAIN}, resume_at = %s WHERE {_CHOSEN} AND state = 'cancelled'"
_ACCEPT: Final = f"""UPDATE units SET state = 'done', reason = %s, ended_at = %s
    WHERE {_CHOSEN} AND state = 'unverified'"""
_RUNNING: Final = f"SELECT name FROM units WHERE {_CHOSEN} AND state = 'running' ORDER BY key"
_CANCEL: Final = f"""UPDATE units SET state = 'cancelled', resume_at = NULL, lease_until = NULL, ended_at = %s,
    phase = NULL WHERE {_CHOSEN} AND state NOT IN ('done', 'cancelled')"""
_FORGET_CONVERSATION: Final = """UPDATE units SET conversation_id = NULL, is_parked = FALSE,
    resume_at = CASE WHEN is_parked THEN NULL ELSE resume_at END
    WHERE campaign = (SELECT number FROM campaigns WHERE name = %s) AND name = %s RETURNING key"""
_REPLACE_RESULT: Final = "UPDATE results SET body = %s, checks = %s, texts = %s WHERE key = %s"

Choice = tuple[int, int, list[str] | None, list[str] | None]


class PostgresUnitControl:
    """The operator's verbs for the units of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def hold(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        if not unit_ids:
            return 0
        campaigns, names = zip(*map(rules.split_unit_id, dict.fromkeys(unit_ids)), strict=True)
        with self._database.writing() as connection:
            columns = TextArray(campaigns), TextArray(names)
            return connection.execute(_HOLD, (*columns, rules.storable_text(reason), now)).rowcount

    def retry(self, campaign: str, unit_ids: Sequence[str] | None) -> int:
        with self._database.writing() as connection:
            choice = _choice(connection, campaign, unit_ids)
            connection.execute(_FORGET_CHOSEN_CHECKS.format(_CHOSEN, _IS_STOPPED), choice)
            return connection.execute(_RETRY, choice).rowcount

    def revive(self, campaign: str, unit_ids: Sequence[str] | None, *, resume_at: float) -> int:
        with self._database.writing() as connection:
            choice = _choice(connection, campaign, unit_ids)
            connection.execute(_FORGET_CHOSEN_CHECKS.format(_CHOSEN, "state = 'cancelled'"), choice)
            return connection.execute(_REVIVE, (resume_at, *choice)).rowcount

    def accept(self, campaign: str, unit_ids: Sequence[str], *, now: float) -> int:
        with self._database.writing() as connection:
            choice = _choice(connection, campaign, unit_ids)
            return connection.execute(_ACCEPT, (rules.ACCEPTED, now, *choice)).rowcount

    def cancel(self, campaign: str, unit_ids: Sequence[str] | None, *, now: float) -> list[str]:
        with self._database.writing() as connection:
            choice = _choice(connection, campaign, unit_ids)
            running = connection.execute(_RUNNING, choice).fetchall()
            connection.execute(_CANCEL, (now, *choice))
        return [rules.unit_id(campaign, name) for (name,) in running]

    def forget_conversation(self, unit_id: str) -> None:
        with self._database.writing() as connection:
            row = connection.execute(_FORGET_CONVERSATION, rules.split_unit_id(unit_id)).fetchone()
            if row is None:
                raise UnknownName(f"there is no unit {unit_id!r}")
            found = connection.execute("SELECT body, checks, texts FROM results WHERE key = %s", row).fetchone()
            if found is not None:
                result = result_from(*found) or UnitResult()
                connection.execute(_REPLACE_RESULT, (*result_row(result.without_work()), row[0]))


def _choice(connection: Connection, campaign: str, unit_ids: Sequence[str] | None) -> Choice:
    """Return the parameters of `_CHOSEN`: the chosen units, or all units of the campaign."""
    span = campaign_span(known_number(connection, campaign))
    if unit_ids is None:
        connection.allow_slow_statements()
        return (*span, None, None)
    names = [name for owner, name in map(rules.split_unit_id, unit_ids) if owner == campaign]
    return (*span, names, names)
