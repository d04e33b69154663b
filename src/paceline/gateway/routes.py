"""Routes: the account, the upstream address and the kind of request that a path of the gateway means.

Only the accounts' own upstreams can be reached, and nothing outside their base paths.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

import msgspec

from paceline.gateway.errors import GatewayError
from paceline.gateway.upstream_pool import Origin, parse_base_url
from paceline.protocols import Family, detect_name, family_of, is_model_use, model_in_path, takes_slot
from paceline.settings import AccountSettings, KeyPoolSettings

PREFIX = b"/gateway/"
USUAL_BASE_URLS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "google": "https://generativelanguage.googleapis.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
"""For accounts without a `base_url`."""
MOST_ROUTES = 4096
"""Routes in the cache. Clients use few paths; the bound stops a client that invents them from filling the memory."""
LONGEST_CACHED_PATH = 512
"""Longer paths are resolved each time, so that the cache is bounded in bytes too."""
LONGEST_SESSION_NAME = 200
"""Enough for any id that an agent uses: a UUID has 36 characters."""
SESSION_MARK = b"~"
"""Clients that can set a base URL but no headers name their session in the path."""
_DOT_SEGMENT = re.compile(rb"(?:^|[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:[/\\;]|%2f|%5c|$)", re.I)
"""Covers servers that decode a path, or cut off its parameters, before they resolve it."""
_SUBSCRIPTION = (
    "{name} is a subscription, and the gateway takes API keys only: "
    "use the vendor's own CLI through `paceline run` or `paceline exec`"
)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of one path of the gateway."""

    account: AccountSettings
    origin: Origin
    path: bytes
    """The path at the upstream."""
    family: Family
    detect_name: str
    is_model_call: bool
    """Whether a POST to this path takes a slot."""
    model_methods: frozenset[str]
    """The methods that call a model, list models or count tokens there, and do nothing else."""
    model: str | None
    """The model, if the path names it."""
    session: str | None
    """The session that the request belongs to, if the path names one."""
    pool: KeyPoolSettings | None = None
    """The pool of keys, if the path names one instead of an account."""


class Routes:
    """The routes to the accounts of one gateway."""

    def __init__(self, accounts: Iterable[AccountSettings]) -> None:
        self._accounts = {account.name: account for account in accounts}
        self._origins: dict[str, Origin] = {}
        for account in self._accounts.values():
            if (url := account.base_url or USUAL_BASE_URLS.get(account.provider)) is not None:
                self._origins[account.name] = parse_base_url(url)
        self.pools: Mapping[str, KeyPoolSettings] = {}
        self._cache: dict[bytes, Route] = {}

    def resolve(self, path: bytes, account: str | None = None) -> Route:
        """Return the route of a path that begins with `PREFIX`, without its query. Raises `GatewayError` if none.

        A pool's path leads to `account`, or to the first one of the pool.
        """
        key = path if account is None else b"%b %b" % (account.encode(), path)
        route = self._cache.get(key)
        if route is None:
            route = self._build(path, account)
            if len(path) <= LONGEST_CACHED_PATH:
                if len(self._cache) >= MOST_ROUTES:
                    self._cache.clear()
                self._cache[key] = route
        return route

    def family(self, path: bytes) -> Family:
        """Return the protocol in which a client of this path expects its errors, even if there is no such route."""
        name, _, rest = _split(path)
        pool = self.pools.get(name)
        account = self._accounts.get(name if pool is None else pool.accounts[0])
        return family_of("" if account is None else account.provider, rest.decode("latin-1"))

    def account(self, name: str) -> AccountSettings:
        return self._accounts[name]

    def _build(self, path: bytes, member: str | None) -> Route:
        name, session, rest = _split(path)
        pool = self.pools.get(name)
        account, origin = self._account(name if pool is None else member or pool.accounts[0])
        if _DOT_SEGMENT.search(rest) or b"#" in rest:
            raise GatewayError(400, "bad_path", "the path must have no . or .. parts and no fragment")
        text, upstream = rest.decode("latin-1"), origin.base_path + rest or b"/"
        uses = [method for method in ("GET", "HEAD", "POST") if is_model_use(method, upstream.decode("latin-1"))]
        return Route(
            account=account,
            origin=origin,
            path=upstream,
            family=family_of(account.provider, text),
            detect_name=detect_name(account.provider),
            is_model_call=takes_slot("POST", text),
            model_methods=frozenset(uses),
            model=model_in_path(text),
            session=None if session is None else check_session_name(session, "the session in the path"),
            pool=pool,
        )

    def _account(self, name: str) -> tuple[AccountSettings, Origin]:
        account = self._accounts.get(name)
        if account is None:
            metered = sorted(each.name for each in self._accounts.values() if each.kind != "subscription")
            known = ", ".join(metered) or "none"
            pools = f"; its pools are: {', '.join(sorted(self.pools))}" if self.pools else ""
            raise GatewayError(
                404, "unknown_account", f"the gateway has no account {name!r:.80}; its accounts are: {known}{pools}"
            )
        if account.kind == "subscription":
            raise GatewayError(403, "subscription", _SUBSCRIPTION.format(name=name))
        if name not in self._origins:
            raise GatewayError(404, "no_base_url", f"{name} has no base_url in paceline.toml; add one")
        return account, self._origins[name]


def account_name(path: bytes) -> str:
    """Return the account name in a path, whether or not the account exists."""
    return path[len(PREFIX) :].partition(b"/")[0].decode("latin-1")


def _split(path: bytes) -> tuple[str, str | None, bytes]:
    """Return the account name, the session name if one follows (`/~SESSION`), and the rest from its slash on."""
    _, slash, rest = path[len(PREFIX) :].partition(b"/")
    session = None
    if rest.startswith(SESSION_MARK):
        marked, slash, rest = rest.partition(b"/")
        session = unquote_to_bytes(marked.removeprefix(SESSION_MARK)).decode("utf-8", "replace")
    return account_name(path), session, slash + rest


def check_session_name(text: str, where: str) -> str:
    """Return the name if it is valid. Raises `GatewayError` with `where` in its message otherwise."""
    if not 1 <= len(text) <= LONGEST_SESSION_NAME or not text.isprintable():
        raise GatewayError(400, "bad_session", f"{where} must be a name of 1 to {LONGEST_SESSION_NAME} characters")
    return text
