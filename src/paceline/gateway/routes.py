"""What a request of the gateway means, and what is known of it: its route, its record, the error that answers it.

A route is the account, the upstream address and the kind of request that a path means. Only the accounts' own upstreams
can be reached, and nothing outside their base paths. An `OwnError` is an answer of the gateway itself, instead of
the upstream. Requests that run and wait, and the last that ended, are in a log: in memory, and never with a body.
"""

import re
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote_to_bytes

import msgspec

from paceline import protocols
from paceline.agents.account import Account
from paceline.core.values.scopes import canonical_scope, is_provider_scope
from paceline.gateway.upstream_pool import Origin, parse_base_url
from paceline.settings import KeyPoolSettings
from paceline.views.gateway_calls import GatewayCall

BUDGET_REACHED = "budget_reached"
"""The code of the error for a call that a budget stops."""
BUDGET_IN_USE = "budget_in_use"
"""The same if the budget has room again once calls that run have ended."""


class BudgetError(protocols.OwnError):
    """The answer if a budget stops a call. `scope` is that of the key or account whose budget it is."""

    def __init__(self, status: int, code: str, message: str, scope: str, *, retry_after: float | None = None) -> None:
        super().__init__(status, code, message, retry_after=retry_after)
        self.scope = scope
        self.is_of_choice = False
        """Whether it is about the account of a pool that was chosen, so that another one may serve the call."""


def unpriced(model: str | None, whose: str) -> protocols.OwnError:
    """Return the error for a model that a budget could not count."""
    named = "a call without a model" if model is None else f"the model {model!r:.80}"
    message = f"{named} has no price, and the {whose} has a budget; add it to [prices]"
    return protocols.OwnError(403, "model_not_priced", message)


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
MOST_SERVED = 1000
"""Models of one account that have served a call. The largest catalogues have a few hundred."""
MOST_UNSERVED = 250
"""Names of one account that have not served a call yet: new models, and names that the provider does not know."""
OTHER_MODELS = "other"
"""The model of the scope in which further names are counted together."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of one path of the gateway."""

    account: Account
    origin: Origin
    path: bytes
    """The path at the upstream."""
    family: protocols.Family
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

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.accounts = {account.name: account for account in accounts}
        self._origins: dict[str, Origin] = {}
        for account in self.accounts.values():
            if (url := account.base_url or USUAL_BASE_URLS.get(account.provider)) is not None:
                self._origins[account.name] = parse_base_url(url)
        self.pools: Mapping[str, KeyPoolSettings] = {}
        self._cache: dict[bytes, Route] = {}

    def resolve(self, path: bytes, account: str | None = None) -> Route:
        """Return the route of a path that begins with `PREFIX`, without its query. Raises `OwnError` if none.

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

    def family(self, path: bytes) -> protocols.Family:
        """Return the protocol in which a client of this path expects its errors, even if there is no such route."""
        name, _, rest = _split(path)
        pool = self.pools.get(name)
        account = self.accounts.get(name if pool is None else pool.accounts[0])
        return protocols.family_of("" if account is None else account.provider, rest.decode("latin-1"))

    def _build(self, path: bytes, member: str | None) -> Route:
        name, session, rest = _split(path)
        pool = self.pools.get(name)
        account, origin = self._account(name if pool is None else member or pool.accounts[0])
        if _DOT_SEGMENT.search(rest) or b"#" in rest:
            raise protocols.OwnError(400, "bad_path", "the path must have no . or .. parts and no fragment")
        text, upstream = rest.decode("latin-1"), origin.base_path + rest or b"/"
        uses = [
            method for method in ("GET", "HEAD", "POST") if protocols.is_model_use(method, upstream.decode("latin-1"))
        ]
        return Route(
            account=account,
            origin=origin,
            path=upstream,
            family=protocols.family_of(account.provider, text),
            detect_name=protocols.detect_name(account.provider),
            is_model_call=protocols.takes_slot("POST", text),
            model_methods=frozenset(uses),
            model=protocols.model_in_path(text),
            session=None if session is None else check_session_name(session, "the session in the path"),
            pool=pool,
        )

    def _account(self, name: str) -> tuple[Account, Origin]:
        account = self.accounts.get(name)
        if account is None:
            metered = sorted(each.name for each in self.accounts.values() if each.kind != "subscription")
            known = ", ".join(metered) or "none"
            pools = f"; its pools are: {', '.join(sorted(self.pools))}" if self.pools else ""
            raise protocols.OwnError(
                404, "unknown_account", f"the gateway has no account {name!r:.80}; its accounts are: {known}{pools}"
            )
        if account.kind == "subscription":
            raise protocols.OwnError(403, "subscription", _SUBSCRIPTION.format(name=name))
        if name not in self._origins:
            raise protocols.OwnError(404, "no_base_url", f"{name} has no base_url in paceline.toml; add one")
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
    """Return the name if it is valid. Raises `OwnError` with `where` in its message otherwise."""
    if not 1 <= len(text) <= LONGEST_SESSION_NAME or not text.isprintable():
        raise protocols.OwnError(
            400, "bad_session", f"{where} must be a name of 1 to {LONGEST_SESSION_NAME} characters"
        )
    return text


class ModelNames:
    """The names of one gateway since its start, by account."""

    def __init__(self, *, most_served: int = MOST_SERVED, most_unserved: int = MOST_UNSERVED) -> None:
        self._most_served = most_served
        self._most_unserved = most_unserved
        self._served: dict[str, set[str]] = {}
        self._unserved: dict[str, set[str]] = {}
        self._scopes: dict[tuple[str, str, str | None], str] = {}
        """The scopes of models that have served a call, by provider, account and the name as clients write it."""

    def scope(self, provider: str, account: str, model: str | None) -> str:
        """Return the scope in which calls of a model are counted."""
        known = self._scopes.get((provider, account, model))
        return known or self.counted_scope(canonical_scope(protocols.scope_of(provider, account, model)))

    def counted_scope(self, scope: str) -> str:
        """Return the scope in which calls of this canonical scope are counted: itself, or that of other models.

        A name keeps its scope once it has one, so that nobody loses what was learnt about a model.
        """
        account = scope[: scope.rfind("/")]
        if scope in self._served.get(account, ()):
            return scope
        unserved = self._unserved.setdefault(account, set())
        if scope not in unserved:
            if len(unserved) >= self._most_unserved:
                return f"{account}/{OTHER_MODELS}"
            unserved.add(scope)
        return scope

    def is_unserved(self, scope: str) -> bool:
        """Return whether a model has its scope only because clients have named it."""
        return scope in self._unserved.get(scope[: scope.rfind("/")], ())

    def note_served(self, provider: str, account: str, model: str | None) -> None:
        """Note that the provider knows the model. Its next calls have a scope of their own."""
        if (provider, account, model) in self._scopes:
            return
        scope = canonical_scope(protocols.scope_of(provider, account, model))
        name = scope[: scope.rfind("/")]
        served = self._served.setdefault(name, set())
        if scope not in served and len(served) < self._most_served:
            served.add(scope)
            self._unserved.get(name, set()).discard(scope)
        if scope in served and len(self._scopes) < self._most_served:
            self._scopes[provider, account, model] = scope


# -- the log of requests -----------------------------------------------------------------------------

KEPT_REQUESTS = 1000
"""Requests that ended and can still be looked up: minutes of a busy day, and less than a megabyte."""
LONGEST_MODEL_NAME = 100
"""Characters of a model's name that are kept. Clients choose it; the longest real ones have half of it."""
FIRST_ERROR = 400
_SECONDS = 60


