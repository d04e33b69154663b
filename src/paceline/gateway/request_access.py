"""Access to the gateway: who a request comes from, what it may do, and the request as it is forwarded.

Here: the keys of clients, read again in threads while the daemon runs, so that a store that hangs holds up only the
requests that need it. What is decided from a request's head, as an `UpstreamRequest`. The rules for the body of a call:
its model, the models it may fall back to, and their price. Who may not do something gets a `OwnError` with the
message for the client. Never here: sockets, slots, what is spent (`spend_ledger.py`), and how keys are made
(`paceline.engine.commands`).
"""

import asyncio
import hmac
import logging
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, TypeVar

import msgspec

from paceline.agents.account import Account, gateway_key
from paceline.core.values.scopes import is_listed
from paceline.engine.commands import KEY_PREFIX, digest_of_key, present_keys, scope_of_key
from paceline.errors import PacelineError, StoreBusy
from paceline.gateway.client_response import KEPT_BYTES, RequestBody, parsed
from paceline.gateway.http_heads import HOP_BY_HOP, Header, header_lines, named_by_connection, readable_codings
from paceline.gateway.routes import Route, Routes, account_name, check_session_name, kept_model, unpriced
from paceline.hosts.jobs import in_daemon_thread
from paceline.limiter.slot import SlotGroup
from paceline.protocols import Family, OwnError, key_position, login_refusal, presented_keys, with_key
from paceline.protocols.families import KeyPosition, home_family
from paceline.settings import KeyPoolSettings
from paceline.store import ClientKey, HashedKey, Store

log = logging.getLogger("paceline.gateway")

READ_AGAIN_SECONDS = 0.5
"""How late a revoked key is noticed. Reading the small table takes a fraction of a millisecond."""
MISS_SECONDS = 0.05
"""Between two readings because of unknown keys: a new key works at once, and a wrong one costs few readings."""
OUTAGE_SECONDS = 5.0
"""How long requests do not wait for a store that failed or hung: they use the keys as they were read last."""

AFTER_WAIT_SECONDS = 0.05
"""The same for a call that has waited: its limits end with its key, so it may get its slot because of that."""
REVOKED: Final = "key_revoked"
"""The code of the error for a key that was revoked."""
LONGEST_READ_SECONDS = 1.0
"""How long a request waits for a reading: a hundred times what a healthy store needs, and less than people notice."""

Answer = TypeVar("Answer")


class BackgroundStore:
    """A store that is opened by the first reading, for one thread at a time."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._lock = threading.Lock()

    def client_keys(self) -> Sequence[HashedKey]:
        if not self._lock.acquire(timeout=LONGEST_READ_SECONDS):
            raise StoreBusy("an earlier reading has not ended yet")
        try:
            if self._store is None:
                self._store = self._open_store()
            return self._store.client_keys()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the store, unless a reading hangs: it ends with the process."""
        if self._lock.acquire(timeout=LONGEST_READ_SECONDS):
            try:
                if self._store is not None:
                    self._store.close()
            finally:
                self._lock.release()


