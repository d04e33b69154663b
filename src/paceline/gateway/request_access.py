"""Access to the gateway: authentication, the account, and the request as it is forwarded.

Here: everything that is decided from a request's head alone. The result is an `UpstreamRequest`, or a `GatewayError`
with the message for the client. Never here: sockets, waiting, bodies.
"""

import hmac
import math
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy

import msgspec

from paceline.agents.account import gateway_key
from paceline.gateway.client_keys import ClientKeys, check_key_address, is_client_key
from paceline.gateway.decompression import readable_codings
from paceline.gateway.errors import GatewayError
from paceline.gateway.http_heads import HOP_BY_HOP, Header, header_lines, named_by_connection
from paceline.gateway.routes import Route, Routes, account_name, check_session_name
from paceline.limiter.slot import SlotGroup
from paceline.protocols import Family, key_position, login_refusal, with_key
from paceline.protocols.keys import KeyPosition, PresentedKey, key_in_header, key_in_query
from paceline.settings import AccountSettings, KeyPoolSettings
from paceline.store import ClientKey

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
_FAIRNESS_ID = b"x-gateway-fairness-id"
_SPECIAL = _KEY_HEADERS | _READ_HERE | HOP_BY_HOP | {_FAIRNESS_ID}


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


class UpstreamRequest(msgspec.Struct, gc=False, kw_only=True):
    """An accepted request: what is sent upstream, for which account, and how it waits."""

    route: Route
    method: str
    head: bytes
    """The bytes sent before the body."""
    headers: list[Header]
    """The headers in it that came from the client."""
    has_own_key: bool
    """Whether the client pays with its own key. Errors about that key then say nothing about the account's."""
    is_chunked: bool
    expects_continue: bool
    """Whether the client sends its body only after `100 Continue`."""
    session: str | None = None
    priority: int = 0
    max_wait: float | None = None
    keepalive: float | None = None
    """Seconds between the signs of life that the client wants while its stream waits."""
    client: ClientKey | None = None
    """The key of a client, if the request came with one."""
    group: SlotGroup | None = None

    @property
    def takes_slot(self) -> bool:
        return self.method == "POST" and self.route.is_model_call


class _Login(msgspec.Struct, gc=False):
    """What lets a request in."""

    position: KeyPosition | None
    """The key position that holds it, None if `x-paceline-token` does."""
    secret: bytes
    client: ClientKey | None = None


