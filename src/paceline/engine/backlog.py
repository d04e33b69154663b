"""How many units wait in each scope. Counting tickets is not enough: an engine requests only a few at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping

from paceline.engine.ticket_order import TicketQueue


def backlog(queues: Iterable[TicketQueue], claimable: Mapping[tuple[str, str | None], int]) -> dict[str, int]:
    """Return how many units could start in each scope if it had room, beyond those that a ticket waits there for."""
    waiting: Counter[str] = Counter()
    counted: set[tuple[str, str]] = set()
    for queue in queues:
        campaign = queue.campaign
        if campaign.state != "active":
            continue
        bound = claimable.get((campaign.name, queue.login), 0)
        fresh = 0 if queue.is_for_bound else claimable.get((campaign.name, None), 0)
        for scope in queue.scopes:
            waiting[scope] += bound - len(queue.tickets)
            if fresh and (campaign.name, scope) not in counted:  # it may start on any of its logins, but only once
                counted.add((campaign.name, scope))
                waiting[scope] += fresh
    return {scope: units for scope, units in waiting.items() if units > 0}
