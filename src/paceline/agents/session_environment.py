"""The environment of a session: the user's own, less what could bill another payer or leak a secret.

Here: pure functions of a base environment, a profile, an account and the rules of a plan. Never here: the names of
variables (`withheld_variables.py`), files, or starting a process.
"""

import functools
from collections.abc import Iterable, Mapping

import msgspec

from paceline.agents.account import Account
from paceline.agents.profile import AgentProfile, load_agent
from paceline.agents.withheld_variables import TOKEN_VARIABLE, is_in_strict_list, is_withheld, matches_any
from paceline.errors import InvalidInput, WouldBillKey

AGENT_OF_PROVIDER = {
    "anthropic": "claude",
    "openai": "codex",
    "google": "gemini",
    "gemini": "gemini",
    "qwen": "qwen",
    "alibaba": "qwen",
    "github": "copilot",
}
"""The agent whose profile lists the variables that bill a key of this provider."""
SDK_KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Where the SDKs of a provider read a key, for a plan's own command. All others use OpenAI's."""
ANY_PROVIDER = "*"
NOTHING: Mapping[str, str] = {}


class EnvironmentRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which variables a session inherits: the rules of its plan, and the variables that hold the keys of accounts."""

    env_pass: tuple[str, ...] = ()
    """Names or patterns that are not withheld."""
    env_strict: bool = False
    """Whether only a short allow-list is inherited."""
    allow_metered: bool = False
    """Whether a session without an account may bill a key."""
    key_variables: frozenset[str] = frozenset()
    """The `key_env` of every account."""


class SessionEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The variables of a session, and the names that it does not inherit."""

    env: dict[str, str]
    withheld: tuple[str, ...] = ()


def session_environment(
    profile: AgentProfile,
    account: Account | None,
    base_env: Mapping[str, str],
    rules: EnvironmentRules,
    added: Mapping[str, str] = NOTHING,
    gateway_variables: Mapping[str, str] | None = None,
) -> SessionEnvironment:
    """Return the environment of a session: what it inherits, then variables of the profile, the plan and the account.

    `added` are the variables of the plan. With `gateway_variables` these take the place of the account's own key.
    Raise `WouldBillKey` if a key would be billed instead of a subscription, `InvalidInput` if the own key is not set.
    """
    billed = metered_variables(profile, account)
    passed = {name for name in base_env if matches_any(name, rules.env_pass)} if rules.env_pass else set()
    has_key = account is not None and account.kind == "metered" and account.key_env is not None
    if has_key or not may_bill(account, rules):
        own = {key_variable(profile, account), account.key_env} if account is not None and has_key else set()
        _refuse_metered(account, billed, (passed | added.keys()) - own)
    kept = passed | _login_variables(profile, account)
    inherited = {name: value for name, value in base_env.items() if name in kept or _is_inherited(name, rules, billed)}
    own_env = _expanded(account.env, base_env) if account is not None else {}
    env = {**inherited, **profile.environment, **added, **own_env}
    if gateway_variables is None:
        env |= _own_key(profile, account, base_env, rules)
    else:
        env = {name: value for name, value in env.items() if not matches_any(name, billed)} | dict(gateway_variables)
    return SessionEnvironment(env=env, withheld=tuple(sorted(base_env.keys() - env.keys())))


class EnvironmentMemory:
    """Remembers the environment that was made last: most sessions that follow each other have the same one."""

    def __init__(self) -> None:
        self._given: tuple[object, ...] | None = None
        self._made = SessionEnvironment(env={})

    def session_environment(
        self,
        profile: AgentProfile,
        account: Account | None,
        base_env: Mapping[str, str],
        rules: EnvironmentRules,
        added: Mapping[str, str] = NOTHING,
        gateway_variables: Mapping[str, str] | None = None,
    ) -> SessionEnvironment:
        """Return what the function of this name returns. Nothing that was given may be changed later."""
        given = (profile, account, base_env, rules, added, gateway_variables)
        if given != self._given:
            self._made = session_environment(profile, account, base_env, rules, added, gateway_variables)
            self._given = given
        return self._made


def program_environment(base_env: Mapping[str, str], rules: EnvironmentRules) -> SessionEnvironment:
    """Return the environment of a plain program that a person starts: their own, less Paceline's token and the keys
    of accounts, unless they are readmitted."""
    ours = rules.key_variables | {TOKEN_VARIABLE}
    env = {name: value for name, value in base_env.items() if name not in ours or matches_any(name, rules.env_pass)}
    return SessionEnvironment(env=env, withheld=tuple(sorted(base_env.keys() - env.keys())))


@functools.lru_cache(maxsize=4096)  # every session of a plan asks about the same names
def _is_inherited(name: str, rules: EnvironmentRules, billed: frozenset[str]) -> bool:
    if rules.env_strict:
        return is_in_strict_list(name)
    return not (name in rules.key_variables or is_withheld(name) or matches_any(name, billed))


def may_bill(account: Account | None, rules: EnvironmentRules) -> bool:
    """Return whether a session may bill a key: its account is metered, or the plan accepts it for a default login."""
    is_default = account is None or account.is_implicit
    return rules.allow_metered if is_default else account is not None and account.kind == "metered"


def metered_variables(profile: AgentProfile, account: Account | None) -> frozenset[str]:
    """Return names and patterns of variables that make this agent, or a command in its place, bill a key."""
    return frozenset(name for each in _profiles(profile, account) for name in each.metered_variables)


def _profiles(profile: AgentProfile, account: Account | None) -> list[AgentProfile]:
    """Return the profile, and that of the provider's own CLI: a command may start it."""
    agent = AGENT_OF_PROVIDER.get(account.provider) if account is not None else None
    return [profile] if agent is None else [profile, load_agent(agent)]


