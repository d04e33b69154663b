"""The tickets that wait for sessions: a few per campaign and login, not one per unit.

The dispatcher fills a granted ticket with the next unit that may run there, so a unit with several accounts or hosts
runs where a slot is granted first. Here: which tickets wait, and in which order: the account with most left first, then
the host with least to do. Never here: units, processes, the store.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from paceline.agents.account import Account, login_on, split_login
from paceline.core import Deferred, Governor, Ticket
from paceline.core.values.scopes import SESSIONS, path_scopes
from paceline.engine.dispatch.placement import (
    EXCLUDED_SECONDS,
    Exclusions,
    HostPatience,
    HostStates,
    Placement,
    Places,
    host_scope,
)
from paceline.engine.settings import NO_ACCOUNT, CampaignAccounts, EngineSettings
from paceline.errors import InvalidInput
from paceline.limiter.governor_driver import SEPARATOR
from paceline.settings.model import LOCAL_HOST
from paceline.store import Campaign, Unit

MOST_MOVED = 256
"""Tickets that are moved in one pass because their host is busy: more would cost as much as the rest of the pass."""


class TicketQueue(msgspec.Struct, eq=False):
    """The waiting tickets of one campaign on one login, by id. `host` is '' for the leader's own machine."""

    campaign: Campaign
    account: Account | None
    scopes: tuple[str, ...]
    login: str = NO_ACCOUNT
    is_for_bound: bool = False
    """Whether only units whose conversation is on the login may fill it: the campaign no longer names it."""
    host: str = ""
    tickets: dict[str, Ticket] = msgspec.field(default_factory=dict)


class Filling(msgspec.Struct):
    """One filling of the queues: what is known at that moment, what is wanted, and the order that follows."""

    governor: Governor
    placement: Placement
    now: float
    pool: int
    wanted: list[TicketQueue] = msgspec.field(default_factory=list)
    kept: set[tuple[str, str]] = msgspec.field(default_factory=set)
    _used_ratios: dict[str, float] = msgspec.field(default_factory=dict)
    _sessions: dict[str, int] = msgspec.field(default_factory=dict)

    def most_at_once(self, queue: TicketQueue) -> float:
        """Return how many tickets are worth keeping: no more than its account and its host take at once."""
        scopes = [host_scope(queue.host), *([queue.account.scope] if queue.account is not None else [])]
        return max(SHORTEST_QUEUE, min(self.governor.get_limit(scope) or math.inf for scope in scopes))

    def used_ratio(self, queue: TicketQueue) -> float:
        """Return how much of the account's fullest window is used: the account with most left goes first."""
        if queue.account is None:
            return 0.0
        scope = queue.account.scope
        if scope not in self._used_ratios:
            status = self.governor.status(scope, now=self.now)
            windows = status.windows if status is not None else ()
            self._used_ratios[scope] = max((window.best_ratio or 0.0 for window in windows), default=0.0)
        return self._used_ratios[scope]

    def load(self, host: str, more: int = 0) -> float:
        """Return how busy the host is, with so many sessions more: 1.0 is full."""
        return (self.sessions(host) + more) / self.placement.capacity(host)

    def sessions(self, host: str) -> int:
        """Return how many sessions occupy the host. Those of no other host are on the leader's own machine."""
        if host not in self._sessions:
            status = self.governor.status(host_scope(host) if host else SESSIONS, now=self.now)
            others = 0 if host else sum(self.sessions(each) for each in self.placement.hosts if each)
            self._sessions[host] = 0 if status is None else max(0, status.in_flight - others)
        return self._sessions[host]

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
        """Return the queues to move behind: their hosts have as much to do as another with one session more."""
        best = min(self.used_ratio(queue) for queue in queues)
        rivals = [queue for queue in queues if self.used_ratio(queue) == best]
        least = min(self.load(host, 1) for host in {queue.host for queue in rivals})
        first = min(rivals, key=lambda queue: int(next(iter(queue.tickets)).rpartition("-")[2]))  # waits longest
        if self.load(first.host) < least:
            return []
        busy = [queue for queue in rivals if self.load(queue.host) >= least]
        return busy if sum(len(queue.tickets) for queue in busy) <= MOST_MOVED else []


