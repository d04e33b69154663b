"""The next version of Paceline: the same commands, with one more version of the PostgreSQL schema.

python -m tests.cli.newer_paceline additive|breaking COMMAND...
"""

import sys

from paceline.cli import main
from paceline.store.postgres import PostgresStore
from paceline.store.schema import MIGRATIONS, Migration

NEXT = {
    "additive": Migration(
        (
            "ALTER TABLE units ADD COLUMN of_tomorrow INTEGER DEFAULT 7",
            "ALTER TABLE leader ADD COLUMN of_tomorrow TEXT",
            "CREATE TABLE tomorrow (x INTEGER)",
            "CREATE INDEX units_of_tomorrow ON units (of_tomorrow)",
        ),
        is_additive=True,
    ),
    # Nothing that this code would notice: what keeps the older version out is only that the migration says so.
    "breaking": Migration(("CREATE TABLE tomorrow (x INTEGER)",), is_additive=False),
}

if __name__ == "__main__":
    kind, *sys.argv[1:] = sys.argv[1:]
    defaults = PostgresStore.__init__.__kwdefaults__
    assert defaults is not None
    defaults["migrations"] = (*MIGRATIONS, NEXT[kind])
    main()
