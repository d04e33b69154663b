"""Tickets, which are requests to enter a set of scopes, and the Governor's answers: verdicts and effects.

Values; the lane that a ticket waits in is in `state/lane.py`.
"""

from typing import Literal

import msgspec

from paceline.core.values.validation import check_weight
from paceline.errors import InvalidInput
from paceline.events import Event


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


Reason = Literal[
    "limit",
    "paused",
    "cooldown",
    "usage_gate",
    "window_closed",
    "platform_limit",
    "pacing",
    "reserve",
    "held",
    "unreachable",
    "machine",
    "queue_order",
]


class Granted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A ticket that has a slot. `token` is its fencing token: a later grant always has a larger one."""

    ticket_id: str
    token: int
    granted_at: float
    waited: float
    expires_at: float | None


class Deferred(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A ticket that has no slot, and what keeps it out.

    `retry_at` is when that may change, as far as known. `position` is its position in its lane (1 = next), None
    where it does not wait.
    """

    ticket_id: str
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None = None
    position: int | None = None


class Expired(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A lease that ran out: end the holder. Its places are free again at `reclaimed_at`, or when released."""

    ticket_id: str
    reclaimed_at: float


class PollUsage(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A poll to make: read the provider's own count and `report` the `Usage`, or an empty one on failure."""

    scope: str


Verdict = Granted | Deferred
Effect = Granted | Expired | PollUsage | Event
