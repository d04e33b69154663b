"""How units and campaigns are found in a PostgreSQL database: numbers, keys and spans of keys."""

from typing import Final

from paceline.store import rules
from paceline.store.postgres_connection import Connection

# A statement over many given units finds each by its name, in the order they are given. Its state is then compared in a
# way that no index can serve (`state || '' = 'running'`): an index of states has an entry of every unit that was in it
# since the last vacuum.
GIVEN_KEY: Final = """(SELECT v.key FROM campaigns c JOIN units v ON v.campaign = c.number
    WHERE c.name = g.campaign AND v.name = g.name) AS key"""


def find_number(connection: Connection, campaign: str) -> int | None:
    """Return the campaign's number, or None if there is no such campaign."""
    row = connection.execute("SELECT number FROM campaigns WHERE name = %s", (campaign,)).fetchone()
    return None if row is None else int(row[0])


def known_number(connection: Connection, campaign: str) -> int:
    """Return the campaign's number. Raise `UnknownName` if there is no such campaign."""
    number = find_number(connection, campaign)
    if number is None:
        raise rules.unknown_campaign(campaign, campaign_names(connection).values())
    return number


def campaign_names(connection: Connection) -> dict[int, str]:
    """Return the names of all campaigns by number, in the order they were added."""
    return dict(connection.execute("SELECT number, name FROM campaigns ORDER BY number").fetchall())
