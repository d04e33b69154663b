"""Accounts: who pays for a session, and how its calls reach the gateway.

Here: frozen values and the key derived for an account. Never here: environments or command lines.
"""

import hashlib
import hmac
from typing import Literal
from urllib.parse import quote

import msgspec

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
