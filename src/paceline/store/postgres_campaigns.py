"""Campaigns in a PostgreSQL database: adding, changing, deleting, and counts of their units."""

from collections.abc import Generator, Iterable, Sequence

import msgspec

from paceline.errors import IllegalStep
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import Added, Campaign, UnitCounts, UnitSpec
from paceline.store.plan_import import run_to_end
from paceline.store.postgres_database import PostgresDatabase
from paceline.store.postgres_import import PostgresImport
from paceline.store.postgres_keys import campaign_names, known_number
from paceline.store.rows import campaign_from


class PostgresCampaigns:
    """The campaigns of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def add(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Added:
        return run_to_end(self.add_in_steps(campaign, units, update=update, now=now, events=events))

    def add_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Generator[None, None, Added]:
        rules.check_campaign(campaign)
        plan_import = PostgresImport(self._database, campaign, update=update, now=now, events=events)
        return plan_import.steps(rules.checked_specs(units))

    def all(self) -> list[Campaign]:
        with self._database.query() as connection:
            rows = connection.execute("SELECT name, body FROM campaigns ORDER BY number").fetchall()
        return [campaign_from(name, body) for name, body in rows]

    def set(self, campaign: Campaign) -> None:
        rules.check_campaign(campaign)
        with self._database.writing() as connection:
            number = known_number(connection, campaign.name)
            body = msgspec.json.encode(campaign).decode()
            connection.execute("UPDATE campaigns SET body = %s WHERE number = %s", (body, number))

    def delete(self, name: str) -> None:
        with self._database.writing() as connection:
            number = known_number(connection, name)
            if connection.execute(
                "SELECT 1 FROM tallies WHERE campaign = %s AND phase = 'running' AND units > 0", (number,)
            ).fetchone():
                raise IllegalStep(f"units of {name!r} are running: cancel it first")
            connection.allow_slow_statements()
            for table in ("prompts", "results", "units"):
                connection.execute(f"DELETE FROM {table} WHERE key BETWEEN %s AND %s", rules.campaign_span(number))
            connection.execute("DELETE FROM tallies WHERE campaign = %s", (number,))
            connection.execute("DELETE FROM campaigns WHERE number = %s", (number,))

    def counts(self) -> dict[str, UnitCounts]:
        with self._database.reading() as connection:
            tallies: dict[str, dict[str, int]] = {name: {} for name in campaign_names(connection).values()}
            for name, phase, units in connection.execute(
                """SELECT c.name, t.phase, sum(t.units)::bigint
                    FROM tallies t JOIN campaigns c ON c.number = t.campaign GROUP BY 1, 2"""
            ).fetchall():
                tallies[name][phase] = units
        return {name: rules.unit_counts(tally) for name, tally in tallies.items()}