def _login_variables(profile: AgentProfile, account: Account | None) -> frozenset[str]:
    """Return the variables that are the login of the session: those of the CLI, unless the account has its own."""
    if account is None or account.is_implicit:
        return frozenset(name for each in _profiles(profile, account) for name in each.login_variables)
    if account.kind == "metered" or _has_own_login(account):
        return frozenset()
    return frozenset(name for each in _profiles(profile, account) for name in each.login_variables)


def _has_own_login(account: Account) -> bool:
    """Return whether the account names the folder of its login. A token in the environment is then another login."""
    return any(name == "HOME" or name.endswith(("_DIR", "_HOME")) for name in account.env)


def _refuse_metered(account: Account | None, billed: frozenset[str], set_by_plan: set[str]) -> None:
    """Refuse variables that would be billed instead of the account: its own, those of the plan, and readmitted ones."""
    is_subscription = account is not None and account.kind == "subscription"
    if account is None or account.is_implicit:
        who, fix = "the plan names no account", "remove it, or set allow_metered = true"
    elif is_subscription:
        who, fix = f"account {account.name!r} is a subscription", "remove it, or make the account metered"
    else:
        who, fix = f"account {account.name!r} bills the key in {account.key_env}", "remove it"
    if account is not None and is_subscription and (named := _matching(account.env, billed)):
        raise WouldBillKey(f"{who}, but its env sets {named}, which would be billed instead; {fix}")
    if named := _matching(set_by_plan, billed):
        raise WouldBillKey(
            f"{who}, but the plan's env or env_pass gives its sessions {named}, which would be billed instead; {fix}"
        )


def _matching(names: Iterable[str], patterns: frozenset[str]) -> str:
    return ", ".join(sorted(name for name in names if matches_any(name, patterns)))


def _own_key(
    profile: AgentProfile, account: Account | None, base_env: Mapping[str, str], rules: EnvironmentRules
) -> dict[str, str]:
    """Return the key of a metered account under the name that the CLI reads.

    Without `key_env` that is the variable of the CLI itself, unless it belongs to another account.
    """
    if account is None or account.is_implicit or account.kind != "metered":
        return {}
    variable = key_variable(profile, account)
    source = account.key_env or variable
    value = account.env.get(source) or base_env.get(source)
    if account.key_env is None:
        return {variable: value} if value and variable not in rules.key_variables else {}
    if not value:
        raise InvalidInput(f"account {account.name!r} takes its key from {account.key_env}, which is not set")
    named_too = {} if profile.start else {source: value}  # a plan's own command may read it by its own name
    return {variable: value, **named_too}


def key_variable(profile: AgentProfile, account: Account) -> str:
    """Return the variable in which the agent reads a key of the account's provider."""
    names = profile.key_variables
    found = names.get(account.provider) or names.get(ANY_PROVIDER)
    if found is not None:
        return found
    if not profile.start:
        return SDK_KEY_VARIABLES.get(account.provider, "OPENAI_API_KEY")
    return account.key_env or next((name for name in profile.metered_variables if "*" not in name), "")


def _expanded(env: Mapping[str, str], base_env: Mapping[str, str]) -> dict[str, str]:
    return {name: _expand_home(value, base_env) for name, value in env.items()}


def _expand_home(value: str, base_env: Mapping[str, str]) -> str:
    home = base_env.get("HOME")
    return home + value[1:] if home and (value == "~" or value.startswith("~/")) else value
