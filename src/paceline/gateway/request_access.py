"""At the gate: who asks, for which account, and what of the request goes on.

Here: everything that is decided from a request's head alone. What comes out is a `Call`, or a `Refused` with the
sentence for the client. Never here: sockets, waiting, bodies.
"""

import hmac
import math
import re
from collections.abc import Iterable, Mapping

import msgspec

from paceline.agents.account import gateway_key
from paceline.gateway.errors import Refused
from paceline.gateway.http_heads import HOP_BY_HOP, Header, header_lines, named_by_connection
from paceline.gateway.routes import Routes, Way, account_name, session_name
from paceline.protocols import Family, key_place, login_refusal, presented_key, with_key
from paceline.protocols.keys import Place, PresentedKey
from paceline.settings import AccountSettings

LONGEST_MAX_WAIT_SECONDS = 86400.0
ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_OURS = b"x-paceline-"
_KEY_HEADERS = frozenset({b"x-api-key", b"authorization", b"x-goog-api-key", b"api-key"})
_READ_HERE = frozenset({b"host", b"origin", b"sec-fetch-site", b"expect"})
_NOT_PASSED = frozenset({b"host", b"expect"})
_LOOKED_AT = _KEY_HEADERS | _READ_HERE | HOP_BY_HOP


class RequestHead(msgspec.Struct, gc=False):
    """A request as it was asked."""

    method: str
    target: bytes
    headers: list[Header]


class Call(msgspec.Struct, gc=False, kw_only=True):
    """A request that may go on: what to send and whose it is."""

    way: Way
    method: str
    head: bytes
    """What is sent before the body."""
    headers: list[Header]
    """Those of them that came from the client."""
    has_own_key: bool
    """The client pays with a key of its own; what its provider says of that key says nothing of the account's."""
    is_chunked: bool
    expects_continue: bool
    """The client sends its body only once it is told to go on."""
    session: str | None = None
    priority: int = 0
    max_wait: float | None = None

    @property
    def is_counted(self) -> bool:
        """Whether it takes a slot."""
        return self.method == "POST" and self.way.is_model_call


class Gate:
    """Checks what comes in against the accounts, the token and the names this server is known by."""

    def __init__(
        self,
        accounts: Iterable[AccountSettings],
        *,
        token: str,
        environ: Mapping[str, str],
        hosts: frozenset[str] | None,
    ) -> None:
        accounts = list(accounts)
        self._routes = Routes(accounts)
        self._token = token.encode()
        self._account_keys = {account.name: gateway_key(token, account.name).encode() for account in accounts}
        self._environ = environ
        self._hosts = None if hosts is None else {host.lower().encode() for host in hosts}

    def family(self, head: RequestHead) -> Family:
        """In whose words the client expects its errors."""
        return self._routes.family(head.target.partition(b"?")[0])

    def admit(self, head: RequestHead) -> Call:
        """The request as it goes on, or `Refused`."""
        if head.method == "TRACE":  # it would show what the gateway puts in
            raise Refused(405, "method_not_allowed", "TRACE is not served by the gateway")
        told = _SortedHeaders(head.headers)
        self._check_origin(told.read)
        presented = _presented(told.keys, head.target)
        path, mark, query = head.target.partition(b"?")
        tokens = self._tokens_for(path)
        place = _check_token(tokens, told.ours, presented)
        way = self._routes.follow(path)
        target = way.path + mark + query
        if place is None:
            _check_logins(presented, way.account.provider)
            key_headers = told.raw_keys
        else:
            wanted = key_place(way.account.provider, way.family, place)
            key_headers, target = with_key(told.keys, target, self._key(way.account), wanted)
        call = Call(
            way=way,
            method=head.method,
            head=_head_bytes(head.method, target, way.origin.authority, told, key_headers),
            headers=told.passed,
            has_own_key=place is None,
            is_chunked=told.is_chunked,
            expects_continue=told.read.get(b"expect", b"").lower() == b"100-continue",
            session=way.session,
        )
        if any(token in call.head for token in tokens):
            raise Refused(400, "stray_token", "Paceline's token stands where it would be sent on: leave it out there")
        if told.ours:
            call.session = _session(told.ours) or way.session
            call.priority = _priority(told.ours)
            call.max_wait = _max_wait(told.ours)
        return call

    def _check_origin(self, read: dict[bytes, bytes]) -> None:
        """No web page may spend money, not even one that knows the token."""
        host = read.get(b"host", b"").lower()
        if self._hosts is not None and host not in self._hosts:
            raise Refused(403, "wrong_host", "this server is not known by the name in the Host header")
        origin = read.get(b"origin", b"").lower()
        is_own_page = origin.partition(b"://")[2] == host
        if (origin and not is_own_page) or read.get(b"sec-fetch-site", b"").lower() == b"cross-site":
            raise Refused(403, "web_page", "requests from web pages are not served by the gateway")

    def _tokens_for(self, path: bytes) -> tuple[bytes, ...]:
        """What lets a request in: the daemon's token, and the one that sessions of the account are given."""
        own = self._account_keys.get(account_name(path))
        return (self._token,) if own is None else (self._token, own)

    def _key(self, account: AccountSettings) -> bytes:
        key = self._environ.get(account.key_env or "", "").strip()
        if account.key_env is not None and not key:
            raise Refused(401, "no_key", f"{account.name} takes its key from {account.key_env}, which is not set")
        if (sentence := login_refusal(key.encode(), account.provider)) is not None:
            raise Refused(403, "subscription", f"{account.key_env}: {sentence}")
        return key.encode()