class ClientKeys:
    """The keys of a store, by digest, as they were read last. `now` counts seconds, from any time on."""

    def __init__(
        self, read: Callable[[], Sequence[HashedKey]] | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`read` is called in a thread."""
        self._read = read
        self._now = now
        self._read_at = -math.inf
        """When the last reading that succeeded began."""
        self._outage_until = -math.inf
        self._reading: asyncio.Future[None] | None = None
        self._by_digest: dict[str, ClientKey] = {}
        self._by_name: dict[str, ClientKey] = {}
        """Those that are not revoked."""
        self.on_new: Callable[[], object] = lambda: None
        """Called when there is a new key: its limits must hold from its first call on."""

    @property
    def is_outage(self) -> bool:
        """Whether the store failed or hung a moment ago."""
        return self._now() < self._outage_until

    def find(self, presented: bytes) -> ClientKey | None:
        """Return the key with this text, also one that is revoked. None if there never was one."""
        return self._by_digest.get(digest_of_key(presented)) if is_client_key(presented) else None

    def check_present(self, key: ClientKey) -> None:
        """Raise `OwnError` if the key was revoked meanwhile."""
        present = self._by_name.get(key.name)
        if present is not key and present != key:  # most calls compare a key with itself
            raise revoked(key)

    def check_use(self, key: ClientKey, route: Route, method: str) -> None:
        """Raise `OwnError` if the key was revoked, or for a path that is of no use to call models.

        Files, batches and stored answers belong to the account, so to all its teams, and no limit of a key counts them.
        """
        self.check_present(key)
        if key.all_paths or method in route.model_methods:
            return
        path = route.path.decode("latin-1")
        message = (
            f"the key {key.name} may call models, list them and count tokens, and {method} {path:.80} is none of "
            "these; a key made with --all-paths may do it"
        )
        raise OwnError(403, "path_not_allowed", message)

    async def catch_up(self, seconds: float) -> None:
        """Read the keys again unless that was done within these seconds. A store that fails leaves them as they are.

        All requests wait for the same reading, and none of them for long.
        """
        wanted = self._now() - seconds
        for _ in range(2):  # a reading that had begun before may lack what this request is about
            if self._read is None or self._read_at > wanted or self.is_outage:
                return
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read_again(self._read))
            try:
                async with asyncio.timeout(LONGEST_READ_SECONDS):
                    await asyncio.shield(self._reading)
            except TimeoutError:
                self._note_outage("the store does not answer")

    async def _read_again(self, read: Callable[[], Sequence[HashedKey]]) -> None:
        began_at = self._now()
        try:
            keys = await in_daemon_thread(read, "paceline-store-reading")
        except PacelineError as error:
            self._note_outage(str(error))
            return
        finally:
            self._reading = None
        before, self._by_digest = self._by_digest, {each.digest: each.key for each in keys}
        self._by_name = {each.key.name: each.key for each in present_keys(keys)}
        self._read_at, self._outage_until = began_at, -math.inf
        if before.keys() != self._by_digest.keys():
            try:
                self.on_new()
            except PacelineError as error:
                log.warning("the limits of a new key hold a little later: %s", error)

    def _note_outage(self, why: str) -> None:
        if not self.is_outage:
            log.warning("the keys of clients stay as they are: %s", why)
        self._outage_until = self._now() + OUTAGE_SECONDS


def is_client_key(presented: bytes) -> bool:
    """Return whether this is the key of a client, known or not. No token looks like one."""
    return presented.startswith(_PREFIX)


# -- the rules of one key ------------------------------------------------------------------------


def check_model(key: ClientKey, provider: str, model: str | None) -> None:
    """Raise `OwnError` unless the key may call the model of an account of that provider."""
    if not key.models:
        return
    if model is None or not is_listed(key.models, model, provider):
        named = "a call without a model" if model is None else f"the model {model!r:.80}"
        allowed = ", ".join(key.models)
        raise OwnError(403, "model_not_allowed", f"the key {key.name} does not allow {named}; it allows: {allowed}")


def revoked(key: ClientKey) -> OwnError:
    return OwnError(401, REVOKED, f"the key {key.name} was revoked; ask for a new one")


# -- the head of a request ---------------------------------------------------------------------------

LONGEST_MAX_WAIT_SECONDS = 86400.0
"""A day. No client keeps a connection open longer; a larger number is a mistake, such as milliseconds."""
MAX_WAIT = b"x-paceline-max-wait"
KEEPALIVE = b"x-paceline-keepalive"
SHORTEST_KEEPALIVE_SECONDS, LONGEST_KEEPALIVE_SECONDS = 0.1, 300.0
"""More often is no better sign of life, and after five minutes most clients and proxies have given up."""
WRONG_TOKEN = (
    "the gateway requires a key of `paceline keys create` (pk-paceline-...) or Paceline's token (`paceline token`) "
    "in place of the API key, or in x-paceline-token beside a key of your own"
)
INVALID_TOKEN = "invalid_token"
"""The code of the error for a request that nothing lets in."""
ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_LOOPBACK = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
"""Sessions on another host come through a tunnel, which has another port there. No site can take over these names."""
_OURS = b"x-paceline-"
_LENGTH = b"content-length"
_KEY_HEADERS = frozenset({b"x-api-key", b"authorization", b"x-goog-api-key", b"api-key"})
_READ_HERE = frozenset({b"host", b"origin", b"sec-fetch-site", b"expect", b"accept-encoding"})
_NOT_FORWARDED = frozenset({b"host", b"expect"})
_WITHDRAWN = b"x-gateway-fairness-id"
"""Ignored, and not passed on: its value may be a person's address, which was never meant for the provider."""
_SPECIAL = _KEY_HEADERS | _READ_HERE | HOP_BY_HOP | {_WITHDRAWN}
_PREFIX = KEY_PREFIX.encode()
IsPriced = Callable[[str], bool]
MoreOfBody = Callable[[], Awaitable[None]]

_FALLBACKS = frozenset({"models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "route"})
"""Members in which OpenRouter and LiteLLM accept further models."""
_READ = _FALLBACKS | {"model", "background", "tools"}
_NO_MODELS = frozenset({"fallback", "sort"})
"""Values of OpenRouter's `route`."""
_LATER_ANSWERS = (b"/responses", b"/interactions")
"""Calls that can answer in the background: the tokens are then in another answer, which takes no slot."""


class RequestHead(msgspec.Struct, gc=False):
    """The head of a request as the client sent it."""

    method: str
    target: bytes
    headers: list[Header]
    sorted_headers: "SortedHeaders | None" = None
    """The same headers, once they were sorted and found to come from no web page."""

    def follow(self, before: "RequestHead") -> None:
        """Take over what was read of the head before on the same connection, if at most the body's length differs.

        Clients send the same headers with each request.
        """
        known, headers = before.sorted_headers, self.headers
        if known is None or self.target != before.target or self.method != before.method:
            return
        if headers == before.headers:
            self.sorted_headers = known
        elif len(headers) == len(before.headers):
            changed = [pair for pair in zip(headers, before.headers, strict=True) if pair[0] != pair[1]]
            (name, _), (name_before, _) = changed[0]
            if len(changed) == 1 and name == name_before and name.lower() == _LENGTH:
                self.sorted_headers = known.with_length(changed[0][0])


class Login(msgspec.Struct, gc=False):
    """What lets a request in."""

    position: KeyPosition | None
    """The key position that holds it, None if `x-paceline-token` does."""
    secret: bytes
    client: ClientKey | None = None


class UpstreamRequest(msgspec.Struct, gc=False, kw_only=True):
    """An accepted request: how it waits, and what is sent upstream, for which account."""

    arrived: RequestHead
    login: Login
    client: ClientKey | None
    """The key of a client, if the request came with one."""
    has_own_key: bool
    """Whether the client pays with its own key. Errors about that key then say nothing about the account's."""
    takes_slot: bool
    expects_continue: bool
    """Whether the client sends its body only after `100 Continue`."""
    session: str | None = None
    priority: int = 0
    max_wait: float | None = None
    keepalive: float | None = None
    """Seconds between the signs of life that the client wants while its stream waits."""
    group: SlotGroup | None = None
    route: Route
    head: bytes = b""
    """The bytes sent before the body."""
    headers: list[Header] = []
    """The headers in it that came from the client."""
    is_chunked: bool = False


class RequestAccess:
    """The check of every request against the accounts, the token and this server's host names."""

    def __init__(
        self,
        accounts: Iterable[Account],
        *,
        token: str,
        environ: Mapping[str, str],
        hosts: frozenset[str] | None = None,
        is_token: Callable[[bytes], bool] | None = None,
        is_session_key: Callable[[str, bytes], bool] | None = None,
    ) -> None:
        """`token` is that of this home. The last two decide about all tokens and all session keys of the fleet."""
        self.keys = ClientKeys()
        """The keys of clients. Without any, only tokens and the keys of sessions let a request in."""
        self._routes = Routes(accounts)
        self._token = token.encode()
        self._is_token = is_token or (lambda given: hmac.compare_digest(given, self._token))
        self._is_session_key = is_session_key or (
            lambda account, given: hmac.compare_digest(given, gateway_key(token, account).encode())
        )
        self.accounts: Mapping[str, Account] = self._routes.accounts
        self._keys: dict[str, bytes] = {}
        """The keys of accounts that were read and found to be usable."""
        self._environ = environ
        self._hosts = None if hosts is None else {host.lower().encode() for host in hosts}

    def use_pools(self, pools: Mapping[str, KeyPoolSettings]) -> None:
        """Serve these pools of keys, whose accounts must be among those of the gateway."""
        self._routes.pools = pools

    def pools_of(self, account: str) -> tuple[str, ...]:
        """Return the pools that the account is in, also as a fallback."""
        return tuple(pool.name for pool in self._routes.pools.values() if account in pool.all_accounts)

    def has_key(self, name: str) -> bool:
        """Return whether the account's key is there, or it needs none."""
        variable = self.accounts[name].key_env
        return variable is None or bool(self._environ.get(variable, "").strip())

    def family(self, head: RequestHead) -> Family:
        """Return the protocol in which the client expects its errors."""
        return self._routes.family(head.target.partition(b"?")[0])

    async def let_in(self, head: RequestHead) -> UpstreamRequest:
        """Return the request to forward, by the keys of clients as they are now. Raises `OwnError`.

        With a pool in its path, it has the key of one of its accounts.
        """
        if head.method == "TRACE":  # its response would contain the account's key
            raise OwnError(405, "method_not_allowed", "TRACE is not served by the gateway")
        sorted_headers = head.sorted_headers or SortedHeaders(head)
        if head.sorted_headers is None:
            self._check_origin(sorted_headers.read)
            head.sorted_headers = sorted_headers  # the next request on the connection may have the same
        path = head.target.partition(b"?")[0]
        name = account_name(path)
        login = await self._login(name, sorted_headers)
        if (client := login.client) is not None:
            if client.revoked_at is not None:
                raise revoked(client)
            if client.pool is not None and client.pool != name:
                message = f"the key {client.name} may use /gateway/{client.pool}/ only"
                raise OwnError(403, "address_not_allowed", message)
        request = self._accepted(head, sorted_headers, login, self._routes.resolve(path))
        account, pool = None, request.route.pool
        if pool is not None:  # a key that is not set is no reason to refuse yet
            account = next((name for name in pool.accounts if self.has_key(name)), None)
        return self._address(request, account)

    def _accepted(
        self, head: RequestHead, sorted_headers: "SortedHeaders", login: Login, route: Route
    ) -> UpstreamRequest:
        """Return what holds for the request, whichever account of a pool will serve it."""
        request = UpstreamRequest(
            arrived=head,
            login=login,
            client=login.client,
            has_own_key=login.position is None,
            takes_slot=head.method == "POST" and route.is_model_call,
            expects_continue=sorted_headers.read.get(b"expect", b"").lower() == b"100-continue",
            session=route.session,
            route=route,
        )
        if ours := sorted_headers.ours:
            if (session := ours.get(b"x-paceline-session")) is not None:
                request.session = check_session_name(session.decode("latin-1"), "x-paceline-session")
            request.priority = _priority(ours)
            request.max_wait = _seconds(ours, MAX_WAIT, 0.0, LONGEST_MAX_WAIT_SECONDS)
            request.keepalive = _seconds(ours, KEEPALIVE, SHORTEST_KEEPALIVE_SECONDS, LONGEST_KEEPALIVE_SECONDS)
        if login.client is not None:  # it waits in the group of its key, and can name only sessions of its key
            scope = scope_of_key(login.client.name)
            request.group = SlotGroup(scope, login.client.weight)
            request.priority = min(request.priority, login.client.priority_max)
            request.session = None if request.session is None else f"{scope}:{request.session}"
        return request

    def readdressed(self, request: UpstreamRequest, account: str, head: RequestHead | None = None) -> UpstreamRequest:
        """Return an accepted request, or one with another head, as it is sent to another account of its pool."""
        return self._address(msgspec.structs.replace(request, arrived=head or request.arrived), account)

    def _address(self, request: UpstreamRequest, account: str | None) -> UpstreamRequest:
        """Write the head that is sent upstream, with the key of `account` if the path names a pool."""
        head, position = request.arrived, request.login.position
        sorted_headers = head.sorted_headers or SortedHeaders(head)
        path, mark, query = head.target.partition(b"?")
        request.route = route = self._routes.resolve(path, account)
        target = route.path + mark + query
        if position is None:
            for key in sorted_headers.presented:
                if (refusal := login_refusal(key.value, route.account.provider)) is not None:
                    raise OwnError(403, "subscription", refusal)
            key_headers = sorted_headers.raw_keys
        else:
            wanted = key_position(route.account.provider, route.family, position)
            key_headers, target = with_key(sorted_headers.keys, target, self._key(route.account), wanted)
        if request.takes_slot:
            sorted_headers.accept_readable()
        request.headers, request.is_chunked = sorted_headers.forwarded, sorted_headers.is_chunked
        framing = b"Transfer-Encoding: chunked\r\n" if request.is_chunked else b""
        lines = (sorted_headers.lines, header_lines(key_headers), framing)
        first = (head.method.encode(), target, route.origin.authority)
        request.head = b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b%b\r\n" % (*first, *lines)
        if request.login.secret in request.head or self._token in request.head:
            message = "the token appears in a part of the request that is forwarded upstream; remove it there"
            raise OwnError(400, "stray_token", message)
        return request

    def body_rules(self, request: UpstreamRequest) -> "BodyRules | None":
        """Return the rules for the body of a call, None if there are none."""
        key, route = request.client, request.route
        accounts = [route.account] if route.pool is None else [self.accounts[name] for name in route.pool.all_accounts]
        budgeted = next((each.name for each in accounts if each.daily_budget is not None), None)
        if key is not None:
            if key.models:
                return BodyRules(f"the key {key.name}", "models", key, budgeted)
            if key.budget is not None:
                return BodyRules(f"the key {key.name}", "a budget", key, budgeted)
        if budgeted is not None:
            return BodyRules(f"the account {budgeted}", "a budget", key, budgeted)
        if key is not None and key.tpm is not None and route.path.rstrip(b"/").endswith(_LATER_ANSWERS):
            return BodyRules(f"the key {key.name}", "a limit of tokens", key)
        return None

    def _check_origin(self, read: dict[bytes, bytes]) -> None:
        """Reject requests of web pages. No page may spend money, not even one that knows the token."""
        host = read.get(b"host", b"").lower()
        if self._hosts is not None and host not in self._hosts and not _LOOPBACK.fullmatch(host):
            raise OwnError(403, "wrong_host", "the Host header does not name this server")
        origin = read.get(b"origin", b"").lower()
        is_other_page = bool(origin) and origin not in (b"http://" + host, b"https://" + host)
        if is_other_page or read.get(b"sec-fetch-site", b"").lower() == b"cross-site":
            raise OwnError(403, "web_page", "requests from web pages are not served by the gateway")

    async def _login(self, account: str, sorted_headers: "SortedHeaders") -> Login:
        """Return what lets the request in: a token, the key of a session of the account, or that of a client."""
        given: list[tuple[KeyPosition | None, bytes]] = [(key.position, key.value) for key in sorted_headers.presented]
        if beside := sorted_headers.ours.get(b"x-paceline-token"):
            given.append((None, beside))
        of_clients = [each for each in given if is_client_key(each[1])]
        tokens = [each for each in given if each not in of_clients] if of_clients else given
        for position, secret in tokens:
            if self._is_token(secret):
                return Login(position, secret)
        for position, secret in tokens if account in self.accounts else ():
            if self._is_session_key(account, secret):
                return Login(position, secret)
        for seconds in (READ_AGAIN_SECONDS, MISS_SECONDS) if of_clients else ():  # it may have been made just now
            await self.keys.catch_up(seconds)
            for position, secret in of_clients:
                if (client := self.keys.find(secret)) is not None:
                    return Login(position, secret, client)
        if of_clients and self.keys.is_outage:
            message = "this key is not known, and the keys cannot be read now; try again"
            raise OwnError(503, "keys_not_read", message, retry_after=OUTAGE_SECONDS)
        raise OwnError(401, INVALID_TOKEN, WRONG_TOKEN)

    def _key(self, account: Account) -> bytes:
        if (known := self._keys.get(account.name)) is not None:
            return known
        key = self._environ.get(account.key_env or "", "").strip().encode()
        if account.key_env is not None and not key:
            raise OwnError(401, "no_key", f"{account.name} takes its key from {account.key_env}, which is not set")
        if (message := login_refusal(key, account.provider)) is not None:
            raise OwnError(403, "subscription", f"{account.key_env}: {message}")
        self._keys[account.name] = key
        return key


class SortedHeaders:
    """The headers of a request, sorted by what the gateway does with them."""

    __slots__ = ("_lines", "forwarded", "is_chunked", "keys", "ours", "presented", "raw_keys", "read")

    def __init__(self, head: RequestHead) -> None:
        self._lines: bytes | None = None
        self.forwarded: list[Header] = []
        self.keys: list[Header] = []
        self.raw_keys: list[Header] = []
        self.ours: dict[bytes, bytes] = {}
        self.read: dict[bytes, bytes] = {}
        self.is_chunked = False
        named: frozenset[bytes] = frozenset()
        for header in head.headers:
            name = header[0].lower()
            if name not in _SPECIAL and not name.startswith(_OURS):
                self.forwarded.append(header)
            elif name in _KEY_HEADERS:
                self.keys.append((name, header[1]))
                self.raw_keys.append(header)
            elif name == b"connection":
                named |= named_by_connection(header[1])
            elif name == b"transfer-encoding":
                self.is_chunked = _is_chunked(header[1])
            elif name in _READ_HERE:
                value = header[1].strip()
                self.read[name] = value if name not in self.read else self.read[name] + b", " + value
                if name not in _NOT_FORWARDED:
                    self.forwarded.append(header)
            elif name not in HOP_BY_HOP:
                self.ours[name] = header[1].strip()
        if KEEPALIVE in self.ours:  # comments may come first, and a stream cannot change its coding
            named |= {b"accept-encoding"}
        if named:
            self.forwarded = [header for header in self.forwarded if header[0].lower() not in named]
        self.presented = presented_keys(self.keys, head.target)

    @property
    def lines(self) -> bytes:
        """The headers that are forwarded, as they are sent."""
        if self._lines is None:
            self._lines = header_lines(self.forwarded)
        return self._lines

    def with_length(self, length: Header) -> "SortedHeaders":
        """Return the same headers for a body of another length."""
        other = copy(self)
        other.forwarded = [length if header[0].lower() == _LENGTH else header for header in self.forwarded]
        other._lines = None
        return other

    def accept_readable(self) -> None:
        """Ask for a response in a coding that the gateway can read: it must see the tokens that were used."""
        given = self.read.get(b"accept-encoding")
        if given is not None and (readable := readable_codings(given)) != given:
            self.read = {**self.read, b"accept-encoding": readable}
            self._lines = None
            self.forwarded = [
                (header[0], readable_codings(header[1])) if header[0].lower() == b"accept-encoding" else header
                for header in self.forwarded
            ]


def _is_chunked(transfer_encoding: bytes) -> bool:
    if transfer_encoding.strip().lower() != b"chunked":
        raise OwnError(400, "bad_header", "transfer-encoding must be chunked, and nothing else")
    return True


def _priority(ours: dict[bytes, bytes]) -> int:
    value = ours.get(b"x-paceline-priority")
    if value is None:
        return 0
    if re.fullmatch(rb"[+-]?\d{1,4}", value) is None:
        raise OwnError(400, "bad_header", "x-paceline-priority must be a whole number, such as 0, 5 or -1")
    return int(value)


def _seconds(ours: dict[bytes, bytes], name: bytes, least: float, most: float) -> float | None:
    value = ours.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        message = f"{name.decode()} must be a number of seconds from {least:g} to {most:g}"
        raise OwnError(400, "bad_header", message)
    return seconds


# -- the rules for bodies ------------------------------------------------------------------------


class BodyRules(msgspec.Struct, frozen=True):
    """Why the body of a call is read whole: `who` has `what`. `budgeted` is an account with a budget."""

    who: str
    what: str
    key: ClientKey | None
    budgeted: str | None = None

    async def check(
        self, request: UpstreamRequest, body: RequestBody, model: str | None, is_priced: IsPriced, more: MoreOfBody
    ) -> tuple[str, ...]:
        """Raise `OwnError` unless the rules allow the call. Returns the further models that may serve it.

        Reads the whole body; `more` waits for a part of it.
        """
        provider, key = request.route.account.provider, self.key

        def check_one(name: str | None) -> None:
            if key is not None:
                check_model(key, provider, name)
                check_price(key, name, is_priced)

        check_one(model)
        if request.route.model is not None and home_family(provider) == "gemini":
            while not body.is_complete and body.size < KEPT_BYTES:
                await more()  # it names the longest answer
            return ()  # Google reads the model in the path and knows none of the other members
        members = await self._members(body, more)
        has_budget = self.budgeted is not None or (key is not None and key.budget is not None)
        if (has_budget or (key is not None and key.tpm is not None)) and any(
            name == "background" and value not in (False, None) for name, value in members
        ):
            why = f"{self.who} has {self.what}" if self.what != "models" else self._counting(key)
            message = f"{why}, so `background` must be false: the tokens would not be counted"
            raise OwnError(403, "background_not_allowed", message)
        if self.what == "a limit of tokens":
            return ()
        if request.route.model is None:
            self._check_same_model(members, model)
        others: list[str] = []
        for name in _further_models(members):
            if not isinstance(name, str):
                message = f"{self.who} has {self.what}, and the body has a fallback that is no name of a model"
                raise OwnError(403, "model_not_allowed", message)
            check_one(name)
            if self.budgeted is not None and not is_priced(name):
                raise unpriced(name, f"account {self.budgeted}")
            others.append(name)
        return tuple(others)

    async def _members(self, body: RequestBody, more: MoreOfBody) -> list[tuple[str, object]]:
        """Return the members that matter, names in lower case: some servers do not distinguish it.

        A body that cannot be read is refused. A server that is less strict may find another model in it.
        """
        while not body.is_complete:
            if body.size >= KEPT_BYTES:
                message = f"{self.who} has {self.what}, so a body may have {KEPT_BYTES:,} bytes"
                raise OwnError(413, "body_too_large", message)
            await more()
        try:
            raw = await body.members()
            wanted = [(low, value) for name, value in raw.items() if (low := name.lower()) in _READ]
            return await parsed(body.size, lambda: [(name, msgspec.json.decode(value)) for name, value in wanted])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            message = f"{self.who} has {self.what}, so the body must be a JSON object: {error}"
            raise OwnError(400, "invalid_body", message) from None

    def _counting(self, key: ClientKey | None) -> str:
        """Return why the tokens of a call with a key for certain models are counted."""
        assert key is not None
        if key.budget is None and self.budgeted is not None:
            return f"the account {self.budgeted} has a budget"
        return f"the key {key.name} has {'a limit of tokens' if key.budget is None else 'a budget'}"

    def _check_same_model(self, members: list[tuple[str, object]], model: str | None) -> None:
        """Raise `OwnError` if a body names two models: the provider may take the one that was not checked."""
        for name, value in members:
            last = kept_model(value) if isinstance(value, str) else value
            if name == "model" and last != model:
                message = f"the body names two models, {model!r:.80} and {last!r:.80}; {self.who} allows one"
                raise OwnError(403, "model_not_allowed", message)


def check_price(key: ClientKey, model: str | None, is_priced: IsPriced) -> None:
    """Raise `OwnError` if the key has a budget and nobody knows what the model costs."""
    if key.budget is None or (model is not None and is_priced(model)):
        return
    if model is None:
        message = f"the key {key.name} has a budget, so each call must name a model that has a price"
    else:
        raise unpriced(model, f"key {key.name}")
    raise OwnError(403, "model_not_priced", message)


def _further_models(members: list[tuple[str, object]]) -> Iterator[object]:
    """Yield the models of fallbacks, and those of tools of the provider: of an advisor or a painter."""
    for name, value in members:
        is_way = name == "route" and isinstance(value, str) and value in _NO_MODELS
        if name in _FALLBACKS and not is_way:
            yield from _names(value)
        elif name == "tools" and isinstance(value, list):
            yield from (each["model"] for each in value if isinstance(each, Mapping) and each.get("model") is not None)


def _names(value: object) -> Iterator[object]:
    """Yield the names in a list of fallbacks: names, `{"model": NAME, ...}` or `{NAME: [NAME, ...]}`."""
    if isinstance(value, list):
        for each in value:
            yield from _names(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name == "model" or "model" not in value or isinstance(each, list | Mapping):
                yield from _names(each)
    elif value is not None:
        yield value