SHORTEST_QUEUE = 8
"""Tickets per queue, also for a small pool: more fill a burst of releases in one pass, fewer cost less to keep."""
TICKETS_PER_PLACE = 4
"""Tickets of a campaign for each place of the pool, over all its logins: some of them are on logins without room."""
MOST_REQUESTED = 1_000
"""Tickets that are requested in one pass: more than an engine starts in a second. The next pass requests the rest."""
ATTEMPTS = ""
"""The namespace of session tickets: none. The ticket of a session is its attempt's id, which is stored as it is."""


class TicketQueues:
    """All queues of an engine, kept as long as there is work for them."""

    def __init__(self, governor: Governor, settings: EngineSettings, owner: str, *, hosts: HostStates) -> None:
        if SEPARATOR in owner:
            raise InvalidInput(f"owner {owner!r:.80} names attempts and their tickets; it must not contain a colon")
        self._governor, self._owner, self.hosts = governor, owner, hosts
        self.accounts, self._settings = settings.campaign_accounts, settings
        self._exclusions: Exclusions = {}
        self.patience = HostPatience()
        self.queues: dict[tuple[str, str], TicketQueue] = {}
        self.by_ticket: dict[str, TicketQueue] = {}
        """The queue of each ticket that no unit has filled and that was not given back."""
        self._problems: dict[tuple[str, str], Deferred] = {}
        self._count = 0
        self.stranded: dict[str, int] = {}
        """How many claimable units of each campaign wait for a person, because their account is not named any more."""

    def fill(self, campaigns: Iterable[Campaign], claimable: Mapping[tuple[str, str | None], int], now: float) -> None:
        """Keep as many tickets waiting as there are units to fill them with, up to a few."""
        hosts = self.hosts(now)
        self._problems.clear()
        self.stranded.clear()
        self.patience.begin(hosts, now)
        if not (self.queues or any(claimable.values())):
            return
        machine, exclusions = self._settings.machine, self._exclusions
        placement = Placement(self.accounts, hosts, now=now, machine=machine, exclusions=exclusions)
        filling = Filling(self._governor, placement, now, self._governor.get_limit(SESSIONS) or 0)
        bound: dict[str, dict[str | None, int]] = {}
        for (name, login), units in claimable.items():
            if units:
                bound.setdefault(name, {})[login] = units
        for campaign in campaigns:
            if campaign.name in bound:  # a home has hundreds of campaigns that are done; their queues are dropped below
                self._fill_campaign(campaign, bound[campaign.name], filling)
        if len(filling.kept) < len(self.queues):  # campaigns were deleted, or logins cannot take theirs any more
            dropped = [self.queues.pop(key) for key in [*self.queues] if key not in filling.kept]
            self.give_back([ticket_id for queue in dropped for ticket_id in queue.tickets], now)
        wanted = filling.wanted
        if len(self.queues) > 1:  # else there is no order to find
            wanted = filling.ordered([*wanted, *self._moved_behind(wanted, filling)], self.queues.values())
        if len(wanted) > MOST_REQUESTED:
            wanted = _first_of_each(wanted, MOST_REQUESTED)
        if wanted:
            self._governor.request_all([self._new_ticket(queue) for queue in wanted], now=now)

    def _fill_campaign(self, campaign: Campaign, units: Mapping[str | None, int], filling: Filling) -> None:
        now = filling.now
        places = filling.placement.places(campaign)
        logins, default = places.logins, self.accounts.login_id(campaign)
        if default not in self.accounts.ids_of(campaign):
            # Units that began before the plan named accounts continue on the agent's default login.
            left = [split_login(login) for login in units if login is not None]
            logins += tuple(each for each in left if each[0] == default and each[1] not in places.refusals)
        # So many tickets of a campaign wait on one login: together, several times as many as the pool has places. A
        # campaign on many logins would otherwise keep the whole pool's number on each of them.
        each = math.ceil(TICKETS_PER_PLACE * filling.pool / max(1, len(logins)))
        longest = max(SHORTEST_QUEUE, min(filling.pool, each))
        has_long = longest > SHORTEST_QUEUE
        for account_id, host in logins:
            queue = self._usable_queue(campaign, account_id, host, now)
            if queue is None:
                continue
            filling.kept.add((campaign.name, queue.login))
            fitting = units.get(queue.login, 0) + (0 if queue.is_for_bound else units.get(None, 0))
            most = min(longest, filling.most_at_once(queue)) if has_long else longest
            target = int(min(fitting, most)) if campaign.state == "active" else 0
            if len(queue.tickets) > target:
                self.give_back(list(queue.tickets)[target:], now)
            filling.wanted += [queue] * (target - len(queue.tickets))
        for login, count in units.items():
            if login and (campaign.name, login) not in filling.kept and (campaign.name, login) not in self._problems:
                self._note_stranded(campaign, login, count, filling, places)
        if places.refusals:
            for host, refusal in places.shown(campaign).items():
                self._problems.setdefault((campaign.name, login_on(NO_ACCOUNT, host or LOCAL_HOST)), refusal)
        for login, problem in places.problems.items():
            self._problems.setdefault((campaign.name, login), problem)

    def _note_stranded(self, campaign: Campaign, login: str, units: int, filling: Filling, places: Places) -> None:
        """Explain why units wait whose conversation is on a login that cannot take them."""
        name = campaign.name
        account, host = split_login(login)
        if account not in (*self.accounts.ids_of(campaign), self.accounts.login_id(campaign)):
            have = "1 unit has its" if units == 1 else f"{units} units have their"
            detail = f"{have} conversation on {login!r}, which the campaign does not name"
            self._problems[name, login] = Deferred("", "held", f"campaign:{name}", detail)
            self.stranded[name] = self.stranded.get(name, 0) + units
            return
        refusal = filling.placement.refusal(campaign, account, host)
        has_others = bool(places.logins)
        self._problems[name, login] = self.patience.explain(
            campaign, login, refusal, filling.now, has_others=has_others
        )

    def _moved_behind(self, wanted: Iterable[TicketQueue], filling: Filling) -> list[TicketQueue]:
        """Take back tickets that those on better accounts or less busy hosts are to pass. Returns their queues."""
        moved: list[TicketQueue] = []
        is_wanted = {id(queue) for queue in wanted}
        by_campaign: dict[str, list[TicketQueue]] = {}
        for queue in self.queues.values():
            if queue.tickets or id(queue) in is_wanted:
                by_campaign.setdefault(queue.campaign.name, []).append(queue)
        for queues in by_campaign.values():
            waiting, behind = [queue for queue in queues if queue.tickets], list[TicketQueue]()
            if len(queues[0].campaign.accounts) > 1:
                best = min(map(filling.used_ratio, queues))
                # A ticket that waited long would take the next slot for the worse account else.
                behind = [queue for queue in waiting if filling.used_ratio(queue) > best]
                waiting = [queue for queue in waiting if filling.used_ratio(queue) == best]
            if len({queue.host for queue in waiting}) > 1:
                behind += filling.overloaded(waiting)
            for queue in behind:
                moved += [queue] * len(queue.tickets)
                self.give_back(list(queue.tickets), filling.now)
        return moved

    def give_back(self, ticket_ids: Sequence[str], now: float) -> None:
        """Abandon tickets: first those that wait, which would otherwise be granted the slots of the others."""
        for ticket_id in ticket_ids:
            self.take(ticket_id)
            self._governor.cancel(ticket_id, now=now)
        for ticket_id in ticket_ids:
            self._governor.abandon(ticket_id, now=now)

    def take(self, ticket_id: str) -> Ticket:
        """Remove a granted ticket that is being filled with a unit, and return it."""
        return self.by_ticket.pop(ticket_id).tickets.pop(ticket_id)

    def exclude(self, campaign: str, host: str, reason: str, now: float) -> None:
        """Keep the campaign away from the host for a while: a session could not work there."""
        self._exclusions[campaign, host] = (now + EXCLUDED_SECONDS, reason)

    def why(self, now: float) -> dict[str, Deferred]:
        """Return why the first ticket of each queue waits, by the name of the queue (`split_queue_name`)."""
        reasons: dict[str, Deferred] = {}
        for (campaign, login), queue in self.queues.items():
            first = next(iter(queue.tickets), None)
            reason = self._governor.why(first, now=now) if first is not None else None
            if reason is not None:
                reasons[f"{campaign} {login}"] = reason
        for (campaign, login), problem in self._problems.items():
            reasons[f"{campaign} {login}"] = problem
        return reasons

    def _usable_queue(self, campaign: Campaign, account_id: str, host: str, now: float) -> TicketQueue | None:
        """Return the queue, a new one for a changed campaign; or note why the campaign cannot run there."""
        login = login_on(account_id, host)
        queue = self.queues.get((campaign.name, login))
        try:
            if queue is None or queue.campaign != campaign:
                if queue is not None:
                    self.give_back(list(queue.tickets), now)
                account = self.accounts.known(campaign, account_id)
                is_for_bound = account_id not in self.accounts.ids_of(campaign)
                scopes = session_scopes(campaign, account, host or self._settings.local_host)
                queue = TicketQueue(campaign, account, scopes, login, is_for_bound, host)
                self.queues[campaign.name, login] = queue
            self._governor.check(Ticket("", queue.scopes, group=campaign.name, priority=campaign.priority))
        except InvalidInput as error:
            self._problems[campaign.name, login] = Deferred("", "held", f"campaign:{campaign.name}", str(error))
            return None
        return queue

    def _new_ticket(self, queue: TicketQueue) -> Ticket:
        self._count += 1
        ticket = session_ticket(f"{self._owner}-{self._count}", queue.campaign, queue.scopes)
        queue.tickets[ticket.id] = ticket
        self.by_ticket[ticket.id] = queue
        return ticket


