"""How units and campaigns are found in a PostgreSQL database: numbers, keys and spans of keys."""

from collections.abc import Iterable

from paceline.store import rules
from paceline.store.postgres_connection import Connection


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


def addresses(connection: Connection, unit_ids: Iterable[str]) -> dict[str, tuple[int | None, str]]:
    """Return the columns `campaign` and `name` of units. The number is None if the campaign is not known."""
    parts = {identifier: rules.split_unit_id(identifier) for identifier in unit_ids}
    names = list({campaign for campaign, _ in parts.values()})
    rows = connection.execute("SELECT name, number FROM campaigns WHERE name = ANY(%s::text[])", (names,)).fetchall()
    numbers: dict[str, int] = dict(rows)
    return {identifier: (numbers.get(campaign), name) for identifier, (campaign, name) in parts.items()}
