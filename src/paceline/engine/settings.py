"""The part of the configuration that the engine uses, as one value, and which account a campaign or a unit means.

Campaigns run on the accounts that they name, else on the default login of their agent.
"""

import functools
import os
import platform
from collections.abc import Iterator, Mapping

import msgspec

from paceline.agents.account import DEFAULT, Account, GatewayAddress, account_id, portable_account, shipped_logins
from paceline.core import GovernorSettings
from paceline.core.unit_lifecycle import Policy
from paceline.errors import UnknownName
from paceline.executors.interface import OutputLimits
from paceline.hosts.messages import ProbedAccount, WorkerSettings
from paceline.settings.model import LOCAL_HOST, HostSettings, MachineTable, PriceList, price_list
from paceline.store import Campaign

LARGE_CONTEXT_TOKENS = 100_000
"""From this size on, starting over is cheaper than resuming: an agent that starts reads 20,000 to 50,000 tokens
before it works, and its workspace has what was done."""
NO_ACCOUNT = ""
"""The account of a plan's own command that names none: nobody knows whose quota it uses."""


@functools.cache
def this_host() -> str | None:
    """Return the name of this machine."""
    return platform.node() or None


class CampaignAccounts:
    """The configured accounts by id, and the default login of each agent by the agent's name."""

    def __init__(self, configured: Mapping[str, Account], logins: Mapping[str, Account]) -> None:
        self._logins = logins
        self._by_id = {account.id: account for account in (*logins.values(), *configured.values())}

    def __iter__(self) -> Iterator[Account]:
        """Yield every account once."""
        return iter(self._by_id.values())

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
        """Return the ids that its agent's login had before an account was configured for it, and the present one."""
        login = self._logins.get(campaign.agent)
        if login is None:
            return {}
        before = (NO_ACCOUNT, account_id(login.provider, DEFAULT))
        return {each: login.id for each in before if each != login.id}


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `stall` is how long a session may be silent and idle before it is stopped."""

    governor: GovernorSettings
    home: str = "."
    """The folder that holds workspaces and patches."""
    checks: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    """How many checks run at once where no limit for them is set."""
    accounts: dict[str, Account] = {}
    """The configured accounts, by id."""
    logins: dict[str, Account] = msgspec.field(default_factory=shipped_logins)
    """The default login of each agent, for campaigns that name no account."""
    programs: dict[str, str] = {}
    """The programs of the agents that the settings describe, by agent. Hosts look for them."""
    starts_work: bool = True
    """False for an engine that only serves the slots of programs: to it, every campaign is paused."""
    heartbeat: float = 1.0
    lease: float = 60.0
    stall: float | None = None
    policy: Policy = Policy()
    tz: str = "UTC"
    keep_events: float | None = None
    """How long events are kept; None: until there are too many."""
    output: OutputLimits = OutputLimits()
    """How much output of ended attempts is kept."""
    machine: MachineTable = MachineTable()
    gateway: GatewayAddress | None = None
    """Where sessions of accounts with `via_gateway` make their calls; None without a gateway."""

    hosts: dict[str, HostSettings] = {}
    """The machines that paceline.toml describes; `local` is the leader's own."""
    prices: PriceList = msgspec.field(default_factory=price_list)

    @property
    def local_host(self) -> str:
        """The host of sessions on the machine of the engine: `local` if that is limited like other hosts, else ''."""
        return LOCAL_HOST if LOCAL_HOST in self.hosts else ""

    @property
    def campaign_accounts(self) -> CampaignAccounts:
        return CampaignAccounts(self.accounts, self.logins)

    def for_workers(self, user_home: str | None) -> WorkerSettings:
        """Return what workers must know. Logins below the home folder of the user are below that of theirs."""
        accounts = (
            ProbedAccount(
                account=account.id,
                provider=account.provider,
                env=portable_account(account, user_home).env,
                key_env=account.key_env,
                agents=tuple(agent for agent, login in self.logins.items() if login.provider == account.provider),
                needs_login=not account.via_gateway,
            )
            for account in self.campaign_accounts
        )
        return WorkerSettings(
            accounts=tuple(accounts), agents=tuple(self.logins), programs=self.programs, output=self.output
        )

    @property
    def key_variables(self) -> frozenset[str]:
        """The variables that hold the keys of accounts."""
        return frozenset(account.key_env for account in self.accounts.values() if account.key_env is not None)