class CallRecord(GatewayCall, gc=False, kw_only=True):
    """One request as it is known so far. The exchange that serves it fills it in. Times are on the gateway's clock.

    `account` is None until it is let in. One that never is leaves no trace.
    """

    is_billed: bool = True
    """Whether its account pays for tokens."""
    ticket: str | None = None
    """The ticket of the slot that it waits for."""
    queued_at: float = 0.0
    """When it began to wait for that slot."""
    seconds: float | None = None
    """None until it has ended."""
    is_estimated: bool = False
    dollars: float | None = None
    """What it has cost, None if that is not known."""


class MinuteCount:
    """How often something happened in the last minute."""

    def __init__(self) -> None:
        self._by_second: dict[int, int] = {}

    def add(self, now: float) -> None:
        if (second := int(now)) not in self._by_second:
            self.total(now)
        self._by_second[second] = self._by_second.get(second, 0) + 1

    def total(self, now: float) -> int:
        """Forget the seconds that are not of the last minute, also those of a clock that was set back."""
        of_minute = {second: count for second, count in self._by_second.items() if 0 <= int(now) - second < _SECONDS}
        self._by_second = of_minute
        return sum(of_minute.values())


class RequestLog:
    """The requests of one gateway. Times are on its clock."""

    def __init__(self, kept: int = KEPT_REQUESTS) -> None:
        self._prefix = f"req-{secrets.token_hex(4)}-"
        self._count = 0
        self._live: dict[str, CallRecord] = {}
        self._ended: deque[CallRecord] = deque(maxlen=kept)
        self.arrivals = MinuteCount()
        self.refusals = MinuteCount()
        """Refusals by providers, and waits that ran out."""

    def new_record(self, now: float) -> CallRecord:
        """Return the record of a request that has just come. No other gateway gives the same id."""
        self._count = number = self._count + 1
        return CallRecord(id=f"{self._prefix}{number:x}", began_at=now)

    def admit(self, record: CallRecord, now: float) -> None:
        """List a request whose account is known now."""
        self._live[record.id] = record
        self.arrivals.add(now)

    def ended(self, record: CallRecord) -> None:
        """Move a request to those that have ended."""
        if self._live.pop(record.id, None) is not None:
            self._ended.append(record)

    def live(self) -> Iterable[CallRecord]:
        """Return the requests that run or wait, the oldest first."""
        return self._live.values()

    def recent(self) -> Iterator[CallRecord]:
        """Return those that ended, the last one first."""
        return reversed(self._ended)

    def ended_per_second(self, scope: str, now: float) -> float:
        """Return how many requests in the scope, or in those within it, were served in a second of the last minute."""
        inside, since = f"{scope}/", now - _SECONDS
        is_local = not is_provider_scope(scope)  # then calls of all providers pass it
        count, first = 0, now
        for each in reversed(self._ended):
            ended_at = each.began_at + (each.seconds or 0.0)
            if ended_at < since:
                break
            is_there = is_local or each.scope == scope or each.scope.startswith(inside)
            if is_there and each.status is not None and each.status < FIRST_ERROR:
                count, first = count + 1, ended_at
        return count / max(1.0, now - first)

    def find(self, request_id: str) -> CallRecord | None:
        """Return the request, as long as it is known."""
        record = self._live.get(request_id)
        return record or next((each for each in self._ended if each.id == request_id), None)


def kept_model(name: str | None) -> str | None:
    """Return the name of a model as far as it is kept."""
    return name if name is None or len(name) <= LONGEST_MODEL_NAME else name[:LONGEST_MODEL_NAME]
