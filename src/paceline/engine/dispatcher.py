"""Who is to wait for a slot: a few tickets per campaign and account, not one per unit.

A granted ticket is filled with the next unit that may run there, so a unit with several accounts simply goes
where a slot opens. Here: which tickets to keep in line. Never here: units, processes, the store.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from paceline.agents.account import Account
from paceline.core import Deferred, Governor, Ticket
from paceline.core.values.scopes import SESSIONS, path_scopes
from paceline.errors import InvalidInput, UnknownName
from paceline.store import Campaign

SHORTEST_LINE = 8
NO_ACCOUNT = ""
ATTEMPTS = ""
"""The namespace of session tickets: none. The ticket of a session is its attempt's id, which is stored as it is."""


class Line(msgspec.Struct, eq=False):
    """The tickets of one campaign on one account."""

    campaign: Campaign
    account: Account | None
    scopes: tuple[str, ...]
    waiting: dict[str, None] = msgspec.field(default_factory=dict)

    @property
    def account_name(self) -> str:
        return self.account.name if self.account is not None else NO_ACCOUNT


class Lines:
    """All lines of an engine, kept as long as there is work for them."""

    def __init__(self, governor: Governor, accounts: Mapping[str, Account], owner: str) -> None:
        self._governor = governor
        self._accounts = accounts
        self._owner = owner
        self._lines: dict[tuple[str, str], Line] = {}
        self._by_ticket: dict[str, Line] = {}
        self._troubles: dict[tuple[str, str], Deferred] = {}
        self._count = 0

    def fit(self, campaigns: Iterable[Campaign], claimable: Mapping[tuple[str, str | None], int], now: float) -> None:
        """As many tickets in line as there are units to fill them with, up to a few."""
        longest = max(SHORTEST_LINE, self._governor.get_limit(SESSIONS) or 0)
        wanted: list[Line] = []
        kept: set[tuple[str, str]] = set()
        self._troubles.clear()
        for campaign in campaigns:
            for account_name in campaign.accounts or (NO_ACCOUNT,):
                line = self._line_without_trouble(campaign, account_name, now)
                if line is None:
                    continue
                kept.add((campaign.name, account_name))
                units = claimable.get((campaign.name, None), 0) + claimable.get((campaign.name, account_name), 0)
                target = min(units, longest) if campaign.state == "active" else 0
                for ticket_id in list(line.waiting)[target:]:
                    self.give_back(ticket_id, now)
                wanted += [line] * (target - len(line.waiting))
            self._tell_stranded(campaign, claimable)
        self._drop_all_but(kept, now)
        wanted += self._passed_by(wanted, now)
        wanted.sort(key=lambda line: self._used(line, now))
        self._governor.request_all([self._ticket(line) for line in wanted], now=now)

    def _drop_all_but(self, kept: set[tuple[str, str]], now: float) -> None:
        """Nobody is to wait for a campaign that was deleted, or on an account that it does not name any more."""
        for key in [key for key in self._lines if key not in kept]:
            for ticket_id in list(self._lines.pop(key).waiting):
                self.give_back(ticket_id, now)

    def _tell_stranded(self, campaign: Campaign, claimable: Mapping[tuple[str, str | None], int]) -> None:
        """Units whose conversation lives on an account that the campaign no longer names wait, and say why."""
        for (name, account), units in claimable.items():
            if account and name == campaign.name and account not in campaign.accounts:
                detail = f"{units} units have their conversation on {account!r}, which the campaign does not name"
                self._troubles[name, account] = Deferred("", "held", f"campaign:{name}", detail)

    def _passed_by(self, wanted: Iterable[Line], now: float) -> list[Line]:
        """Tickets on accounts with less left line up again behind those of the same campaign on better accounts.

        At every pass: one that waited long would claim the next place for the worse account.
        """
        passed_by: list[Line] = []
        best: dict[str, float] = {}
        for line in (*wanted, *(line for line in self._lines.values() if line.waiting)):
            if len(line.campaign.accounts) > 1:
                best[line.campaign.name] = min(best.get(line.campaign.name, math.inf), self._used(line, now))
        for line in list(self._lines.values()) if best else ():
            if line.waiting and self._used(line, now) > best.get(line.campaign.name, math.inf):
                for ticket_id in list(line.waiting):
                    self.give_back(ticket_id, now)
                    passed_by.append(line)
        return passed_by

    def take(self, ticket_id: str) -> Line:
        """The ticket was granted and is filled with a unit."""
        line = self._by_ticket.pop(ticket_id)
        line.waiting.pop(ticket_id, None)
        return line

    def has(self, ticket_id: str) -> bool:
        """Whether the ticket is one of ours that no unit has filled."""
        return ticket_id in self._by_ticket

    def line_of(self, ticket_id: str) -> Line:
        return self._by_ticket[ticket_id]

    def give_back(self, ticket_id: str, now: float) -> None:
        """There is no unit for the ticket after all."""
        self.take(ticket_id)
        self._governor.abandon(ticket_id, now=now)

    def why(self, now: float) -> dict[str, Deferred]:
        """What holds the first ticket of each line, by its name (`split_line`)."""
        reasons: dict[str, Deferred] = {}
        for (campaign, account), line in self._lines.items():
            first = next(iter(line.waiting), None)
            reason = self._governor.why(first, now=now) if first is not None else None
            if reason is not None:
                reasons[f"{campaign} {account}"] = reason
        for (campaign, account), trouble in self._troubles.items():
            reasons[f"{campaign} {account}"] = trouble
        return reasons

    def scopes(self, campaign: Campaign, account: Account | None) -> tuple[str, ...]:
        """What a session of the campaign on the account occupies."""
        own = (SESSIONS, f"campaign:{campaign.name}", f"agent:{campaign.agent}")
        if account is None:
            return own
        parts = (account.provider, account.name, campaign.model)
        return (*own, *path_scopes("/".join(part for part in parts if part)))

    def paths(self, campaign: Campaign) -> list[tuple[str, ...]]:
        """What its sessions occupy on each of the accounts that it names and that there are."""
        if not campaign.accounts:
            return [self.scopes(campaign, None)]
        known = [self._accounts[name] for name in campaign.accounts if name in self._accounts]
        return [self.scopes(campaign, account) for account in known]

    def _line_without_trouble(self, campaign: Campaign, account_name: str, now: float) -> Line | None:
        """One campaign that cannot be placed must not hold up the others: it waits, and says why."""
        try:
            line = self._line(campaign, account_name, now)
            self._governor.check(Ticket("", line.scopes, group=campaign.name, priority=campaign.priority))
        except InvalidInput as error:
            scope = f"campaign:{campaign.name}"
            self._troubles[campaign.name, account_name] = Deferred("", "held", scope, str(error))
            return None
        return line

    def _line(self, campaign: Campaign, account_name: str, now: float) -> Line:
        """A campaign that was changed gets a new line: its priority or model may be another."""
        line = self._lines.get((campaign.name, account_name))
        if line is None or line.campaign != campaign:
            for ticket_id in list(line.waiting) if line is not None else ():
                self.give_back(ticket_id, now)
            account = self._account(account_name)
            line = Line(campaign, account, self.scopes(campaign, account))
            self._lines[campaign.name, account_name] = line
        return line

    def _account(self, name: str) -> Account | None:
        if name == NO_ACCOUNT:
            return None
        if name not in self._accounts:
            raise UnknownName(f"account {name!r} is not in paceline.toml; add [accounts.{name}]")
        return self._accounts[name]

    def _ticket(self, line: Line) -> Ticket:
        self._count += 1
        ticket_id = f"{self._owner}-{self._count}"
        line.waiting[ticket_id] = None
        self._by_ticket[ticket_id] = line
        campaign = line.campaign
        return Ticket(
            ticket_id,
            line.scopes,
            group=campaign.name,
            priority=campaign.priority,
            leased=False,
            spread=campaign.strategy == "spread",
        )

    def _used(self, line: Line, now: float) -> float:
        """Where several accounts have room, the one with most of its windows left goes first."""
        if line.account is None:
            return 0.0
        status = self._governor.status(f"{line.account.provider}/{line.account.name}", now=now)
        return max((window.best_ratio or 0.0 for window in status.windows), default=0.0) if status else 0.0


def split_line(line: str) -> tuple[str, str]:
    """The campaign and the account in the name of a line; only campaigns may have spaces in their names."""
    campaign, _, account = line.rpartition(" ")
    return campaign, account