class RequestAccess:
    """The check of every request against the accounts, the token and this server's host names."""

    def __init__(
        self,
        accounts: Iterable[AccountSettings],
        *,
        token: str,
        environ: Mapping[str, str],
        hosts: frozenset[str] | None = None,
        is_token: Callable[[bytes], bool] | None = None,
        is_session_key: Callable[[str, bytes], bool] | None = None,
    ) -> None:
        """`token` is that of this home. The last two decide about all tokens and all session keys of the fleet."""
        accounts = list(accounts)
        self.keys = ClientKeys()
        """The keys of clients. Without any, only tokens and the keys of sessions let a request in."""
        self._routes = Routes(accounts)
        self._token = token.encode()
        self._is_token = is_token or (lambda given: hmac.compare_digest(given, self._token))
        self._is_session_key = is_session_key or (
            lambda account, given: hmac.compare_digest(given, gateway_key(token, account).encode())
        )
        self._accounts = frozenset(account.name for account in accounts)
        self._environ = environ
        self._hosts = None if hosts is None else {host.lower().encode() for host in hosts}

    def use_pools(self, pools: Mapping[str, KeyPoolSettings]) -> None:
        """Serve these pools of keys, whose accounts must be among those of the gateway."""
        self._routes.pools = pools

    def account(self, name: str) -> AccountSettings:
        """Return an account that a pool names."""
        return self._routes.account(name)

    def pools_of(self, account: str) -> tuple[str, ...]:
        """Return the pools that the account is in, also as a fallback."""
        return tuple(pool.name for pool in self._routes.pools.values() if account in pool.all_accounts)

    def has_key(self, name: str) -> bool:
        """Return whether the account's key is there, or it needs none."""
        variable = self.account(name).key_env
        return variable is None or bool(self._environ.get(variable, "").strip())

    def family(self, head: RequestHead) -> Family:
        """Return the protocol in which the client expects its errors."""
        return self._routes.family(head.target.partition(b"?")[0])

    def authorize(self, head: RequestHead, account: str | None = None) -> UpstreamRequest:
        """Return the request to forward, with the key of `account` if its path names a pool. Raises `GatewayError`."""
        if head.method == "TRACE":  # its response would contain the account's key
            raise GatewayError(405, "method_not_allowed", "TRACE is not served by the gateway")
        sorted_headers = head.sorted_headers or self._sorted(head)
        presented = sorted_headers.presented
        path, mark, query = head.target.partition(b"?")
        name = account_name(path)
        login = self._check_token(name, sorted_headers.ours, presented)
        position = login.position
        if login.client is not None:
            check_key_address(login.client, name)
        route = self._routes.resolve(path, account)
        if route.pool is not None and account is None:  # a key that is not set is no reason to refuse yet
            account = next((name for name in route.pool.accounts if self.has_key(name)), None)
            route = self._routes.resolve(path, account)
        target = route.path + mark + query
        if position is None:
            _check_logins(presented, route.account.provider)
            key_headers = sorted_headers.raw_keys
        else:
            wanted = key_position(route.account.provider, route.family, position)
            key_headers, target = with_key(sorted_headers.keys, target, self._key(route.account), wanted)
        if head.method == "POST" and route.is_model_call:
            sorted_headers.accept_readable()
        request = UpstreamRequest(
            route=route,
            method=head.method,
            head=_head_bytes(head.method, target, route.origin.authority, sorted_headers, key_headers),
            headers=sorted_headers.forwarded,
            has_own_key=position is None,
            is_chunked=sorted_headers.is_chunked,
            expects_continue=sorted_headers.read.get(b"expect", b"").lower() == b"100-continue",
            session=route.session,
            client=login.client,
        )
        if login.secret in request.head or self._token in request.head:
            message = "the token appears in a part of the request that is forwarded upstream; remove it there"
            raise GatewayError(400, "stray_token", message)
        if ours := sorted_headers.ours:
            request.session = _session(ours) or route.session
            request.priority = _priority(ours)
            request.max_wait = _seconds(ours, MAX_WAIT, 0.0, LONGEST_MAX_WAIT_SECONDS)
            request.keepalive = _seconds(ours, KEEPALIVE, SHORTEST_KEEPALIVE_SECONDS, LONGEST_KEEPALIVE_SECONDS)
        if login.client is not None:
            self._queue_by_key(request, login.client, sorted_headers.ours)
        return request

    def _queue_by_key(self, request: UpstreamRequest, client: ClientKey, ours: dict[bytes, bytes]) -> None:
        """Let the request wait in the group of its key. A client can name only sessions of its own key."""
        request.group = self.keys.group(client, ours.get(_FAIRNESS_ID, b""))
        request.priority = min(request.priority, client.priority_max)
        if request.session is not None:
            request.session = f"{request.group.scope}:{request.session}"

    def _sorted(self, head: RequestHead) -> "SortedHeaders":
        """Return the headers of a request, which must come from no web page, and keep them in its head."""
        sorted_headers = SortedHeaders(head)
        self._check_origin(sorted_headers.read)
        head.sorted_headers = sorted_headers
        return sorted_headers

    def _check_origin(self, read: dict[bytes, bytes]) -> None:
        """Reject requests of web pages. No page may spend money, not even one that knows the token."""
        host = read.get(b"host", b"").lower()
        if self._hosts is not None and host not in self._hosts and not _LOOPBACK.fullmatch(host):
            raise GatewayError(403, "wrong_host", "the Host header does not name this server")
        origin = read.get(b"origin", b"").lower()
        is_other_page = bool(origin) and origin not in (b"http://" + host, b"https://" + host)
        if is_other_page or read.get(b"sec-fetch-site", b"").lower() == b"cross-site":
            raise GatewayError(403, "web_page", "requests from web pages are not served by the gateway")

    def _check_token(self, account: str, ours: dict[bytes, bytes], presented: list[PresentedKey]) -> _Login:
        """Return the token of the request. Raises `GatewayError` if there is none.

        Sessions of the account have a key of their own in its place, and so have clients.
        """
        given: list[tuple[KeyPosition | None, bytes]] = [(key.position, key.value) for key in presented]
        if beside := ours.get(b"x-paceline-token"):
            given.append((None, beside))
        tokens = [each for each in given if not is_client_key(each[1])]
        for position, secret in tokens:
            if self._is_token(secret):
                return _Login(position, secret)
        for position, secret in tokens if account in self._accounts else ():
            if self._is_session_key(account, secret):
                return _Login(position, secret)
        for position, secret in given:
            if (client := self.keys.find(secret)) is not None:
                return _Login(position, secret, client)
        raise GatewayError(401, INVALID_TOKEN, WRONG_TOKEN)

    def _key(self, account: AccountSettings) -> bytes:
        key = self._environ.get(account.key_env or "", "").strip().encode()
        if account.key_env is not None and not key:
            raise GatewayError(401, "no_key", f"{account.name} takes its key from {account.key_env}, which is not set")
        if (message := login_refusal(key, account.provider)) is not None:
            raise GatewayError(403, "subscription", f"{account.key_env}: {message}")
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
        self.presented = _presented(self.keys, head.target)

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
        raise GatewayError(400, "bad_header", "transfer-encoding must be chunked, and nothing else")
    return True


def _head_bytes(
    method: str, target: bytes, authority: bytes, sorted_headers: SortedHeaders, keys: list[Header]
) -> bytes:
    framing = b"Transfer-Encoding: chunked\r\n" if sorted_headers.is_chunked else b""
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b%b\r\n" % (
        method.encode(), target, authority, sorted_headers.lines, header_lines(keys), framing,
    )  # fmt: skip


def _presented(keys: list[Header], target: bytes) -> list[PresentedKey]:
    """Return the keys in all key positions of the request."""
    found = [key_in_header(name, value) for name, value in keys]
    if b"key=" in target:
        found.append(key_in_query(target))
    return [key for key in found if key is not None]


def _check_logins(presented: list[PresentedKey], provider: str) -> None:
    """Raise `GatewayError` if a key in any position is the login of a subscription."""
    for key in presented:
        if (message := login_refusal(key.value, provider)) is not None:
            raise GatewayError(403, "subscription", message)


def _session(ours: dict[bytes, bytes]) -> str | None:
    value = ours.get(b"x-paceline-session")
    if value is None:
        return None
    return check_session_name(value.decode("latin-1"), "x-paceline-session")


def _priority(ours: dict[bytes, bytes]) -> int:
    value = ours.get(b"x-paceline-priority")
    if value is None:
        return 0
    if re.fullmatch(rb"[+-]?\d{1,4}", value) is None:
        raise GatewayError(400, "bad_header", "x-paceline-priority must be a whole number, such as 0, 5 or -1")
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
        raise GatewayError(400, "bad_header", message)
    return seconds
