"""A ticket: one request to enter a set of scopes. A value; the line it waits in is `queue.py`."""

import msgspec


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """`scopes` are occupied together or not at all.

    `group` shares capacity with other groups by `2 ** priority`; bare tickets (no group) of one
    priority form a group of their own. `since` is when the agent's prompt started. `parent` is the
    id of the session's ticket a run belongs to. `tokens` is what the call is expected to use.
    `leased=False`: the holder lives in the caller's own process and is known to give the slot back,
    so its lease need not be renewed; after a restart it runs out like any other. `spread`: start only
    along the line that uses a window up evenly until its reset.
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
