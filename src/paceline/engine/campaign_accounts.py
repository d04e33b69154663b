"""The accounts that campaigns run on: those a campaign names, else the default login of its agent.

Here: which account a campaign or a unit means. Never here: whether there is room on it.
"""

from collections.abc import Iterator, Mapping

import msgspec

from paceline.agents.account import DEFAULT, Account, account_id
from paceline.errors import UnknownName
from paceline.store import Campaign

NO_ACCOUNT = ""
"""The account of a plan's own command that names none: nobody knows whose quota it uses."""


class CampaignAccounts:
    """The configured accounts by id, and the default login of each agent by the agent's name."""

    def __init__(self, configured: Mapping[str, Account], logins: Mapping[str, Account]) -> None:
        self._configured = configured
        self._logins = logins
        self._by_id = {account.id: account for account in (*logins.values(), *configured.values())}

    def __iter__(self) -> Iterator[Account]:
        """Yield every account once."""
        return iter(self._by_id.values())

    def find(self, account: str) -> Account | None:
        """Return the account with this id."""
        return self._by_id.get(account)

    def ids_of(self, campaign: Campaign) -> tuple[str, ...]:
        """Return the ids of the accounts that may run its units; `NO_ACCOUNT` for a command without any."""
        return campaign.accounts or (self.login_id(campaign),)

    def login_id(self, campaign: Campaign) -> str:
        """Return the id of its agent's default login, or `NO_ACCOUNT`."""
        login = self._logins.get(campaign.agent)
        return NO_ACCOUNT if login is None else login.id

    def of(self, campaign: Campaign, account: str) -> Account | None:
        """Return an account as the campaign uses it: one that accepts metered use may bill its default login."""
        found = self._by_id.get(account)
        if found is not None and found.is_implicit and campaign.allow_metered:
            return msgspec.structs.replace(found, kind="metered")
        return found

    def known(self, campaign: Campaign, account: str) -> Account | None:
        """Return an account as the campaign uses it; None for `NO_ACCOUNT`. Raise `UnknownName` if there is none."""
        found = self.of(campaign, account)
        if found is None and account != NO_ACCOUNT:
            raise UnknownName(f"account {account!r} is not in paceline.toml; add [accounts.{account}]")
        return found

    def moved_ids(self, campaign: Campaign) -> dict[str, str]:
        """Return the ids under which units of earlier versions or settings know its agent's login, and the present one.

        A plan without accounts once had no account at all, and an account may have been configured since that is the
        same login.
        """
        login = self._logins.get(campaign.agent)
        if login is None:
            return {}
        before = (NO_ACCOUNT, account_id(login.provider, DEFAULT))
        return {each: login.id for each in before if each != login.id}

    def moved_scopes(self) -> dict[str, str]:
        """Return the scopes under which something may have been learnt about a login, and its present scope."""
        moved: dict[str, str] = {}
        for agent, login in self._logins.items():
            moved[f"agent:{agent}"] = login.scope
            default = f"{login.provider}/{DEFAULT}"
            if login.scope != default:
                moved[default] = login.scope
        return moved
