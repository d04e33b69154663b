"""The store in one SQLite file.

One process writes at a time, any number read. Every write is durable when its verb returns (WAL with
`synchronous=FULL`): it survives `kill -9` and the loss of power. One exception: dropping slots does not wait for the
disk, so it survives only `kill -9`.

Here: which tables it is made of. Never here: a statement.
"""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

from paceline.store.migrations import MIGRATIONS, Migration
from paceline.store.sqlite_campaigns import SqliteCampaigns
from paceline.store.sqlite_client_keys import SqliteClientKeys
from paceline.store.sqlite_control import SqliteUnitControl
from paceline.store.sqlite_file import MigrationGuard, SqliteFile
from paceline.store.sqlite_records import SqliteEngineState, SqliteEvents, SqliteSlots, SqliteSpend
from paceline.store.sqlite_units import SqliteUnits
from paceline.store.table_store import Tables, TableStore

BUSY_SECONDS: Final = 2.0
"""How long a verb waits for another writer before `StoreBusy`: far longer than any transaction of ours takes."""


class SqliteStore(TableStore):
    """`Store` in the file at `path`, which is created if it does not exist."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_seconds: float = BUSY_SECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
        while_migrating: MigrationGuard = nullcontext,
    ) -> None:
        file = SqliteFile(
            os.fspath(path), busy_seconds=busy_seconds, migrations=migrations, while_migrating=while_migrating
        )
        tables = Tables(
            campaigns=SqliteCampaigns(file),
            units=SqliteUnits(file),
            control=SqliteUnitControl(file),
            events=SqliteEvents(file),
            slots=SqliteSlots(file),
            spend=SqliteSpend(file),
            state=SqliteEngineState(file),
            client_keys=SqliteClientKeys(file),
        )
        super().__init__(file, tables)
