"""How a plan gets into a SQLite file: new units are added, stored ones compared.

All of it runs inside the caller's transaction.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from paceline.core.lifecycle import UnitState
from paceline.store.interface import Added, Campaign, UnitSpec
from paceline.store.rows import campaign_from
from paceline.store.rules import unit_id, unit_key

SPECS_AT_ONCE: Final = 500  # below the least number of parameters that a SQLite is built for

_INSERT_UNIT: Final = "INSERT INTO units (key, campaign, name, cwd, output) VALUES (?, ?, ?, ?, ?)"
_SAVE_PROMPT: Final = "INSERT INTO prompts VALUES (?, ?) ON CONFLICT DO UPDATE SET prompt = excluded.prompt"


class StoredSpec(msgspec.Struct, frozen=True):
    """A unit as an earlier plan named it."""

    key: int
    state: UnitState
    spec: UnitSpec


def add_plan(
    connection: sqlite3.Connection, campaign: Campaign, specs: Iterable[UnitSpec], *, update: bool, now: float
) -> Added:
    """Save the campaign and go through its units a few hundred at a time, so that a million need no memory."""
    number, position = _save_campaign(connection, campaign, now)
    adding = _Adding(connection, campaign.name, number, position, update)
    for chunk in _chunks(specs):
        adding.add(chunk)
    connection.execute("UPDATE campaigns SET next_position = ? WHERE number = ?", (adding.position, number))
    return adding.outcome()


class _Adding:
    """One plan on its way in."""

    def __init__(self, connection: sqlite3.Connection, campaign: str, number: int, position: int, update: bool) -> None:
        self.position = position
        self._connection = connection
        self._campaign = campaign
        self._number = number
        self._had_units = position > 0
        self._update = update
        self._added = 0
        self._unchanged = 0
        self._changed: list[str] = []
        self._updated: list[str] = []

    def add(self, chunk: list[UnitSpec]) -> None:
        stored = self._stored(chunk) if self._had_units else {}
        self._insert([spec for spec in chunk if spec.id not in stored])
        for spec in chunk:
            if spec.id in stored:
                self._compare(stored[spec.id], spec)

    def outcome(self) -> Added:
        return Added(
            added=self._added,
            unchanged=self._unchanged,
            changed=tuple(self._changed),
            updated=tuple(self._updated),
        )

    def _stored(self, chunk: list[UnitSpec]) -> dict[str, StoredSpec]:
        rows = self._connection.execute(
            f"""SELECT u.key, u.state, u.name, coalesce(p.prompt, ''), u.cwd, u.output
                FROM units u LEFT JOIN prompts p ON p.key = u.key
                WHERE u.campaign = ? AND u.name IN ({", ".join("?" * len(chunk))})""",
            (self._number, *(spec.id for spec in chunk)),
        )
        return {
            name: StoredSpec(key, state, UnitSpec(id=name, prompt=prompt, cwd=cwd, output=output))
            for key, state, name, prompt, cwd, output in rows
        }

    def _insert(self, specs: list[UnitSpec]) -> None:
        first_key = unit_key(self._number, self.position)
        keyed = list(enumerate(specs, first_key))
        self._connection.executemany(
            _INSERT_UNIT, [(key, self._number, spec.id, spec.cwd, spec.output) for key, spec in keyed]
        )
        self._connection.executemany(_SAVE_PROMPT, [(key, spec.prompt) for key, spec in keyed if spec.prompt])
        self.position += len(specs)
        self._added += len(specs)

    def _compare(self, stored: StoredSpec, spec: UnitSpec) -> None:
        identifier = unit_id(self._campaign, spec.id)
        if stored.spec == spec:
            self._unchanged += 1
        elif self._update and stored.state not in ("running", "done"):
            self._replace(stored.key, spec)
            self._updated.append(identifier)
        else:
            self._changed.append(identifier)

    def _replace(self, key: int, spec: UnitSpec) -> None:
        self._connection.execute("UPDATE units SET cwd = ?, output = ? WHERE key = ?", (spec.cwd, spec.output, key))
        self._connection.execute(_SAVE_PROMPT, (key, spec.prompt))


def _save_campaign(connection: sqlite3.Connection, campaign: Campaign, now: float) -> tuple[int, int]:
    """Its number, and the position of the next unit to add."""
    row = connection.execute(
        "SELECT number, next_position, body FROM campaigns WHERE name = ?", (campaign.name,)
    ).fetchone()
    if row is None:
        body = msgspec.json.encode(msgspec.structs.replace(campaign, created_at=now))
        cursor = connection.execute("INSERT INTO campaigns (name, body) VALUES (?, ?)", (campaign.name, body))
        return cursor.lastrowid or 0, 0
    number, position, body = row
    before = campaign_from(body)
    kept = msgspec.structs.replace(campaign, state=before.state, created_at=before.created_at)
    connection.execute("UPDATE campaigns SET body = ? WHERE number = ?", (msgspec.json.encode(kept), number))
    return number, position


def _chunks(specs: Iterable[UnitSpec]) -> Iterator[list[UnitSpec]]:
    remaining = iter(specs)
    while chunk := list(islice(remaining, SPECS_AT_ONCE)):
        yield chunk
