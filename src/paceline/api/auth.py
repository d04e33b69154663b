"""Who may come in: tokens, cookies, hosts and origins, and the headers that keep a browser from being misled.

Plain ASGI in front of everything, so that files of the page are guarded as the API is. `/healthz` is open.
Never here: what a request does.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from paceline.api.errors import problem_body
from paceline.api.tokens import Rights, Tokens, cookie_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

OPEN: Final = "/healthz"
PAGE: Final = "/"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
NOT_FOR_READERS: Final = ("/v1/slots", "/gateway")
"""Slots are capacity: to take one is no looking in."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
PROTECTION: Final[tuple[Header, ...]] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
HOW_TO_ENTER: Final = (
    "send the header `Authorization: Bearer TOKEN`; `paceline token` prints the token, and the one given is none of"
    " this home"
)
CLOSED_PAGE: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Paceline</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><h1>Paceline</h1>
<p>This page opens with the address that <code>paceline up</code> printed.</p>
<p>To see it again: <code>paceline token --url</code></p>
<p><a href="/">I have opened it just now: go on</a></p>
</body></html>
"""


class Access:
    """The door. `hosts` are names beside the address it is bound to and the loopback, with or without a port."""

    def __init__(self, app: App, *, tokens: Tokens, host: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._tokens = tokens
        self._names = frozenset((*LOOPBACK, host.lower()))
        self._hosts = frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refusal(scope, dict(scope["headers"]))
        if answer is None:
            await self._app(scope, receive, _protected(send))
        else:
            await answer(_protected(send))

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> "_Answer | None":
        """None: it may come in."""
        path, method = scope["path"], scope["method"]
        named = [value for name, value in scope["headers"] if name == b"host"]
        host = b", ".join(named).decode("latin-1").lower()  # several are none: which is meant is not ours to choose
        if not self._is_our_host(host, scope.get("server")):
            told = f"the Host header {host!r:.80} is none of this server; add the name to hosts in [api] if it is yours"
            return _Answer.problem(path, 421, told)
        if path == OPEN:
            return None
        if path == PAGE and method == "GET" and (opened := self._opened(scope)) is not None:
            return opened
        rights, is_cookie = self._rights(scope, headers)
        if rights is None:
            if path == PAGE and method == "GET":
                return _Answer(401, CLOSED_PAGE, b"text/html; charset=utf-8")
            return _Answer.problem(path, 401, HOW_TO_ENTER, (b"www-authenticate", b"Bearer"))
        if (is_cookie or method not in SAFE_METHODS) and not _is_same_origin(headers, host):
            return _Answer.problem(path, 403, "the request comes from another site; use the page, or a token")
        if rights == "read" and (method not in SAFE_METHODS or path.startswith(NOT_FOR_READERS)):
            return _Answer.problem(path, 403, "this token is for looking only; `paceline token` prints the other one")
        return None

    def _is_our_host(self, host: str, server: tuple[str, int] | None) -> bool:
        """Against DNS rebinding: a name that another page's owner can point here is none of ours."""
        if host in self._hosts:
            return True
        name, port = split_host(host)
        if name in self._hosts:
            return True
        is_known = name in self._names or (server is not None and is_same_address(name, server[0]))
        return is_known and (server is None or port == server[1])

    def _rights(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[Rights | None, bool]:
        """What the request may do, and whether a browser brought that along by itself."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return self._tokens.rights_of(token.strip()), False
        cookie = _cookie(headers.get(b"cookie", b""), _cookie_name(scope))
        return (None, False) if cookie is None else (self._tokens.rights_of_cookie(cookie), True)

    def _opened(self, scope: Scope) -> "_Answer | None":
        """The printed address: a cookie for the page, and the token out of the address bar."""
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")
        if not given:
            return None
        token = given[0].encode()
        if self._tokens.rights_of(token) is None:
            return _Answer(401, CLOSED_PAGE, b"text/html; charset=utf-8")
        cookie = f"{_cookie_name(scope)}={cookie_of(token).decode()}; Path=/; HttpOnly; SameSite=Strict"
        return _Answer(303, b"", b"text/plain", ((b"location", b"/"), (b"set-cookie", cookie.encode())))


class _Answer:
    """An answer of the door itself."""

    def __init__(self, status: int, body: bytes, media_type: bytes, headers: tuple[Header, ...] = ()) -> None:
        self._status = status
        self._body = body
        self._headers = [
            (b"content-type", media_type),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ]

    @classmethod
    def problem(cls, path: str, status: int, detail: str, *headers: Header) -> "_Answer":
        return cls(status, problem_body(path, status, detail), b"application/json", headers)

    async def __call__(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


def _protected(send: Send) -> Send:
    """Every answer says what a browser may do with it; nothing is kept unless it says so itself."""

    async def send_protected(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            headers += PROTECTION
            if all(name.lower() != b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            message["headers"] = headers
        await send(message)

    return send_protected


def split_host(host: str) -> tuple[str, int | None]:
    """Name and port of a Host header; 80 where it names none, None for one that is no port. It has no user."""
    try:
        parts = urlsplit(f"//{host}")
        return ("", None) if "@" in host else (parts.hostname or "", parts.port or 80)
    except ValueError:
        return "", None


def is_same_address(name: str, address: str) -> bool:
    """Whether the name is this very address: nobody's DNS can say that of another machine."""
    try:
        return ip_address(name) == ip_address(address)
    except ValueError:
        return False


def _is_same_origin(headers: dict[bytes, bytes], host: str) -> bool:
    """Whether a browser, if it is one, says that the request comes from our own page."""
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    scheme, _, origin_host = origin.decode("latin-1").lower().partition("://")
    return scheme in ("http", "https") and origin_host == host


def _cookie_name(scope: Scope) -> str:
    """Cookies are not kept apart by port; two daemons on one machine are."""
    server = scope.get("server")
    return f"paceline-{server[1]}" if server else "paceline"


def _cookie(header: bytes, name: str) -> bytes | None:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header.decode("latin-1"))
    except CookieError:
        return None
    return jar[name].value.encode("latin-1", "replace") if name in jar else None
