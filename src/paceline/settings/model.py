"""The settings as values, with their defaults, and what tokens cost: the shipped prices, and those that the user sets.

Never here: reading the user's files, checking, or who pays.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

import msgspec

from paceline.agents import Account, AgentProfile, agent_names, load_agent
from paceline.agents.account import DEFAULT, account_id, default_account
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_model
from paceline.core.values.session_output import Tokens
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode, Rate

_MILLION = 1_000_000
_FILE = "prices.toml"


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens. Without a price of its own, the cache costs what other input costs."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    long_above: int | None = None
    """Tokens of a prompt above which all of the call costs more."""

    def cost(self, tokens: Tokens) -> float:
        """Return the dollars that the tokens cost."""
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        dollars = tokens.input * self.input + tokens.output * self.output
        return (dollars + tokens.cache_read * cache_read + tokens.cache_write * cache_write) / _MILLION


class PriceList(msgspec.Struct, frozen=True):
    """Prices by model, in the one spelling of its name."""

    prices: dict[str, Price]

    def cost(self, by_model: Mapping[str, Tokens]) -> float | None:
        """Return the dollars that the tokens cost, or None if one of the models has no price."""
        total = 0.0
        for model, tokens in by_model.items():
            if not tokens.total:
                continue
            price = self.prices.get(canonical_model(model))
            if price is None:
                return None
            total += price.cost(tokens)
        return total

    def cost_of_call(
        self, model: str | None, tokens: Tokens, served: Mapping[str, str], extras: Mapping[str, int]
    ) -> float | None:
        """Return the dollars that one call costs, None if its model has no price.

        `served` is how it was served, by the member that names it, such as `service_tier`, and `extras` what it used
        beside tokens at the list price. What several vendors or models price differently counts at its dearest.
        """
        price = self.prices.get(canonical_model(model or ""))
        if price is None or not tokens.total:
            return self.cost({model or "": tokens})
        surcharges = shipped_prices().surcharges
        prompt, answer = price.cost(msgspec.structs.replace(tokens, output=0)), tokens.output * price.output / _MILLION
        hour_price = surcharges.hour_cache_write * price.input - (price.cache_write or price.input)
        prompt += extras.get("hour_cache_write", 0) * max(0.0, hour_price) / _MILLION
        prompt += extras.get("audio", 0) * (surcharges.audio - 1) * price.input / _MILLION
        if price.long_above is not None and tokens.sent > price.long_above:
            prompt, answer = surcharges.long_prompt * prompt, surcharges.long_answer * answer
        factor = 1.0
        for name, tiers in surcharges.tiers.items():
            factor *= tiers.get(served.get(name, ""), 1.0)
        return factor * (prompt + answer) + extras.get("web_search", 0) * surcharges.web_search


class _Surcharges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What calls cost beyond the list price, in multiples of it. A search has its price in dollars."""

    long_prompt: float
    long_answer: float
    hour_cache_write: float
    audio: float
    web_search: float
    tiers: dict[str, dict[str, float]]


class _PriceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    surcharges: _Surcharges
    models: dict[str, Price]


def price_list(own: Mapping[str, Price] | None = None) -> PriceList:
    """Return the shipped prices with the user's own in place of those of the same model."""
    shipped = {canonical_model(name): price for name, price in shipped_prices().models.items()}
    return PriceList(shipped | {canonical_model(name): price for name, price in (own or {}).items()})


@lru_cache(maxsize=1)
def shipped_prices() -> _PriceFile:
    """Return the prices that this version of Paceline knows, and their date."""
    text = resources.files(__package__).joinpath(_FILE).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _PriceFile)


# -- the settings ------------------------------------------------------------------------------------

DEFAULT_COOLDOWN_SECONDS = 0.35
"""Covers the usual release lag of providers, at a small cost in throughput."""
Strategy = Literal["rush", "spread"]
SHIPPED = "shipped"
LOCAL_HOST: Final = "local"
"""The name of the leader's own machine among its hosts."""
SHIPPED_LIMITS: dict[str, int | None] = {
    SESSIONS: 4,
    RUNS: 50,
    "anthropic/*/opus-*": 4,
    "anthropic/*/sonnet-*": 24,
}


class ConfiguredLimit(msgspec.Struct, frozen=True):
    """A limit (None: unlimited) and where it comes from: `shipped`, a file, `environment` or `flags`."""

    scope: str
    limit: int | None
    source: str


def shipped_limits() -> dict[str, ConfiguredLimit]:
    return {scope: ConfiguredLimit(scope, limit, SHIPPED) for scope, limit in SHIPPED_LIMITS.items()}


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cooldown: Cooldown | None = None
    """None for the default of each account."""
    headroom: HeadroomMode = "adaptive"
    usage_url: str | None = None


class FallbackRoute(msgspec.Struct, frozen=True):
    """Where requests of a pool go while none of its accounts is open. `model` None: the model of the request."""

    account: str
    model: str | None = None


class KeyPoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A [key_pools.NAME] table: metered accounts of one provider behind one address of the gateway."""

    name: str
    accounts: tuple[str, ...]
    fallback: tuple[FallbackRoute, ...] = ()

    @property
    def all_accounts(self) -> tuple[str, ...]:
        """The accounts of the pool and of its fallback routes."""
        return (*self.accounts, *(route.account for route in self.fallback))


class EngineTable(msgspec.Struct, frozen=True, kw_only=True):
    """The [engine] table."""

    heartbeat: float = 1.0
    lease: float = 60.0
    max_attempts: int = 3
    stall: float = 1800.0
    """A session is ended after this many seconds without output and CPU time."""
    strategy: Strategy = "rush"


class ApiTable(msgspec.Struct, frozen=True, kw_only=True):
    """The [api] table. `hosts` are further names of the server, besides its address and the loopback."""

    host: str = "127.0.0.1"
    port: int = 7433
    hosts: tuple[str, ...] = ()
    tls_cert: str | None = None
    """The file with the certificate of the server, and those that link it to its authority. None: no TLS."""
    tls_key: str | None = None
    """The file with the key of the certificate. None: it is in the same file."""
    add_campaigns: bool = True
    """Whether campaigns may be added over HTTP. They can run commands."""
    drain: float = 30.0
    """How long calls of the gateway may still run after the daemon was asked to stop."""


class RetentionTable(msgspec.Struct, frozen=True, kw_only=True):
    """The [retention] table: how long things are kept. None: forever."""

    outputs: float | None = 14 * 86400.0
    """Seconds that prompts and output of ended attempts are kept."""
    events: float | None = 30 * 86400.0
    max_disk: int | None = 5 * 10**9
    """Bytes that the home may use. Beyond them, the oldest output goes first."""


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A [hosts.NAME] table: another machine, how a worker is started there, and what it may run.

    At most one of `ssh`, `slurm`, `ray` and `command` is set. Without any, a person starts the worker.
    """

    name: str
    ssh: str | None = None
    slurm: dict[str, str] | None = None
    ray: str | None = None
    command: tuple[str, ...] = ()
    """Starts the worker and returns. The words may contain `{name} {url} {token_file} {home} {labels}`."""
    alive: tuple[str, ...] = ()
    """Ends with 0 while the worker that `command` started is there, and with another code when it is not."""
    stop: tuple[str, ...] = ()
    """Ends the worker that `command` started."""
    connect: str | None = None
    """The URL by which the worker reaches the leader. None: chosen by the way it is started."""
    python: str | None = None
    """With `ssh`: a Python on the host that has Paceline already. None: Paceline is installed there.

    With `slurm` and `ray`: the Python on the nodes that has Paceline. None: the path of the leader's own Python.
    """
    ray_python: str | None = None
    """A Python on the leader's machine that has Ray. None: the leader's own."""
    ray_node: str | None = None
    """The node of Ray that is this host: its name, address or id. None: the node that has the name of the host."""
    home: str | None = None
    """The folder of the worker on the host. None: `~/.local/state/paceline/workers/NAME`."""
    max_sessions: int | None = None
    labels: tuple[str, ...] = ()
    host_lease: float = 600.0
    """Seconds without a leader after which the worker ends its sessions."""
    min_free_memory: int | None = None
    """Bytes. With less, no session is started there."""
    git_remote: str | None = None
    """Where branches are pushed to from the host, and fetched from. None: they come through the worker."""

    @property
    def launcher(self) -> str | None:
        """Return the way its worker is started: `ssh`, `slurm`, `ray` or `command`. None: a person starts it."""
        ways = {"ssh": self.ssh, "slurm": self.slurm, "ray": self.ray, "command": self.command or None}
        return next((way for way, value in ways.items() if value is not None), None)


