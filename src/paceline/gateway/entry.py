"""At the gate: who asks, for which account, and what of the request goes on.

Here: everything that is decided from a request's head alone. What comes out is a `Call`, or a `Refused` with the
sentence for the client. Never here: sockets, waiting, bodies.
"""

import hmac
import math
import re
from collections.abc import Mapping

import msgspec

from paceline.gateway.heads import HOP_BY_HOP, Header, header_lines, named_by_connection
from paceline.gateway.upstream import Origin
from paceline.protocols import (
    Family,
    detect_name,
    family_of,
    key_place,
    login_refusal,
    model_in_path,
    presented_key,
    with_key,
)
from paceline.protocols.keys import Place, PresentedKey
from paceline.settings import AccountSettings

PREFIX = b"/gateway/"
LONGEST_SESSION_NAME = 200
LONGEST_MAX_WAIT_SECONDS = 86400.0
_OURS = b"x-paceline-"
_KEY_HEADERS = frozenset({b"x-api-key", b"authorization", b"x-goog-api-key", b"api-key"})
_READ_HERE = frozenset({b"host", b"origin", b"sec-fetch-site", b"expect"})
_NOT_PASSED = frozenset({b"host", b"expect"})
_DOT_SEGMENT = re.compile(rb"(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\]|$)", re.I)
_UNCOUNTED_PATH = re.compile(r"(?:/count_tokens|:countTokens|/files|/uploads|/batches)(?:/|$)")
_SUBSCRIPTION = (
    "{name} is a subscription, and the gateway takes API keys only: "
    "use the vendor's own CLI through `paceline run` or `paceline exec`"
)


class Refused(Exception):
    """The gateway's own answer instead of the upstream's."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class RequestHead(msgspec.Struct, gc=False):
    """A request as it was asked."""

    method: str
    target: bytes
    headers: list[Header]


class Route(msgspec.Struct, frozen=True):
    """An account, and where its requests go; None: nobody has said where."""

    account: AccountSettings
    origin: Origin | None


class Call(msgspec.Struct, gc=False, kw_only=True):
    """A request that may go on: what to send and whose it is."""

    account: AccountSettings
    origin: Origin
    method: str
    target: bytes
    headers: list[Header]
    family: Family
    detect_name: str
    is_counted: bool
    """Whether it takes a slot."""
    model: str | None
    """As far as the URL names it."""
    has_own_key: bool
    """The client pays with a key of its own; what its provider says of that key says nothing of the account's."""
    is_chunked: bool
    session: str | None = None
    priority: int = 0
    max_wait: float | None = None

    def head_bytes(self) -> bytes:
        """What is sent before the body."""
        return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (
            self.method.encode(),
            self.target,
            self.origin.authority,
            header_lines(self.headers),
        )


