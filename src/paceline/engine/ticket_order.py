"""The order of the tickets of a campaign: the account with most left first, then the host with least to do."""

from collections.abc import Iterable, Sequence

import msgspec

from paceline.agents.account import Account, login_on
from paceline.core import Governor, Ticket
from paceline.core.values.scopes import SESSIONS
from paceline.engine.campaign_accounts import NO_ACCOUNT
from paceline.engine.placement import Placement, host_scope
from paceline.store import Campaign

MOST_MOVED = 256
"""Tickets that are moved in one pass because their host is busy: more would cost as much as the rest of the pass."""


class TicketQueue(msgspec.Struct, eq=False):
    """The waiting tickets of one campaign on one login, by id. `host` is '' for the leader's own machine."""

    campaign: Campaign
    account: Account | None
    scopes: tuple[str, ...]
    is_for_bound: bool = False
    """Whether only units whose conversation is on the login may fill it: the campaign no longer names it."""
    host: str = ""
    tickets: dict[str, Ticket] = msgspec.field(default_factory=dict)

    @property
    def account_id(self) -> str:
        return self.account.id if self.account is not None else NO_ACCOUNT

    @property
    def login(self) -> str:
        return login_on(self.account_id, self.host)


class TicketOrder:
    """What the order depends on, as it is at one moment."""

    def __init__(self, governor: Governor, placement: Placement, now: float) -> None:
        self._governor = governor
        self._placement = placement
        self._now = now
        self._used_ratios: dict[str, float] = {}
        self._sessions: dict[str, int] = {}

    def used_ratio(self, queue: TicketQueue) -> float:
        """Return how much of the account's fullest window is used: the account with most left goes first."""
        if queue.account is None:
            return 0.0
        scope = queue.account.scope
        if scope not in self._used_ratios:
            status = self._governor.status(scope, now=self._now)
            windows = status.windows if status is not None else ()
            self._used_ratios[scope] = max((window.best_ratio or 0.0 for window in windows), default=0.0)
        return self._used_ratios[scope]

    def load(self, host: str, more: int = 0) -> float:
        """Return how busy the host is, with so many sessions more: 1.0 is full."""
        return (self.sessions(host) + more) / self._placement.capacity(host)

    def sessions(self, host: str) -> int:
        """Return how many sessions occupy the host. Those of no other host are on the leader's own machine."""
        if host not in self._sessions:
            if host:
                self._sessions[host] = self._in_flight(host_scope(host))
            else:
                others = sum(self.sessions(each) for each in self._placement.hosts if each)
                self._sessions[host] = max(0, self._in_flight(SESSIONS) - others)
        return self._sessions[host]

    def _in_flight(self, scope: str) -> int:
        status = self._governor.status(scope, now=self._now)
        return 0 if status is None else status.in_flight

    def ordered(self, wanted: Sequence[TicketQueue], queues: Iterable[TicketQueue]) -> list[TicketQueue]:
        """Return the queues in the order in which each gets one more ticket. `queues` are all that exist."""
        hosts: dict[str, set[str]] = {}
        waiting: dict[tuple[str, str], int] = {}
        for queue in {id(queue): queue for queue in wanted}.values():
            hosts.setdefault(queue.campaign.name, set()).add(queue.host)
        spread = {name for name, found in hosts.items() if len(found) > 1}
        if not spread:
            return sorted(wanted, key=self.used_ratio)
        for queue in queues:
            if queue.tickets and queue.campaign.name in spread:
                key = queue.campaign.name, queue.host
                waiting[key] = waiting.get(key, 0) + len(queue.tickets)
        keyed: list[tuple[float, float, int, TicketQueue]] = []
        for place, queue in enumerate(wanted):
            key = queue.campaign.name, queue.host
            load = 0.0
            if queue.campaign.name in spread:
                waiting[key] = waiting.get(key, 0) + 1
                load = self.load(queue.host, waiting[key])
            keyed.append((self.used_ratio(queue), load, place, queue))
        return [queue for *_, queue in sorted(keyed, key=lambda each: each[:3])]

    def overloaded(self, queues: Sequence[TicketQueue]) -> list[TicketQueue]:
        """Return the queues of a campaign whose tickets others must pass, because their host has more to do.

        A host that would have less even with one session more is next. Accounts with less left do not count.
        """
        best = min(self.used_ratio(queue) for queue in queues)
        rivals = [queue for queue in queues if self.used_ratio(queue) == best]
        least = min(self.load(host, 1) for host in {queue.host for queue in rivals})
        first = min(rivals, key=_first_number)
        if self.load(first.host) < least:
            return []
        busy = [queue for queue in rivals if self.load(queue.host) >= least]
        return busy if sum(len(queue.tickets) for queue in busy) <= MOST_MOVED else []


def _first_number(queue: TicketQueue) -> int:
    """Return the number of the ticket that has waited longest: ids end with it."""
    return int(next(iter(queue.tickets)).rpartition("-")[2])