class MachineTable(msgspec.Struct, frozen=True, kw_only=True):
    """The [machine] table: when the leader's own machine starts no session. None: never by this rule."""

    min_free_memory: int | None = None
    """Bytes. With less, no session is started."""
    max_load: float | None = None
    """The load average of one minute. Above it, no session is started."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked. `limits` are by scope or pattern and include `sessions` and `runs`."""

    home: Path
    """The folder of state, spool and database. It may not exist yet."""
    file: Path | None = None
    """The paceline.toml that was read."""
    limits: dict[str, ConfiguredLimit] = msgspec.field(default_factory=shipped_limits)
    providers: dict[str, ProviderSettings] = {}
    accounts: dict[str, Account] = {}
    """By id: the account's name, or `PROVIDER/default`."""
    default_logins: dict[str, str] = {}
    """The configured accounts that are a provider's default login, by provider."""
    key_pools: dict[str, KeyPoolSettings] = {}
    """Pools of keys by name. No account has the name of a pool."""
    rates: dict[str, Rate] = {}
    """By scope or pattern, including those of accounts."""
    engine: EngineTable = EngineTable()
    api: ApiTable = ApiTable()
    retention: RetentionTable = RetentionTable()
    hosts: dict[str, HostSettings] = {}
    """Other machines, by name. `local` is the leader's own."""
    machine: MachineTable = MachineTable()
    prices: dict[str, Price] = {}
    """The user's own prices by model. They replace shipped ones."""
    store_url: str
    agents: dict[str, AgentProfile] = {}
    """The user's own profiles. They replace shipped ones of the same name."""

    @property
    def sqlite_path(self) -> Path | None:
        """Return the file of the store; None if it is not SQLite."""
        prefix = "sqlite:///"
        return Path(self.store_url.removeprefix(prefix)) if self.store_url.startswith(prefix) else None

    @property
    def key_variables(self) -> frozenset[str]:
        """The variables that hold the keys of accounts."""
        return frozenset(account.key_env for account in self.accounts.values() if account.key_env is not None)

    @property
    def gateway_addresses(self) -> list[str]:
        """The names that a path of the gateway may begin with: metered accounts and pools of keys."""
        metered = [account.name for account in self.accounts.values() if account.kind != "subscription"]
        return sorted([*metered, *self.key_pools])

    def agent_names(self) -> list[str]:
        return sorted({*agent_names(), *self.agents})

    def agent(self, name: str) -> AgentProfile:
        """Return the user's profile of this name, else the shipped one. Raise `InvalidInput` if there is neither."""
        return self.agents[name] if name in self.agents else load_agent(name)

    def login(self, agent: str) -> Account | None:
        """Return the account of an agent's default login; None for a plan's own command or an agent that is unknown."""
        if agent not in self.agent_names():
            return None  # a stored campaign may name an agent that the settings had once
        account = default_account(self.agent(agent))
        return None if account is None else self._default_of(account.provider)

    def account(self, account_id: str) -> Account | None:
        """Return a configured account, or the default login of a provider, by its id."""
        provider, _, name = account_id.rpartition("/")
        if account_id in self.accounts or name != DEFAULT or provider not in self._login_providers():
            return self.accounts.get(account_id)
        return self._default_of(provider)

    def account_at(self, scope: str) -> Account | None:
        """Return the account that a provider path names, with or without a model."""
        name = "/".join(scope.split("/", 2)[:2])
        return self.account(name) or next((each for each in self.accounts.values() if each.scope == name), None)

    def login_scope(self, scope: str) -> str:
        """Return the scope that a login is counted under: `anthropic/default` may be a configured account."""
        provider, _, rest = scope.partition("/")
        name, slash, model = rest.partition("/")
        login = self.accounts.get(self.default_logins.get(provider, "")) if name == DEFAULT else None
        return scope if login is None else f"{login.scope}{slash}{model}"

    def campaign_accounts(self, agent: str, named: Sequence[str]) -> list[Account]:
        """Return the accounts that a campaign runs on: those it names and that exist, else its agent's login."""
        found = [self.account(each) for each in named] if named else [self.login(agent)]
        return [account for account in found if account is not None]

    def _login_providers(self) -> set[str]:
        """Return the providers whose login some agent uses."""
        accounts = [default_account(self.agent(name)) for name in self.agent_names()]
        return {account.provider for account in accounts if account is not None}

    def _default_of(self, provider: str) -> Account:
        configured = self.accounts.get(self.default_logins.get(provider, account_id(provider, DEFAULT)))
        implicit = Account(name=DEFAULT, provider=provider, kind="subscription", is_implicit=True)
        return configured or implicit

    def provider(self, name: str) -> ProviderSettings:
        """Return the provider's table, or the defaults."""
        return self.providers.get(name) or ProviderSettings(name=name)


def governor_settings(settings: Settings) -> GovernorSettings:
    """Return the part of the settings that the Governor uses."""
    hosts: dict[str, int | None] = {
        f"host:{host.name}": host.max_sessions for host in settings.hosts.values() if host.max_sessions
    }
    return GovernorSettings(
        limits=hosts | {entry.scope: entry.limit for entry in settings.limits.values()},
        cooldown=DEFAULT_COOLDOWN_SECONDS,
        cooldowns={
            name: provider.cooldown for name, provider in settings.providers.items() if provider.cooldown is not None
        },
        lag_learnt=tuple(account.scope for account in settings.accounts.values() if _learns_lag(settings, account)),
        headrooms={name: provider.headroom for name, provider in settings.providers.items()},
        rates=settings.rates,
        reserves={account.scope: account.reserve for account in settings.accounts.values() if account.reserve},
        usage_scopes=tuple(name for name, provider in settings.providers.items() if provider.usage_url),
    )


def _learns_lag(settings: Settings, account: Account) -> bool:
    """Return whether refusals alone show how far the provider's count of the account lags: for most keys not at all."""
    provider = settings.provider(account.provider)
    return account.kind == "metered" and provider.headroom == "adaptive" and provider.usage_url is None