class _SortedHeaders:
    """The headers of a request, apart by what becomes of them."""

    __slots__ = ("is_chunked", "keys", "ours", "passed", "raw_keys", "read")

    def __init__(self, headers: list[Header]) -> None:
        self.passed: list[Header] = []
        self.keys: list[Header] = []
        self.raw_keys: list[Header] = []
        self.ours: dict[bytes, bytes] = {}
        self.read: dict[bytes, bytes] = {}
        self.is_chunked = False
        named: frozenset[bytes] = frozenset()
        for header in headers:
            name = header[0].lower()
            if name not in _LOOKED_AT and not name.startswith(_OURS):
                self.passed.append(header)
            elif name in _KEY_HEADERS:
                self.keys.append((name, header[1]))
                self.raw_keys.append(header)
            elif name == b"connection":
                named |= named_by_connection(header[1])
            elif name == b"transfer-encoding":
                self.is_chunked = _is_chunked(header[1])
            elif name in _READ_HERE:
                self.read[name] = header[1].strip()
                if name not in _NOT_PASSED:
                    self.passed.append(header)
            elif name not in HOP_BY_HOP:
                self.ours[name] = header[1].strip()
        if named:
            self.passed = [header for header in self.passed if header[0].lower() not in named]


def _check_token(tokens: tuple[bytes, ...], ours: dict[bytes, bytes], presented: list[PresentedKey]) -> Place | None:
    """Where one stands in place of a key; None: beside a key of the client's own. Nowhere: `Refused`."""
    for token in tokens:
        for key in presented:
            if hmac.compare_digest(key.value, token):
                return key.place
        if hmac.compare_digest(ours.get(b"x-paceline-token", b""), token):
            return None
    raise Refused(
        401,
        "invalid_token",
        "the gateway wants Paceline's token (`paceline token`) in place of the API key, "
        "or in x-paceline-token beside a key of your own",
    )


def _is_chunked(transfer_encoding: bytes) -> bool:
    if transfer_encoding.strip().lower() != b"chunked":
        raise Refused(400, "bad_header", "transfer-encoding must be chunked, and nothing else")
    return True


def _head_bytes(method: str, target: bytes, authority: bytes, told: _SortedHeaders, keys: list[Header]) -> bytes:
    framing = b"Transfer-Encoding: chunked\r\n" if told.is_chunked else b""
    passed = header_lines(told.passed)
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b%b\r\n" % (
        method.encode(), target, authority, passed, header_lines(keys), framing,
    )  # fmt: skip


def _presented(keys: list[Header], target: bytes) -> list[PresentedKey]:
    """What stands in each of the places for a key."""
    found = [presented_key([header]) for header in keys]
    if b"key=" in target:
        found.append(presented_key((), target))
    return [key for key in found if key is not None]


def _check_logins(presented: list[PresentedKey], provider: str) -> None:
    """No key of any place may be a person's login."""
    for key in presented:
        if (sentence := login_refusal(key.value, provider)) is not None:
            raise Refused(403, "subscription", sentence)


def _session(ours: dict[bytes, bytes]) -> str | None:
    value = ours.get(b"x-paceline-session")
    if value is None:
        return None
    return session_name(value.decode("latin-1"), "x-paceline-session")


def _priority(ours: dict[bytes, bytes]) -> int:
    value = ours.get(b"x-paceline-priority")
    if value is None:
        return 0
    if re.fullmatch(rb"[+-]?\d{1,4}", value) is None:
        raise Refused(400, "bad_header", "x-paceline-priority must be a whole number, such as 0, 5 or -1")
    return int(value)


def _max_wait(ours: dict[bytes, bytes]) -> float | None:
    value = ours.get(b"x-paceline-max-wait")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_MAX_WAIT_SECONDS:
        raise Refused(400, "bad_header", "x-paceline-max-wait must be a number of seconds from 0 to 86400")
    return seconds
