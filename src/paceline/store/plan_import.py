"""The import of a plan: which units are new, which changed, and what a campaign keeps.

Here: what each step reads and writes. Never here: in how many transactions, and what keeps others from seeing the units
before the last step. That differs between the databases (`sqlite.py`, `postgres.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from paceline.errors import IllegalStep, StoreBusy
from paceline.events import Event
from paceline.store.interface import Added, Campaign, UnitSpec
from paceline.store.rules import campaign_from, encode, unit_id, unit_key
from paceline.store.sql_store import BODY, COUNT_ON, FORGET_CHECKS, READY_AGAIN, Connection, SqlStore

SPECS_AT_ONCE: Final = 250
"""Units in one step: about 5 ms of work, and fewer than the parameters that every SQLite build accepts."""

_IS_REPAIRED: Final = "state IN ('quarantined', 'unverified')"
"""The states in which a changed unit is tried again: the work failed, and the plan was corrected."""
_INSERT_UNIT: Final = "INSERT INTO units (key, campaign, name, cwd, output) VALUES (?, ?, ?, ?, ?)"
_SAVE_PROMPT: Final = """INSERT INTO prompts (key, prompt) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET prompt = excluded.prompt"""
_TALLY: Final = """INSERT INTO tallies (campaign, phase, account, units) VALUES (?, 'todo', '', ?)
    ON CONFLICT (campaign, phase, account) DO UPDATE SET units = tallies.units + excluded.units"""


_StoredSpec = tuple[int, UnitSpec]
"""The key of a unit, and how an earlier plan described it."""


class PlanImport(ABC):
    """One import of a plan into a store."""

    def __init__(
        self, store: SqlStore, campaign: Campaign, *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> None:
        self.campaign = campaign
        self.now = now
        self.number = 0
        """The number of the campaign, once the import has begun."""
        self.first_key = 0
        self._store = store
        self._database: Any = store.database
        self._update = update
        self._events = events
        self._next_key = 0
        self._before: Campaign | None = None
        """The campaign as it was when the import began, if it was stored."""
        self._unchanged = 0
        self._changes: list[tuple[_StoredSpec, UnitSpec]] = []

    @abstractmethod
    def steps(self, specs: Iterable[UnitSpec]) -> Generator[None, None, Added]:
        """Take some units per step. The last step returns the result."""

    def begin(self, connection: Connection) -> None:
        """Find the campaign, or reserve a number for a new one."""
        name = self.campaign.name
        row = connection.execute(
            f"SELECT number, next_position, {BODY} FROM campaigns WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            self.number, position = self.reserve_number(connection), 0
        else:
            self.number, position = row[:2]
            self._before = campaign_from(name, row[2])
        self.first_key = self._next_key = unit_key(self.number, position)

    def reserve_number(self, connection: Connection) -> int:
        """Return a number for a new campaign that no other campaign can get."""
        return int(connection.execute(COUNT_ON, (1, "campaigns")).fetchall()[0][0])

    def take(self, connection: Connection, chunk: list[UnitSpec]) -> None:
        """Insert the new units of the chunk, and note which of the others have changed."""
        stored = self._stored(connection, chunk) if self._before is not None else {}
        added = []
        for spec in chunk:
            known = stored.get(spec.id)
            if known is None:
                added.append(spec)
            elif known[1] == spec:
                self._unchanged += 1
            else:
                self._changes.append((known, spec))
        self.insert(connection, list(enumerate(added, self._next_key)))
        self._next_key += len(added)

    def insert(self, connection: Connection, keyed: list[tuple[int, UnitSpec]]) -> None:
        """Insert new units with their keys."""
        rows = [(key, self.number, spec.id, spec.cwd, spec.output) for key, spec in keyed]
        connection.executemany(_INSERT_UNIT, rows)
        connection.executemany(_SAVE_PROMPT, [(key, spec.prompt) for key, spec in keyed if spec.prompt])

    def publish(self, connection: Connection) -> Added:
        """SqlStore the campaign, count its units, and replace those that changed. Return what the import did."""
        self._save_campaign(connection)
        added = self._next_key - self.first_key
        connection.execute(_TALLY, (self.number, added))
        changed: list[str] = []
        updated: list[str] = []
        for stored, spec in self._changes:
            is_replaced = self._update and _replace(connection, stored, spec)
            (updated if is_replaced else changed).append(unit_id(self.campaign.name, spec.id))
        if self._events:
            self._store.insert_events(connection, self._events)
        return Added(added=added, unchanged=self._unchanged, changed=tuple(changed), updated=tuple(updated))

    def _save_campaign(self, connection: Connection) -> None:
        name, next_position = self.campaign.name, self._next_key - unit_key(self.number, 0)
        if self._before is None:
            kept = msgspec.structs.replace(self.campaign, created_at=self.now)
            connection.execute(
                "INSERT INTO campaigns (number, name, next_position, body) VALUES (?, ?, ?, ?)",
                (self.number, name, next_position, encode(kept)),
            )
            return
        row = connection.execute(f"SELECT {BODY} FROM campaigns WHERE number = ?", (self.number,)).fetchone()
        if row is None:
            raise StoreBusy(f"another process deleted {name} while units were added; add them again")
        stored = campaign_from(name, row[0])
        if stored.state == "cancelled" != self._before.state:
            raise IllegalStep(f"{name} was cancelled while units were added to it")
        kept = msgspec.structs.replace(
            self.campaign, state=stored.state, pause_reason=stored.pause_reason, created_at=stored.created_at
        )
        connection.execute(
            "UPDATE campaigns SET next_position = ?, body = ? WHERE number = ?",
            (next_position, encode(kept), self.number),
        )

    def _stored(self, connection: Connection, chunk: list[UnitSpec]) -> dict[str, _StoredSpec]:
        """Return the units of the chunk that an earlier plan described, by name."""
        named, values = self._store.named([spec.id for spec in chunk])
        rows = connection.execute(
            f"""SELECT u.key, u.name, coalesce(p.prompt, ''), u.cwd, u.output
                FROM units u LEFT JOIN prompts p ON p.key = u.key WHERE u.campaign = ? AND {named}""",
            (self.number, *values),
        ).fetchall()
        return {
            name: (key, UnitSpec(id=name, prompt=prompt, cwd=cwd, output=output))
            for key, name, prompt, cwd, output in rows
        }


def _replace(connection: Connection, stored: _StoredSpec, spec: UnitSpec) -> bool:
    """Replace a unit unless it runs or is done. Return whether it was replaced."""
    key, before = stored
    replaced = connection.execute(
        "UPDATE units SET cwd = ?, output = ? WHERE key = ? AND state NOT IN ('running', 'done')",
        (spec.cwd, spec.output, key),
    )
    connection.execute(FORGET_CHECKS.format("key = ?", _IS_REPAIRED), (key,))
    connection.execute(f"UPDATE units SET {READY_AGAIN} WHERE key = ? AND {_IS_REPAIRED}", (key,))
    if replaced.rowcount and spec.prompt != before.prompt:
        connection.execute(_SAVE_PROMPT, (key, spec.prompt))
    return bool(replaced.rowcount)


def spec_chunks(specs: Iterable[UnitSpec]) -> Iterator[list[UnitSpec]]:
    """Yield the units in the portions that one step takes."""
    remaining = iter(specs)
    while chunk := list(islice(remaining, SPECS_AT_ONCE)):
        yield chunk
