"""Accounts: who pays for a session, how its calls reach the gateway, and the login that its CLI uses.

Here: frozen values, and the key derived for an account; whose login the default one is, its folder and files, whether
there is one, as far as files and variables show, and when it ends. Never here: environments, command lines, or whether
the provider accepts a login.
"""

import hashlib
import hmac
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from paceline.agents.profile import AgentProfile, agent_names, load_agent
from paceline.agents.surroundings import parse_json, parse_toml, read_content
from paceline.detect.json_objects import member

DEFAULT = "default"
"""The name of the account that every provider has: the login that its CLI uses by itself."""


def account_id(provider: str, name: str) -> str:
    """Return the name that is unique over all providers: the account's own, or `PROVIDER/default`."""
    return f"{provider}/{DEFAULT}" if name == DEFAULT else name


HOST_MARK = "#"
"""Stands between an account and a host. Neither may contain it."""


def login_on(account: str, host: str) -> str:
    """Return the name of an account's login on a host. On the machine of the leader (`host` is '') it has its id."""
    return f"{account}{HOST_MARK}{host}" if host else account


def split_login(login: str) -> tuple[str, str]:
    """Return the account and the host of a login; '' for the machine of the leader."""
    account, _, host = login.partition(HOST_MARK)
    return account, host


def login_text(login: str) -> str:
    """Return the name of a login as people are shown it: `max-1 on box1`."""
    account, host = split_login(login)
    return " on ".join(part for part in (account, host) if part)


class AccountFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an account is, and what people are shown of it. A `subscription` must never be billed by the token."""

    name: str
    provider: str
    kind: Literal["subscription", "metered"] = "metered"
    reserve: float = 0.0
    base_url: str | None = None


class Account(AccountFacts, frozen=True, kw_only=True):
    """Who pays for sessions and calls.

    It names the variable that holds the key, never the key itself. `~` in the `env` of settings is expanded.
    """

    env: dict[str, str] = {}
    key_env: str | None = None
    """The variable that holds the key of a metered account."""
    via_gateway: bool = False
    """Whether sessions of the account send their calls through the gateway, as runs of the session."""
    daily_budget: float | None = None
    """Dollars that the gateway's calls on it may cost in a day (UTC)."""
    expires: float | None = None
    """When its login or key ends, as a Unix time, if somebody has written it down."""
    is_implicit: bool = False
    """Whether it is the default login of an agent CLI that no setting describes."""

    @property
    def id(self) -> str:
        """The name that units and plans know it by."""
        return account_id(self.provider, self.name)

    @property
    def scope(self) -> str:
        return f"{self.provider}/{self.name}"


def portable_account(account: Account, user_home: str | None) -> Account:
    """Return the account with `~` for the user's home folder, which every host replaces by its own."""
    if not user_home:
        return account
    env = {name: _with_tilde(value, user_home.rstrip("/")) for name, value in account.env.items()}
    return msgspec.structs.replace(account, env=env)


def _with_tilde(value: str, home: str) -> str:
    return f"~{value[len(home) :]}" if value == home or value.startswith(f"{home}/") else value


def gateway_key(secret: str, account: str) -> str:
    """Return the key that sessions of an account present to the gateway. It opens nothing else."""
    return hmac.new(secret.encode(), b"paceline gateway " + account.encode(), hashlib.sha256).hexdigest()


class GatewayAddress(msgspec.Struct, frozen=True):
    """The address of the gateway, with the secret that the keys of sessions are derived from, or one such key alone."""

    url: str
    secret: str = ""
    key: str | None = None

    def key_of(self, account: str) -> str:
        """Return the key for sessions of the account."""
        return gateway_key(self.secret, account) if self.key is None else self.key

    def of_session(self, account: str, session: str) -> str:
        """Return the base URL for the calls of one session: calls to it count as its runs."""
        return f"{self.url}/gateway/{quote(account, safe='')}/~{quote(session, safe='')}"


# -- the login of a CLI ----------------------------------------------------------------------------

_VENDORS = {
    "claude": "anthropic",
    "codex": "openai",
    "gemini": "google",
    "qwen": "qwen",
    "copilot": "github",
    "openclaw": "openclaw",
    "opencode": "opencode",
    "aider": "aider",
}
"""The provider whose login a program uses. Any other CLI counts as a provider of its own."""
_FOLDERS = {
    "anthropic": ("CLAUDE_CONFIG_DIR", "", ".claude"),
    "openai": ("CODEX_HOME", "", ".codex"),
    "google": ("GEMINI_CLI_HOME", ".gemini", ".gemini"),
    "openclaw": ("OPENCLAW_STATE_DIR", "", ".openclaw"),
    "openclaw-gateway": ("OPENCLAW_GATEWAY_URL", "", ".openclaw"),
    "opencode": ("XDG_DATA_HOME", "opencode", ".local/share/opencode"),
}
"""The variable that moves a CLI's folder, the folder below its value, and the one in the home folder otherwise."""


def vendor_of(profile: AgentProfile) -> str:
    """Return the provider whose login the CLI uses. Profiles that start the same program share its login."""
    return _VENDORS.get(os.path.basename(profile.start[0]), profile.name)


def default_account(profile: AgentProfile) -> Account | None:
    """Return the account of the CLI's own login; None for a plan's own command, which has no login that we know."""
    if not profile.start:
        return None
    return Account(name=DEFAULT, provider=vendor_of(profile), kind="subscription", is_implicit=True)


