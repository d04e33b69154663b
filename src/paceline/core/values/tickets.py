"""A ticket: one request to enter a set of scopes. A value; the lane it waits in is in `state/lane.py`."""

import msgspec

from paceline.core.values.validation import check_weight
from paceline.errors import InvalidInput


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """One request to enter. `scopes` are occupied together or not at all.

    `group` shares capacity with other groups by its `weight`, `2 ** priority` if it has none; bare tickets (no group)
    of one priority form a group of their own. Inside the group `key:NAME` of a client's key, a higher priority goes
    first.

    `since` is when the agent's prompt started. `parent` is the id of the session's ticket a run belongs to. `tokens`
    is what the call is expected to use.
    `leased=False`: the holder lives in the caller's own process and is known to give the slot back,
    so its lease need not be renewed; after a restart it expires like any other. `spread`: start only as fast as
    uses a window up evenly until its reset.
    """

    id: str
    scopes: tuple[str, ...]
    group: str = ""
    priority: int = 0
    since: float | None = None
    parent: str | None = None
    tokens: int | None = None
    leased: bool = True
    spread: bool = False
    weight: float | None = None


LaneKey = tuple[tuple[str, ...], str, int, str | None]


def lane_key(ticket: Ticket) -> LaneKey:
    """Return what all tickets of one lane have in common, except their pacing strategy."""
    return ticket.scopes, ticket.group, ticket.priority, ticket.parent


def check_ticket(ticket: Ticket) -> None:
    """Validate `since`, `tokens` and `weight`, which the fast path does not read."""
    since, tokens = ticket.since, ticket.tokens
    if ticket.weight is not None:
        check_weight(ticket.weight)
    if since is not None and (isinstance(since, bool) or not isinstance(since, int | float)):
        raise InvalidInput(f"since must be a time in seconds, or None; got {since!r:.80}")
    if tokens is not None and (type(tokens) is not int or tokens < 0):
        raise InvalidInput(f"tokens must be a whole number >= 0, or None; got {tokens!r:.80}")