class Gate:
    """Checks what comes in against the accounts, the token and the names this server is known by."""

    def __init__(
        self, routes: Mapping[str, Route], *, token: str, environ: Mapping[str, str], hosts: frozenset[str] | None
    ) -> None:
        self._routes = routes
        self._token = token.encode()
        self._environ = environ
        self._hosts = None if hosts is None else {host.lower().encode() for host in hosts}

    def family(self, head: RequestHead) -> Family:
        """In whose words the client expects its errors."""
        name, rest = _split(head.target)
        route = self._routes.get(name)
        return family_of("" if route is None else route.account.provider, _path_of(rest))

    def admit(self, head: RequestHead) -> Call:
        """The request as it goes on, or `Refused`."""
        sorted_out = _SortedHeaders(head.headers)
        name, rest = _split(head.target)
        self._check_origin(sorted_out.read)
        presented = _presented(sorted_out.keys, rest)
        place = self._check_token(sorted_out.ours, presented)
        account, origin = self._route(name)
        path = _path_of(rest)
        family = family_of(account.provider, path)
        target = _target(origin, rest)
        if place is None:
            _check_logins(presented, account.provider)
            headers = sorted_out.passed + sorted_out.raw_keys
        else:
            place = key_place(account.provider, family, place)
            key_headers, target = with_key(sorted_out.keys, target, self._key(account), place)
            headers = sorted_out.passed + key_headers
        if sorted_out.is_chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        return Call(
            account=account,
            origin=origin,
            method=head.method,
            target=target,
            headers=headers,
            family=family,
            detect_name=detect_name(account.provider),
            is_counted=head.method == "POST" and _UNCOUNTED_PATH.search(path) is None,
            model=model_in_path(path),
            has_own_key=place is None,
            is_chunked=sorted_out.is_chunked,
            session=_session(sorted_out.ours),
            priority=_priority(sorted_out.ours),
            max_wait=_max_wait(sorted_out.ours),
        )

    def _check_origin(self, read: dict[bytes, bytes]) -> None:
        """No web page may spend money, not even one that knows the token."""
        host = read.get(b"host", b"").lower()
        if self._hosts is not None and host not in self._hosts:
            raise Refused(403, "wrong_host", "this server is not known by the name in the Host header")
        origin = read.get(b"origin", b"").lower()
        is_own_page = origin.partition(b"://")[2] == host
        if (origin and not is_own_page) or read.get(b"sec-fetch-site", b"").lower() == b"cross-site":
            raise Refused(403, "web_page", "requests from web pages are not served by the gateway")

    def _check_token(self, ours: dict[bytes, bytes], presented: list[PresentedKey]) -> Place | None:
        """Where the token stands in place of a key; None: beside a key of the client's own. Nowhere: `Refused`."""
        for key in presented:
            if hmac.compare_digest(key.value, self._token):
                return key.place
        if hmac.compare_digest(ours.get(b"x-paceline-token", b""), self._token):
            return None
        raise Refused(
            401,
            "invalid_token",
            "the gateway wants Paceline's token (`paceline token`) in place of the API key, "
            "or in x-paceline-token beside a key of your own",
        )

    def _route(self, name: str) -> tuple[AccountSettings, Origin]:
        route = self._routes.get(name)
        if route is None:
            known = ", ".join(sorted(self._routes)) or "none"
            raise Refused(
                404, "unknown_account", f"there is no account {name!r:.80} for the gateway; there is: {known}"
            )
        if route.account.kind == "subscription":
            raise Refused(403, "subscription", _SUBSCRIPTION.format(name=name))
        if route.origin is None:
            raise Refused(404, "no_base_url", f"{name} has no base_url in paceline.toml")
        return route.account, route.origin

    def _key(self, account: AccountSettings) -> bytes:
        key = self._environ.get(account.key_env or "", "")
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
            if name in _KEY_HEADERS:
                self.keys.append((name, header[1]))
                self.raw_keys.append(header)
                continue
            if name in HOP_BY_HOP:
                if name == b"connection":
                    named |= named_by_connection(header[1])
                elif name == b"transfer-encoding":
                    self.is_chunked = True
                continue
            if name.startswith(_OURS):
                self.ours[name] = header[1].strip()
                continue
            if name in _READ_HERE:
                self.read[name] = header[1].strip()
            if name not in _NOT_PASSED:
                self.passed.append(header)
        if named:
            self.passed = [header for header in self.passed if header[0].lower() not in named]


def _split(target: bytes) -> tuple[str, bytes]:
    """The account's name, and the rest: its path (from the slash on) and query, as they came."""
    asked = target[len(PREFIX) :]
    end = min((at for at in (asked.find(b"/"), asked.find(b"?"), asked.find(b"#")) if at >= 0), default=len(asked))
    return asked[:end].decode("latin-1"), asked[end:]


def _path_of(rest: bytes) -> str:
    return rest.partition(b"?")[0].decode("latin-1")


def _target(origin: Origin, rest: bytes) -> bytes:
    """The upstream's path and query; never outside the base path."""
    path = rest.partition(b"?")[0]
    if _DOT_SEGMENT.search(path) or b"#" in rest:
        raise Refused(400, "bad_path", "the path must have no . or .. parts and no fragment")
    target = origin.base_path + rest
    return target if target.startswith(b"/") else b"/" + target


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
    name = value.decode("latin-1")
    if not 1 <= len(name) <= LONGEST_SESSION_NAME or not name.isprintable():
        raise Refused(400, "bad_header", f"x-paceline-session must be a name of 1 to {LONGEST_SESSION_NAME} characters")
    return name


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