def _first_of_each(wanted: list[TicketQueue], most: int) -> list[TicketQueue]:
    """Return so many of the wanted tickets, in their order, with an equal part for each campaign."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int]] = []
    for place, queue in enumerate(wanted):
        ranked.append((seen[queue.campaign.name], place))
        seen[queue.campaign.name] += 1
    return [wanted[place] for place in sorted(place for _, place in sorted(ranked)[:most])]


def session_ticket(attempt_id: str, campaign: Campaign, scopes: tuple[str, ...]) -> Ticket:
    """Return the ticket of an attempt. It needs no lease: the engine knows when the session is over."""
    spread = campaign.strategy == "spread"
    return Ticket(attempt_id, scopes, group=campaign.name, priority=campaign.priority, leased=False, spread=spread)


def unit_ticket(
    unit: Unit, campaign: Campaign, accounts: CampaignAccounts, attempt_id: str, *, local_host: str = ""
) -> Ticket:
    """Return the ticket of a unit that runs, on the login that it was claimed for."""
    account_id, host = split_login(unit.account or "")
    account = accounts.of(campaign, account_id)
    return session_ticket(attempt_id, campaign, session_scopes(campaign, account, host or local_host))


def session_scopes(campaign: Campaign, account: Account | None, host: str = "") -> tuple[str, ...]:
    """Return the scopes that a session occupies. `host` is '' on a leader's machine that has no limit of its own."""
    where = (host_scope(host),) if host else ()
    own = (SESSIONS, f"campaign:{campaign.name}", *where, f"agent:{campaign.agent}")
    if account is None:
        return own
    parts = (account.provider, account.name, campaign.model)
    return (*own, *path_scopes("/".join(part for part in parts if part)))


def split_queue_name(name: str) -> tuple[str, str]:
    """Return the campaign and the login in the name of a queue. Only campaigns may have spaces in their names.

    What concerns a whole host has its name and no account: `#box1`.
    """
    campaign, _, login = name.rpartition(" ")
    return campaign, login


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
