"""Campaigns in a SQLite file: adding, changing, deleting, and counts of their units."""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

import msgspec

from paceline.errors import IllegalStep
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import Added, Campaign, UnitCounts, UnitSpec
from paceline.store.plan_import import run_to_end
from paceline.store.rows import campaign_from
from paceline.store.sqlite_file import SqliteFile
from paceline.store.sqlite_import import PlanImport
from paceline.store.sqlite_keys import campaign_names, known_number

PAUSE_SECONDS: Final = 0.005
"""How long a blocking import sleeps between two steps: other processes try to lock the file every few milliseconds."""


class SqliteCampaigns:
    """The campaigns of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def add(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Added:
        steps = self.add_in_steps(campaign, units, update=update, now=now, events=events)
        return run_to_end(steps, pause_seconds=PAUSE_SECONDS)

    def add_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Generator[None, None, Added]:
        rules.check_campaign(campaign)
        plan_import = PlanImport(self._file, campaign, update=update, now=now, events=events)
        return plan_import.steps(rules.checked_specs(units))

    def all(self) -> list[Campaign]:
        with self._file.reading() as connection:
            rows = connection.execute("SELECT name, CAST(body AS BLOB) FROM campaigns ORDER BY number")
            return [campaign_from(name, body) for name, body in rows]

    def set(self, campaign: Campaign) -> None:
        rules.check_campaign(campaign)
        with self._file.writing() as connection:
            number = known_number(connection, campaign.name)
            connection.execute(
                "UPDATE campaigns SET body = ? WHERE number = ?", (msgspec.json.encode(campaign), number)
            )

    def delete(self, name: str) -> None:
        with self._file.writing() as connection:
            number = known_number(connection, name)
            if connection.execute(
                "SELECT 1 FROM tallies WHERE campaign = ? AND phase = 'running' AND units > 0", (number,)
            ).fetchone():
                raise IllegalStep(f"units of {name!r} are running: cancel it first")
            span = rules.campaign_span(number)
            connection.execute("DELETE FROM prompts WHERE key BETWEEN ? AND ?", span)
            connection.execute("DELETE FROM results WHERE key BETWEEN ? AND ?", span)
            connection.execute("DELETE FROM units WHERE key BETWEEN ? AND ?", span)
            connection.execute("DELETE FROM tallies WHERE campaign = ?", (number,))
            connection.execute("DELETE FROM arrivals WHERE number = ?", (number,))
            connection.execute("DELETE FROM campaigns WHERE number = ?", (number,))

    def counts(self) -> dict[str, UnitCounts]:
        with self._file.reading() as connection:
            tallies: dict[str, dict[str, int]] = {name: {} for name in campaign_names(connection).values()}
            for name, phase, units in connection.execute(
                """SELECT c.name, t.phase, sum(t.units)
                    FROM tallies t JOIN campaigns c ON c.number = t.campaign GROUP BY 1, 2"""
            ):
                tallies[name][phase] = units
        return {name: rules.unit_counts(tally) for name, tally in tallies.items()}
