"""The tickets that wait for sessions: a few per campaign and account, not one per unit.

The dispatcher fills a granted ticket with the next unit that may run there, so a unit with several accounts runs
where a slot is granted first. Here: which tickets wait. Never here: units, processes, the store.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from paceline.agents.account import Account
from paceline.core import Deferred, Governor, Ticket
from paceline.core.values.scopes import SESSIONS, path_scopes
from paceline.engine.campaign_accounts import NO_ACCOUNT, CampaignAccounts
from paceline.errors import InvalidInput, UnknownName
from paceline.limiter.governor_driver import SEPARATOR
from paceline.store import Campaign

SHORTEST_QUEUE = 8
"""Tickets per queue, also for a small pool: more fill a burst of releases in one pass, fewer cost less to keep."""
ATTEMPTS = ""
"""The namespace of session tickets: none. The ticket of a session is its attempt's id, which is stored as it is."""


class TicketQueue(msgspec.Struct, eq=False):
    """The waiting tickets of one campaign on one account, by id."""

    campaign: Campaign
    account: Account | None
    scopes: tuple[str, ...]
    is_for_bound: bool = False
    """Whether only units whose conversation is on the account may fill it: the campaign no longer names it."""
    tickets: dict[str, Ticket] = msgspec.field(default_factory=dict)

    @property
    def account_id(self) -> str:
        return self.account.id if self.account is not None else NO_ACCOUNT


