"""The SQLite schema and its history: one entry per version. A released entry never changes.

`user_version` is the number of entries that were applied. `application_id` marks the file as Paceline's.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

from paceline.errors import StoreDamaged, StoreTooNew

APPLICATION_ID: Final = 0x50414345  # "PACE"

Migration = tuple[str, ...]

# A unit's key is its campaign's number and its position in one integer (`rules.unit_key`), so that the table
# and every index of it are in the order in which units are claimed and listed, and a campaign is a range.
#
# Prompts may be 1 MB and have a table of their own: claims, counts and lists never step over them.
#
# Two partial indexes hold the claimable units, and one the parked units. A unit leaves them when it is claimed, so a
# claim reads nothing else, however many units are done or wait.
#
# Triggers keep `tallies`, so that no verb can forget to count. Its account is the one that a conversation is bound
# to, or '' for none. It is filled in only for claimable units.
VERSION_1: Final[Migration] = (
    """CREATE TABLE campaigns (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        next_position INTEGER NOT NULL DEFAULT 0,
        body BLOB NOT NULL
    )""",
    """CREATE TABLE units (
        key INTEGER PRIMARY KEY,
        campaign INTEGER NOT NULL,
        name TEXT NOT NULL,
        cwd TEXT NOT NULL,
        output TEXT,
        state TEXT NOT NULL DEFAULT 'todo',
        attempts INTEGER NOT NULL DEFAULT 0,
        tries INTEGER NOT NULL DEFAULT 0,
        parks INTEGER NOT NULL DEFAULT 0,
        windows_spent INTEGER NOT NULL DEFAULT 0,
        refusals INTEGER NOT NULL DEFAULT 0,
        losses INTEGER NOT NULL DEFAULT 0,
        resume_at REAL,
        reason TEXT,
        account TEXT,
        session_id TEXT,
        attempt TEXT,
        fence INTEGER NOT NULL DEFAULT 0,
        lease_until REAL,
        started_at REAL,
        ended_at REAL,
        exit_code INTEGER
    )""",
    "CREATE UNIQUE INDEX units_by_name ON units (campaign, name)",
    "CREATE INDEX units_by_state ON units (state, key)",
    """CREATE INDEX claimable_afresh ON units (key)
        WHERE state = 'todo' AND resume_at IS NULL AND session_id IS NULL""",
    """CREATE INDEX claimable_on_account ON units (account, key)
        WHERE state = 'todo' AND resume_at IS NULL AND session_id IS NOT NULL""",
    "CREATE INDEX parked ON units (resume_at, key) WHERE state = 'todo' AND resume_at IS NOT NULL",
    "CREATE TABLE prompts (key INTEGER PRIMARY KEY, prompt TEXT NOT NULL)",
    """CREATE TABLE tallies (
        campaign INTEGER NOT NULL,
        phase TEXT NOT NULL,
        account TEXT NOT NULL,
        units INTEGER NOT NULL,
        PRIMARY KEY (campaign, phase, account)
    ) WITHOUT ROWID""",
    """CREATE TRIGGER tally_added AFTER INSERT ON units BEGIN
        INSERT INTO tallies VALUES (new.campaign, 'todo', '', 1)
            ON CONFLICT DO UPDATE SET units = units + 1;
    END""",
    """CREATE TRIGGER tally_moved AFTER UPDATE OF state, resume_at, account, session_id ON units BEGIN
        UPDATE tallies SET units = units - 1 WHERE campaign = old.campaign
            AND phase = CASE WHEN old.resume_at IS NULL THEN old.state ELSE 'parked' END
            AND account = CASE WHEN old.state = 'todo' AND old.resume_at IS NULL AND old.session_id IS NOT NULL
                THEN old.account ELSE '' END;
        INSERT INTO tallies VALUES (
            new.campaign,
            CASE WHEN new.resume_at IS NULL THEN new.state ELSE 'parked' END,
            CASE WHEN new.state = 'todo' AND new.resume_at IS NULL AND new.session_id IS NOT NULL
                THEN new.account ELSE '' END,
            1
        ) ON CONFLICT DO UPDATE SET units = units + 1;
    END""",
    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, unit TEXT, body BLOB NOT NULL)",
    "CREATE INDEX events_by_unit ON events (unit, id) WHERE unit IS NOT NULL",
    "CREATE TABLE states (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE leader (seat INTEGER PRIMARY KEY CHECK (seat = 1), owner TEXT NOT NULL, until REAL NOT NULL)",
)

# Slots of other programs, one row each: thousands of leases come and go every second. Rows are in the order they were
# first saved. Version 1 kept all of them in one value of `states`, under `outside`.
VERSION_2: Final[Migration] = (
    "CREATE TABLE slots (id TEXT PRIMARY KEY, body BLOB NOT NULL)",
    """INSERT INTO slots
        SELECT slot.key, CAST(json_set(slot.value, '$.granted_at',
            CASE WHEN json_extract(slot.value, '$.is_granted') THEN 0.0 END) AS BLOB)
        FROM states, json_each(CAST(states.value AS TEXT)) AS slot WHERE states.key = 'outside'""",
    "DELETE FROM states WHERE key = 'outside'",
)

# A long plan is imported in many short transactions. The units of its campaign are hidden from `first_key` on, and a
# new campaign has no row in `campaigns` until its import is complete. So units are counted when they become visible,
# not one by one.
VERSION_3: Final[Migration] = (
    """CREATE TABLE arrivals (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        first_key INTEGER NOT NULL,
        token TEXT NOT NULL UNIQUE,
        began_at REAL NOT NULL
    )""",
    "DROP TRIGGER tally_added",
)

# Units that back off after a failure or a refusal are counted apart from those that are parked for a quota window.
# Units that waited before this version were all counted as parked, and stay so until they are woken.
VERSION_4: Final[Migration] = (
    "ALTER TABLE units ADD COLUMN begun_at REAL",
    "ALTER TABLE units ADD COLUMN is_parked INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE units ADD COLUMN denials INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE units ADD COLUMN warnings TEXT",
    "UPDATE units SET is_parked = 1 WHERE state = 'todo' AND resume_at IS NOT NULL",
    "DROP TRIGGER tally_moved",
    """CREATE TRIGGER tally_moved AFTER UPDATE OF state, resume_at, account, session_id, is_parked ON units BEGIN
        UPDATE tallies SET units = units - 1 WHERE campaign = old.campaign
            AND phase = CASE WHEN old.resume_at IS NULL THEN old.state WHEN old.is_parked THEN 'parked'
                ELSE 'backing_off' END
            AND account = CASE WHEN old.state = 'todo' AND old.resume_at IS NULL AND old.session_id IS NOT NULL
                THEN old.account ELSE '' END;
        INSERT INTO tallies VALUES (
            new.campaign,
            CASE WHEN new.resume_at IS NULL THEN new.state WHEN new.is_parked THEN 'parked' ELSE 'backing_off' END,
            CASE WHEN new.state = 'todo' AND new.resume_at IS NULL AND new.session_id IS NOT NULL
                THEN new.account ELSE '' END,
            1
        ) ON CONFLICT DO UPDATE SET units = units + 1;
    END""",
)

# Programs that take a hundred slots in a second would push the history of the units out of the stream, so events about
# slots are trimmed by a bound of their own.
VERSION_5: Final[Migration] = (
    "ALTER TABLE events ADD COLUMN is_slot INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX events_by_kind ON events (is_slot, id)",
)

# Every pass asks which campaigns have units to claim. A home may have hundreds that are done.
VERSION_6: Final[Migration] = (
    "CREATE INDEX tallies_claimable ON tallies (campaign, account, units) WHERE phase = 'todo' AND units > 0",
)

# Results are read with every page of units, so their long texts (the answer, the output of checks, the next prompt)
# come last in a row, where SQLite need not step over them. `checks` stands by itself, because a retry forgets it.
VERSION_7: Final[Migration] = (
    "ALTER TABLE units ADD COLUMN phase TEXT",
    "UPDATE units SET phase = 'working' WHERE state = 'running'",
    "CREATE TABLE results (key INTEGER PRIMARY KEY, body TEXT NOT NULL, checks TEXT, texts TEXT)",
)

# What calls of the gateway have used: one row for each day, key, account and model, however many calls there are.
VERSION_8: Final[Migration] = (
    """CREATE TABLE gateway_spend (
        day TEXT NOT NULL,
        key TEXT NOT NULL,
        account TEXT NOT NULL,
        model TEXT NOT NULL,
        requests INTEGER NOT NULL,
        input INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        billed REAL NOT NULL,
        imputed REAL NOT NULL,
        unpriced INTEGER NOT NULL,
        estimated INTEGER NOT NULL,
        PRIMARY KEY (day, key, account, model)
    ) WITHOUT ROWID""",
)

# Conversations that cost least to finish continue first: each pays for its context again.
VERSION_9: Final[Migration] = ("ALTER TABLE units ADD COLUMN resume_cost INTEGER NOT NULL DEFAULT 0",)

# A revoked key stays, so that its name can be given again and its digest is never accepted.
VERSION_10: Final[Migration] = (
    """CREATE TABLE client_keys (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        digest TEXT NOT NULL,
        revoked_at REAL,
        body BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX client_keys_by_name ON client_keys (name) WHERE revoked_at IS NULL",
)

MIGRATIONS: Final[tuple[Migration, ...]] = (
    VERSION_1,
    VERSION_2,
    VERSION_3,
    VERSION_4,
    VERSION_5,
    VERSION_6,
    VERSION_7,
    VERSION_8,
    VERSION_9,
    VERSION_10,
)


def missing(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> Sequence[Migration]:
    """Return the migrations that the file lacks, in order. Raise if the file must not be touched."""
    version = _number(connection, "user_version")
    if _number(connection, "application_id") != APPLICATION_ID and not _is_empty(connection):
        raise StoreDamaged(f"{path} is a database of another program; choose another file")
    if version > len(migrations):
        raise StoreTooNew(
            f"{path} was written by a newer Paceline (schema {version}, this one knows {len(migrations)}): upgrade"
        )
    return migrations[version:]


def migrate(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> None:
    """Apply the missing migrations inside the caller's transaction."""
    for statements in missing(connection, path, migrations):
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