def shipped_logins() -> dict[str, Account]:
    """Return the default login of every shipped agent, by the agent's name."""
    accounts = {name: default_account(load_agent(name)) for name in agent_names()}
    return {name: account for name, account in accounts.items() if account is not None}


def login_variable(provider: str) -> str | None:
    """Return the variable that moves the folder in which the provider's CLI keeps its login, if it has one."""
    return _FOLDERS[provider][0] if provider in _FOLDERS else None


def login_folder(provider: str, env: Mapping[str, str]) -> str:
    """Return the folder in which a CLI with this environment keeps its login. Two logins never share one."""
    variable, below, default = _FOLDERS.get(provider, ("", "", f".{provider}"))
    if moved := env.get(variable):
        return os.path.normpath(os.path.join(moved, below))
    return os.path.normpath(os.path.join(env.get("HOME") or os.path.expanduser("~"), default))


_FILES = {
    "anthropic": ((".credentials.json",), "claude"),
    "openai": (("auth.json",), "codex login"),
    "google": (("oauth_creds.json", "gemini-credentials.json"), "gemini"),
    "qwen": (("oauth_creds.json",), "qwen"),
}
"""The files of which one holds the login on Linux, and the command that logs in. Other systems use a keychain."""
_KEYRING = ("keyring", "auto")
"""Values of Codex's `cli_auth_credentials_store` with which the login may be in no file."""


class CliLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The login of an account: the file or variable that it is in, or why there is none."""

    where: str
    problem: str | None = None


def find_login(account: Account, environ: Mapping[str, str]) -> CliLogin | None:
    """Return the login that sessions of a subscription use; None where files and variables do not show it."""
    if account.kind != "subscription" or account.provider not in _FILES or not sys.platform.startswith("linux"):
        return None
    folder_variable = login_variable(account.provider)
    own_folder = account.env.get(folder_variable or "")
    for name in _token_variables(account.provider):
        if (account.env if own_folder else {**environ, **account.env}).get(name):
            return CliLogin(where=f"the variable {name}")
    files = login_files(account, environ)
    found = next((path for path in files if path.exists()), None)
    if found is not None:
        return CliLogin(where=str(found))
    folder = files[0].parent
    if account.provider == "openai" and _may_use_keyring(folder):
        return None
    log_in = _FILES[account.provider][1]
    if own_folder:
        log_in = f"mkdir -p {folder} && {folder_variable}={own_folder} {log_in}"
    problem = f"account {account.id!r} is not logged in: there is no {files[0].name} in {folder}; log in once: {log_in}"
    return CliLogin(where=str(files[0]), problem=problem)


def login_files(account: Account, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that may hold the account's login; none for a key, or if its CLI is not known."""
    names, _ = _FILES.get(account.provider, ((), "")) if account.kind == "subscription" else ((), "")
    folder = Path(login_folder(account.provider, {**environ, **account.env}))
    return [folder / name for name in names]


def _token_variables(provider: str) -> list[str]:
    profiles = [load_agent(name) for name in agent_names()]
    return [name for each in profiles if each.start and vendor_of(each) == provider for name in each.login_variables]


def _may_use_keyring(folder: Path) -> bool:
    config = read_content(folder / "config.toml", parse_toml)
    return member(config, "cli_auth_credentials_store") in _KEYRING


# -- when a login or a key ends. Access tokens that a CLI renews by itself do not count ------------

NOTICE_SECONDS = 7 * 86400.0
"""How long before its end a login is reported: a weekend and some working days, to get a new one in time."""
_HOUR, _DAY = 3600.0, 86400.0


class LoginExpiry(msgspec.Struct, frozen=True, kw_only=True):
    """When the login or the key of an account ends, and what a person can do about it."""

    what: Literal["login", "key"]
    at: float
    fix: str

    def is_due(self, now: float) -> bool:
        """Return whether it is to be reported: it has ended, or ends within a week."""
        return self.at - now <= NOTICE_SECONDS

    def text(self, account: str, now: float) -> str:
        """Return that it has ended, or when it will."""
        left = self.at - now
        if left <= 0:
            when = "has expired"
        else:
            when = f"expires in {left / _HOUR:.0f} h" if left < 2 * _DAY else f"expires in {left / _DAY:.0f} days"
        return f"the {self.what} of {account} {when}"


def login_expiry(account: Account, environ: Mapping[str, str]) -> LoginExpiry | None:
    """Return when the login of the account ends; None if that is not known, or if its CLI renews it."""
    if account.expires is not None:
        what: Literal["login", "key"] = "login" if account.kind == "subscription" else "key"
        fix = f"get a new {what}, then change accounts.{account.id}.expires"
        return LoginExpiry(what=what, at=account.expires, fix=fix)
    if account.kind != "subscription" or account.provider not in ("anthropic", "google"):
        return None
    folder = Path(login_folder(account.provider, {**environ, **account.env}))
    if account.provider == "anthropic":
        login = member(read_content(folder / ".credentials.json", parse_json), "claudeAiOauth")
        ends_at, renewal, command = member(login, "expiresAt"), member(login, "refreshToken"), "claude /login"
    else:
        login = read_content(folder / "oauth_creds.json", parse_json)
        ends_at, renewal, command = member(login, "expiry_date"), member(login, "refresh_token"), "gemini"
    if renewal or isinstance(ends_at, bool) or not isinstance(ends_at, int | float):
        return None
    fix = f"log in again with `{command}`: the CLI cannot renew this login"
    return LoginExpiry(what="login", at=ends_at / 1000, fix=fix)
