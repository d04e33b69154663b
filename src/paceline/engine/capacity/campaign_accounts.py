"""The accounts that campaigns run on: those a campaign names, else the default login of its agent.

Here: which account a campaign or a unit means, and when a held login is asked again because somebody may have renewed
it. Never here: whether there is room on an account, and what a refusal means, which the Governor decides.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from paceline.agents.account import DEFAULT, Account, account_id
from paceline.agents.login import login_files
from paceline.core import Governor
from paceline.errors import UnknownName
from paceline.events import Event
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


Marks = tuple[tuple[int, int] | None, ...]
"""What changes when somebody logs in: time and size of the login files."""


class LoginWatch:
    """Asks a held login again when its file has changed. It may have changed while no engine ran, too."""

    def __init__(self, governor: Governor, accounts: Iterable[Account], environ: Mapping[str, str]) -> None:
        self._governor = governor
        self._accounts = {account.scope: account for account in accounts}
        self._environ = environ
        self.held: dict[str, Marks | None] = {}
        """The marks of held logins as they were when they were last asked; None to ask them at the next step."""

    def start(self, now: float) -> None:
        """Let every login that is held already be asked once."""
        self.held = {scope: None for scope in self._accounts if self._is_held(scope, now)}

    def note_holds(self, events: Iterable[Event]) -> None:
        """Watch the logins that are held from now on."""
        for event in events:
            if event.name == "account.held" and event.scope in self._accounts:
                self.held.setdefault(event.scope, self._marks(event.scope))

    def step(self, now: float) -> None:
        """Ask held logins again whose files have changed."""
        for scope, before in list(self.held.items()):
            if not self._is_held(scope, now):
                del self.held[scope]
            elif (marks := self._marks(scope)) != before and self._governor.ask_login_again(scope, now=now):
                self.held[scope] = marks

    def _is_held(self, scope: str, now: float) -> bool:
        status = self._governor.status(scope, now=now)
        return status is not None and status.held is not None

    def _marks(self, scope: str) -> Marks:
        return tuple(_mark(path) for path in login_files(self._accounts[scope], self._environ))


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
