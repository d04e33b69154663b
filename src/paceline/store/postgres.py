"""The store in a PostgreSQL database.

One transaction writes at a time, any number read. Every write is durable when its verb returns, as long as the server
keeps `synchronous_commit` on, which is its default.

Here: which tables it is made of. Never here: a statement.
"""

from collections.abc import Sequence
from typing import Final

from paceline.store.postgres_campaigns import PostgresCampaigns
from paceline.store.postgres_client_keys import PostgresClientKeys
from paceline.store.postgres_connection import ANSWER_SECONDS
from paceline.store.postgres_control import PostgresUnitControl
from paceline.store.postgres_database import PostgresDatabase
from paceline.store.postgres_notifications import PostgresNotifications
from paceline.store.postgres_records import PostgresEngineState, PostgresEvents, PostgresSlots, PostgresSpend
from paceline.store.postgres_schema import MIGRATIONS, Migration
from paceline.store.postgres_units import PostgresUnits
from paceline.store.table_store import Tables, TableStore

BUSY_SECONDS: Final = 2.0
"""How long a verb waits for another writer before `StoreBusy`: far longer than any transaction of ours takes."""


class PostgresStore(TableStore):
    """`Store` in the database at `url`. Its tables are created if they do not exist."""

    is_shared = True

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = BUSY_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        database = PostgresDatabase(
            url, busy_seconds=busy_seconds, answer_seconds=answer_seconds, migrations=migrations
        )
        tables = Tables(
            campaigns=PostgresCampaigns(database),
            units=PostgresUnits(database),
            control=PostgresUnitControl(database),
            events=PostgresEvents(database),
            slots=PostgresSlots(database),
            spend=PostgresSpend(database),
            state=PostgresEngineState(database),
            client_keys=PostgresClientKeys(database),
            changes=PostgresNotifications(database.address, database.place),
        )
        super().__init__(database, tables)
