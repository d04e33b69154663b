"""Accounts: who pays for a session, and how its calls reach the gateway.

Here: frozen values and the key derived for an account. Never here: environments or command lines.
"""

import hashlib
import hmac
from typing import Literal
from urllib.parse import quote

import msgspec


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays. A `subscription` must never be billed by the token."""

    name: str
    provider: str
    kind: Literal["subscription", "metered"] = "metered"
    env: dict[str, str] = {}
    key_env: str | None = None
    """The variable that holds the key of a metered account."""
    via_gateway: bool = False
    """Whether its sessions make their calls through the gateway, as runs of the session."""


def gateway_key(token: str, account: str) -> str:
    """What the sessions of an account show the gateway: derived from the daemon's token, and good for nothing else."""
    return hmac.new(token.encode(), b"paceline gateway " + account.encode(), hashlib.sha256).hexdigest()


class GatewayAddress(msgspec.Struct, frozen=True):
    """Where the gateway listens, the daemon's token, and the variables from which accounts take their keys."""

    url: str
    token: str
    key_variables: frozenset[str] = frozenset()

    def of_session(self, account: str, session: str) -> str:
        """The base URL under which the calls of one session are its runs."""
        return f"{self.url}/gateway/{quote(account, safe='')}/~{quote(session, safe='')}"