class TicketQueues:
    """All queues of an engine, kept as long as there is work for them."""

    def __init__(self, governor: Governor, accounts: CampaignAccounts, owner: str) -> None:
        if SEPARATOR in owner:
            raise InvalidInput(f"owner {owner!r:.80} names attempts and their tickets; it must not contain a colon")
        self._governor = governor
        self._accounts = accounts
        self._owner = owner
        self._queues: dict[tuple[str, str], TicketQueue] = {}
        self._by_ticket: dict[str, TicketQueue] = {}
        self._problems: dict[tuple[str, str], Deferred] = {}
        self._used_ratios: dict[str, float] = {}
        """How much of each account was used when the queues were filled last."""
        self._count = 0
        self.stranded: dict[str, int] = {}
        """How many claimable units of each campaign wait for a person, because their account is not named any more."""

    def fill(self, campaigns: Iterable[Campaign], claimable: Mapping[tuple[str, str | None], int], now: float) -> None:
        """Keep as many tickets waiting as there are units to fill them with, up to a few."""
        longest = max(SHORTEST_QUEUE, self._governor.get_limit(SESSIONS) or 0)
        wanted: list[TicketQueue] = []
        kept: set[tuple[str, str]] = set()
        self._problems.clear()
        self._used_ratios.clear()
        self.stranded.clear()
        bound = _accounts_by_campaign(claimable)
        for campaign in campaigns:
            if campaign.name not in bound:
                continue  # a home has hundreds of campaigns that are done; its queue is dropped below
            named = self._accounts.ids_of(campaign)
            for account_id in (*named, *self._login_left(campaign, claimable)):
                queue = self._usable_queue(campaign, account_id, now)
                if queue is None:
                    continue
                kept.add((campaign.name, account_id))
                units = claimable.get((campaign.name, account_id), 0)
                if not queue.is_for_bound:
                    units += claimable.get((campaign.name, None), 0)
                target = min(units, longest) if campaign.state == "active" else 0
                for ticket_id in list(queue.tickets)[target:]:
                    self.give_back(ticket_id, now)
                wanted += [queue] * (target - len(queue.tickets))
            self._note_stranded(campaign, bound[campaign.name])
        self._drop_all_but(kept, now)
        wanted += self._passed_by(wanted, now)
        wanted.sort(key=lambda queue: self._used_ratio(queue, now))
        self._governor.request_all([self._new_ticket(queue) for queue in wanted], now=now)

    def _drop_all_but(self, kept: set[tuple[str, str]], now: float) -> None:
        """Drop the queues of deleted campaigns, and those on accounts that their campaign no longer names."""
        for key in [key for key in self._queues if key not in kept]:
            for ticket_id in list(self._queues.pop(key).tickets):
                self.give_back(ticket_id, now)

    def _login_left(self, campaign: Campaign, claimable: Mapping[tuple[str, str | None], int]) -> tuple[str, ...]:
        """Return the agent's default login if units began there before the plan named accounts: they continue there."""
        login = self._accounts.login_id(campaign)
        is_left = login not in self._accounts.ids_of(campaign) and claimable.get((campaign.name, login), 0) > 0
        return (login,) if is_left else ()

    def _note_stranded(self, campaign: Campaign, units_by_account: Mapping[str | None, int]) -> None:
        """Explain why units wait whose conversation is on an account that the campaign no longer names."""
        name = campaign.name
        known = (*self._accounts.ids_of(campaign), self._accounts.login_id(campaign))
        for account, units in units_by_account.items():
            if account and account not in known:
                have = "1 unit has its" if units == 1 else f"{units} units have their"
                detail = f"{have} conversation on {account!r}, which the campaign does not name"
                self._problems[name, account] = Deferred("", "held", f"campaign:{name}", detail)
                self.stranded[name] = self.stranded.get(name, 0) + units

    def _passed_by(self, wanted: Iterable[TicketQueue], now: float) -> list[TicketQueue]:
        """Move tickets on accounts with less left behind those of the same campaign on better accounts.

        This happens at every pass. A ticket that waited long would otherwise take the next slot for the worse account.
        """
        passed_by: list[TicketQueue] = []
        best: dict[str, float] = {}
        for queue in (*wanted, *(queue for queue in self._queues.values() if queue.tickets)):
            if len(queue.campaign.accounts) > 1:
                name = queue.campaign.name
                best[name] = min(best.get(name, math.inf), self._used_ratio(queue, now))
        for queue in list(self._queues.values()) if best else ():
            if queue.tickets and self._used_ratio(queue, now) > best.get(queue.campaign.name, math.inf):
                for ticket_id in list(queue.tickets):
                    self.give_back(ticket_id, now)
                    passed_by.append(queue)
        return passed_by

    def take(self, ticket_id: str) -> Ticket:
        """Remove a granted ticket that is being filled with a unit, and return it."""
        return self._by_ticket.pop(ticket_id).tickets.pop(ticket_id)

    def has(self, ticket_id: str) -> bool:
        """Return whether the ticket is in a queue: no unit has filled it, and it was not given back."""
        return ticket_id in self._by_ticket

    def queue_of(self, ticket_id: str) -> TicketQueue:
        return self._by_ticket[ticket_id]

    def is_excess(self, ticket_id: str, now: float) -> bool:
        """Return whether a limit has fallen since the ticket was granted, so that it is one too many."""
        return self._governor.is_excess(ticket_id, now=now)

    def give_back(self, ticket_id: str, now: float) -> None:
        """Abandon a ticket that has no unit to fill it."""
        self.take(ticket_id)
        self.abandon(ticket_id, now)

    def abandon(self, ticket_id: str, now: float) -> None:
        """Give up the slot of a ticket whose session could not be started."""
        self._governor.abandon(ticket_id, now=now)

    def why(self, now: float) -> dict[str, Deferred]:
        """Return why the first ticket of each queue waits, by the name of the queue (`split_queue_name`)."""
        reasons: dict[str, Deferred] = {}
        for (campaign, account), queue in self._queues.items():
            first = next(iter(queue.tickets), None)
            reason = self._governor.why(first, now=now) if first is not None else None
            if reason is not None:
                reasons[f"{campaign} {account}"] = reason
        for (campaign, account), problem in self._problems.items():
            reasons[f"{campaign} {account}"] = problem
        return reasons

    def _usable_queue(self, campaign: Campaign, account_id: str, now: float) -> TicketQueue | None:
        """Return the queue, or note why the campaign cannot run there. The other campaigns are not affected."""
        try:
            queue = self._queue(campaign, account_id, now)
            self._governor.check(Ticket("", queue.scopes, group=campaign.name, priority=campaign.priority))
        except InvalidInput as error:
            scope = f"campaign:{campaign.name}"
            self._problems[campaign.name, account_id] = Deferred("", "held", scope, str(error))
            return None
        return queue

    def _queue(self, campaign: Campaign, account_id: str, now: float) -> TicketQueue:
        """Return the queue; a new one for a campaign that was changed, because its priority or model may differ."""
        queue = self._queues.get((campaign.name, account_id))
        if queue is None or queue.campaign != campaign:
            for ticket_id in list(queue.tickets) if queue is not None else ():
                self.give_back(ticket_id, now)
            account = self._account(campaign, account_id)
            is_for_bound = account_id not in self._accounts.ids_of(campaign)
            queue = TicketQueue(campaign, account, session_scopes(campaign, account), is_for_bound)
            self._queues[campaign.name, account_id] = queue
        return queue

    def _account(self, campaign: Campaign, account_id: str) -> Account | None:
        account = self._accounts.of(campaign, account_id)
        if account is None and account_id != NO_ACCOUNT:
            raise UnknownName(f"account {account_id!r} is not in paceline.toml; add [accounts.{account_id}]")
        return account

    def _new_ticket(self, queue: TicketQueue) -> Ticket:
        self._count += 1
        ticket = session_ticket(f"{self._owner}-{self._count}", queue.campaign, queue.scopes)
        queue.tickets[ticket.id] = ticket
        self._by_ticket[ticket.id] = queue
        return ticket

    def _used_ratio(self, queue: TicketQueue, now: float) -> float:
        """Return how much of the account's fullest window is used: the account with most left goes first."""
        if queue.account is None:
            return 0.0
        scope = queue.account.scope
        if scope not in self._used_ratios:
            status = self._governor.status(scope, now=now)
            windows = status.windows if status is not None else ()
            self._used_ratios[scope] = max((window.best_ratio or 0.0 for window in windows), default=0.0)
        return self._used_ratios[scope]


def _accounts_by_campaign(claimable: Mapping[tuple[str, str | None], int]) -> dict[str, dict[str | None, int]]:
    """Return the claimable units of each campaign that has some, by the account that their conversation is bound to."""
    found: dict[str, dict[str | None, int]] = {}
    for (campaign, account), units in claimable.items():
        if units:
            found.setdefault(campaign, {})[account] = units
    return found


def session_ticket(attempt_id: str, campaign: Campaign, scopes: tuple[str, ...]) -> Ticket:
    """Return the ticket of an attempt. It needs no lease: the engine knows when the session is over."""
    return Ticket(
        attempt_id,
        scopes,
        group=campaign.name,
        priority=campaign.priority,
        leased=False,
        spread=campaign.strategy == "spread",
    )


def session_scopes(campaign: Campaign, account: Account | None) -> tuple[str, ...]:
    """Return the scopes that a session of the campaign occupies on the account."""
    own = (SESSIONS, f"campaign:{campaign.name}", f"agent:{campaign.agent}")
    if account is None:
        return own
    parts = (account.provider, account.name, campaign.model)
    return (*own, *path_scopes("/".join(part for part in parts if part)))


def split_queue_name(name: str) -> tuple[str, str]:
    """Return the campaign and the account in the name of a queue. Only campaigns may have spaces in their names."""
    campaign, _, account = name.rpartition(" ")
    return campaign, account
