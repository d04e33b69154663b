"""Where a path leads: to which account, to which address at its upstream, and what kind of request that makes it.

Only the accounts' own upstreams can be reached, and nothing outside their base paths.
"""

import re
from collections.abc import Iterable

import msgspec

from paceline.gateway.refusals import Refused
from paceline.gateway.upstream import Origin, parse_base_url
from paceline.protocols import Family, detect_name, family_of, model_in_path
from paceline.settings import AccountSettings

PREFIX = b"/gateway/"
USUAL_BASE_URLS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "google": "https://generativelanguage.googleapis.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
"""For accounts that name none."""
MOST_WAYS = 4096
_DOT_SEGMENT = re.compile(rb"(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\]|$)", re.I)
_UNCOUNTED_PATH = re.compile(r"(?:/count_tokens|:countTokens|/files|/uploads|/batches)(?:/|$)")
_SUBSCRIPTION = (
    "{name} is a subscription, and the gateway takes API keys only: "
    "use the vendor's own CLI through `paceline run` or `paceline exec`"
)


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A path of the gateway, followed to its end."""

    account: AccountSettings
    origin: Origin
    path: bytes
    """At the upstream."""
    family: Family
    detect_name: str
    is_model_call: bool
    """Of a POST; those to other paths take no slot."""
    model: str | None
    """As far as the path names it."""


class Routes:
    """The accounts of one gateway."""

    def __init__(self, accounts: Iterable[AccountSettings]) -> None:
        self._accounts = {account.name: account for account in accounts}
        self._origins: dict[str, Origin] = {}
        for account in self._accounts.values():
            if (url := account.base_url or USUAL_BASE_URLS.get(account.provider)) is not None:
                self._origins[account.name] = parse_base_url(url)
        self._known: dict[bytes, Way] = {}

    def follow(self, path: bytes) -> Way:
        """The way of a path that begins with `PREFIX`, without its query; `Refused` where it leads nowhere."""
        way = self._known.get(path)
        if way is None:
            way = self._explore(path)
            if len(self._known) >= MOST_WAYS:
                self._known.clear()
            self._known[path] = way
        return way

    def family(self, path: bytes) -> Family:
        """In whose words a client expects the errors of a path, wherever it leads."""
        name, rest = _split(path)
        account = self._accounts.get(name)
        return family_of("" if account is None else account.provider, rest.decode("latin-1"))

    def _explore(self, path: bytes) -> Way:
        name, rest = _split(path)
        account, origin = self._account(name)
        if _DOT_SEGMENT.search(rest) or b"#" in rest:
            raise Refused(400, "bad_path", "the path must have no . or .. parts and no fragment")
        text = rest.decode("latin-1")
        return Way(
            account=account,
            origin=origin,
            path=origin.base_path + rest or b"/",
            family=family_of(account.provider, text),
            detect_name=detect_name(account.provider),
            is_model_call=_UNCOUNTED_PATH.search(text) is None,
            model=model_in_path(text),
        )

    def _account(self, name: str) -> tuple[AccountSettings, Origin]:
        account = self._accounts.get(name)
        if account is None:
            known = ", ".join(sorted(self._accounts)) or "none"
            raise Refused(
                404, "unknown_account", f"there is no account {name!r:.80} for the gateway; there is: {known}"
            )
        if account.kind == "subscription":
            raise Refused(403, "subscription", _SUBSCRIPTION.format(name=name))
        if name not in self._origins:
            raise Refused(404, "no_base_url", f"{name} has no base_url in paceline.toml")
        return account, self._origins[name]


def _split(path: bytes) -> tuple[str, bytes]:
    """The account's name, and the rest from its slash on."""
    name, slash, rest = path[len(PREFIX) :].partition(b"/")
    return name.decode("latin-1"), slash + rest
