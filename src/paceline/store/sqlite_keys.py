"""Keys of the SQLite schema: which rows belong to a campaign, and which of them are visible.

A unit's key holds the number of its campaign, so a campaign is a span of keys. Units of a plan that is still being
imported are stored but hidden (see `sqlite_import`). Never here: a statement that writes.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from paceline.store import rules
from paceline.store.rules import Span, campaign_span

IS_VISIBLE: Final = "NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.number = u.campaign AND u.key >= a.first_key)"
"""A condition for a unit `u` that was found by its name."""


def visible_span(connection: sqlite3.Connection, number: int) -> Span:
    """Return the keys of the campaign's units that are not hidden."""
    low, high = campaign_span(number)
    row = connection.execute("SELECT first_key FROM arrivals WHERE number = ?", (number,)).fetchone()
    return low, high if row is None else row[0] - 1


def visible_spans(connection: sqlite3.Connection, low: int, high: int) -> Iterator[Span]:
    """Yield the spans between two keys that are not hidden, in order."""
    for first_hidden, last_hidden in _hidden_spans(connection):
        if low < first_hidden:
            yield low, min(first_hidden - 1, high)
        low = max(low, last_hidden + 1)
    if low <= high:
        yield low, high


def _hidden_spans(connection: sqlite3.Connection) -> list[Span]:
    rows = connection.execute("SELECT number, first_key FROM arrivals ORDER BY number")
    return [(first_key, campaign_span(number)[1]) for number, first_key in rows]


def campaign_names(connection: sqlite3.Connection) -> dict[int, str]:
    """Return the names of all campaigns by number, in the order they were added."""
    return dict(connection.execute("SELECT number, name FROM campaigns ORDER BY number"))


def campaign_numbers(connection: sqlite3.Connection, unit_ids: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the campaigns of these units by name. The cost does not grow with other campaigns."""
    names = {rules.split_unit_id(identifier)[0] for identifier in unit_ids}
    found = ((name, find_number(connection, name)) for name in names)
    return {name: number for name, number in found if number is not None}


def find_number(connection: sqlite3.Connection, campaign: str) -> int | None:
    """Return the campaign's number, or None if there is no such campaign."""
    row = connection.execute("SELECT number FROM campaigns WHERE name = ?", (campaign,)).fetchone()
    return None if row is None else row[0]


def known_number(connection: sqlite3.Connection, campaign: str) -> int:
    """Return the campaign's number. Raise `UnknownName` if there is no such campaign."""
    number = find_number(connection, campaign)
    if number is None:
        raise rules.unknown_campaign(campaign, campaign_names(connection).values())
    return number


def unit_address(numbers: dict[str, int], identifier: str) -> tuple[int | None, str]:
    """Return the columns `campaign` and `name` of a unit. They match no row if the campaign is not known."""
    campaign, name = rules.split_unit_id(identifier)
    return numbers.get(campaign), name
