"""Where a path leads: to which account, to which address at its upstream, and what kind of request that makes it.

Only the accounts' own upstreams can be reached, and nothing outside their base paths.
"""

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

import msgspec

from paceline.gateway.errors import Refused
from paceline.gateway.upstream_pool import Origin, parse_base_url
from paceline.protocols import Family, detect_name, family_of, is_counted, model_in_path
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
LONGEST_KEPT_PATH = 512
"""A longer one is followed anew each time: what is kept has a bound in bytes too."""
LONGEST_SESSION_NAME = 200
SESSION_MARK = b"~"
"""Clients that have a base URL but no headers of their own name their session in the path."""
_DOT_SEGMENT = re.compile(rb"(?:^|[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:[/\\;]|%2f|%5c|$)", re.I)
"""Also as servers read it that decode a path, or cut its parameters off, before they resolve it."""
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
    session: str | None
    """The session whose run it is, where the path names one."""


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
            if len(path) <= LONGEST_KEPT_PATH:
                if len(self._known) >= MOST_WAYS:
                    self._known.clear()
                self._known[path] = way
        return way

    def family(self, path: bytes) -> Family:
        """In whose words a client expects the errors of a path, wherever it leads."""
        name, _, rest = _split(path)
        account = self._accounts.get(name)
        return family_of("" if account is None else account.provider, rest.decode("latin-1"))

    def _explore(self, path: bytes) -> Way:
        name, session, rest = _split(path)
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
            is_model_call=is_counted("POST", text),
            model=model_in_path(text),
            session=None if session is None else session_name(session, "the session in the path"),
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


def account_name(path: bytes) -> str:
    """The account that a path names, whether or not there is one."""
    return path[len(PREFIX) :].partition(b"/")[0].decode("latin-1")


def _split(path: bytes) -> tuple[str, str | None, bytes]:
    """The account's name, the session's where one follows (`/~SESSION`), and the rest from its slash on."""
    _, slash, rest = path[len(PREFIX) :].partition(b"/")
    session = None
    if rest.startswith(SESSION_MARK):
        marked, slash, rest = rest.partition(b"/")
        session = unquote_to_bytes(marked.removeprefix(SESSION_MARK)).decode("utf-8", "replace")
    return account_name(path), session, slash + rest


def session_name(text: str, where: str) -> str:
    if not 1 <= len(text) <= LONGEST_SESSION_NAME or not text.isprintable():
        raise Refused(400, "bad_session", f"{where} must be a name of 1 to {LONGEST_SESSION_NAME} characters")
    return text
