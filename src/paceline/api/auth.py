"""Authentication: tokens, cookies, hosts and origins, and the headers that protect a browser.

Plain ASGI in front of everything, so that the files of the dashboard are protected like the API. `/healthz` is open.
Never here: what a request does.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, MutableMapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from paceline.api.bodies import Answer, App, Header, Receive, Scope, Send, error_json, send_whole
from paceline.api.tokens import AccessTokens, TokenEntry, change_key_of
from paceline.engine.command_log import requested_by

OPEN_PATH: Final = "/healthz"
DASHBOARD_PATH: Final = "/"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
CHANGE_HEADER: Final = b"x-paceline-csrf"
ON_BEHALF_HEADER: Final = b"x-paceline-on-behalf"
"""In a change that an engine passes on: who has asked for it. A read-only token gets no further than its refusal."""
LONGEST_NAME: Final = 200
"""Characters of that name. The longest user and host names have 32 and 253."""
HOST_PATH: Final = "/v1/hosts/"
NOT_FOR_READERS: Final = ("/v1/slots", "/gateway")
"""Paths that a read-only token may not even GET: they are for programs that use capacity."""
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
MISSING_TOKEN: Final = "Missing token: send the header `Authorization: Bearer TOKEN`; `paceline token` prints the token"
READ_ONLY_TOKEN: Final = "this token is read-only; `paceline token` prints the full one"
HOST_TOKEN: Final = "this token is only for requests of the worker of its own host, below /v1/hosts/"
READ_ONLY_COOKIE: Final = (
    "this tab may only read: to change something, open the address that `paceline token --url` prints (a change with "
    "the cookie needs the header x-paceline-csrf, whose value the page gets there)"
)
INVALID_HOST_TOKEN: Final = "Invalid token: `paceline hosts token NAME` on the leader prints the token of a host"
INVALID_TOKEN: Final = "Invalid token: `paceline token` prints the token of this home"
_PATH_PART = re.compile(r"[A-Za-z0-9._~-]{1,200}")
LOGIN_PAGE: Final = (files("paceline.api") / "page" / "login.html").read_text()
"""The page for a browser that is not signed in, with a field for the token."""
_STYLE: Final = LOGIN_PAGE.partition("<style>")[2].partition("</style>")[0]
LOGIN_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


class Authentication:
    """ASGI middleware that passes authenticated requests on and answers the others.

    `hosts` are accepted besides the bound address and the loopback names; each may have a port.
    """

    def __init__(self, app: App, *, tokens: AccessTokens, host: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._tokens = tokens
        self._names = frozenset((*LOOPBACK, host.lower()))
        self._hosts = frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._admit(scope, dict(scope["headers"]))
        if isinstance(answer, tuple):
            await send_whole(_protected(send), *answer)
        elif answer is None:
            await self._app(scope, receive, _protected(send))
        else:
            with requested_by(answer):
                await self._app(scope, receive, _protected(send))

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> "Answer | str | None":
        """Return the response to a request that is not passed on; else who makes a change, or None if it only reads."""
        path, method = scope["path"], scope["method"]
        named = [value for name, value in scope["headers"] if name == b"host"]
        host = b", ".join(named).decode("latin-1").lower()  # several Host headers match no name, on purpose
        is_ours = self._is_our_host(host, scope.get("server"), is_tls=scope.get("scheme") == "https")
        if not is_ours and not _is_tunnelled(scope, headers, host):
            detail = f"unknown Host {host!r:.80}: if the name is yours, add it to hosts in [api] of paceline.toml"
            return 421, error_json(path, 421, detail), ()
        if path == OPEN_PATH:
            return None
        if path == DASHBOARD_PATH and method == "GET" and (opened := self._opened(scope)) is not None:
            return opened
        grant, is_cookie = self._grant(scope, headers)
        if grant is None:
            if path == DASHBOARD_PATH and method == "GET":
                return _login_page()
            invalid = INVALID_HOST_TOKEN if path.startswith(HOST_PATH) else INVALID_TOKEN
            detail = invalid if is_cookie or b"authorization" in headers else MISSING_TOKEN
            return 401, error_json(path, 401, detail), ((b"www-authenticate", b"Bearer"),)
        refusal = None
        if (is_cookie or method not in SAFE_METHODS) and not _is_same_origin(headers, host):
            refusal = "the request comes from another site; use the dashboard or a token"
        elif grant.rights == "read" and (method not in SAFE_METHODS or path.startswith(NOT_FOR_READERS)):
            refusal = READ_ONLY_COOKIE if is_cookie else READ_ONLY_TOKEN
        elif grant.rights == "host" and not _is_of_worker(scope, grant.host):
            refusal = HOST_TOKEN
        if refusal is not None:
            return 403, error_json(path, 403, refusal), ()
        return None if method in SAFE_METHODS else _author(grant, headers, is_cookie=is_cookie)

    def _is_our_host(self, host: str, server: tuple[str, int] | None, *, is_tls: bool) -> bool:
        """Return whether the Host header names this server.

        This blocks DNS rebinding, where the owner of another site points its name at this machine.
        """
        if host in self._hosts:
            return True
        name, port = split_host(host, 443 if is_tls else 80)
        if name in self._hosts:
            return True
        is_known = name in self._names or (server is not None and is_same_address(name, server[0]))
        return is_known and (server is None or port == server[1])

    def _grant(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[TokenEntry | None, bool]:
        """Return what the request may do, and whether a cookie says so, which a browser sends by itself."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return self._tokens.find(token.strip()), False
        cookie = _cookie(headers.get(b"cookie", b""), _cookie_name(scope))
        if cookie is None:
            return None, False
        return self._tokens.find_cookie(cookie, headers.get(CHANGE_HEADER, b"")), True

    def _opened(self, scope: Scope) -> "Answer | None":
        """Answer the printed address: set the cookie and redirect, so that the token leaves the address bar.

        The page finds its change key after the `#` of the new address and removes it from there.
        """
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")
        if not given:
            return None
        token = given[0].encode()
        grant = self._tokens.find(token)
        if grant is None or grant.rights == "host":
            return _login_page("That is not the token of this home.")
        cookie = f"{_cookie_name(scope)}={self._tokens.keep_cookie(token).decode()}; Path=/; HttpOnly; SameSite=Strict"
        cookie += "; Secure" if scope.get("scheme") == "https" else ""
        page = b"/#csrf=" + change_key_of(token) if grant.rights == "full" else b"/"
        return 303, b"", ((b"location", page), (b"set-cookie", cookie.encode()), (b"content-type", b"text/plain"))


def _login_page(problem: str = "") -> Answer:
    shown = f'<p class="problem" role="alert">{problem}</p>' if problem else ""
    headers = (b"content-security-policy", LOGIN_POLICY.encode()), (b"content-type", b"text/html; charset=utf-8")
    return 401, LOGIN_PAGE.replace("<!-- problem -->", shown).encode(), headers


def _is_of_worker(scope: Scope, host: str | None) -> bool:
    """Return whether it is a request that only the worker of this host makes.

    The path must be so as it was sent: nothing in it is encoded, empty or made of dots, so that no part of the server
    can read it as another one.
    """
    path, prefix = scope["path"], f"{HOST_PATH}{host}/"
    if scope["method"] != "POST" or host is None or not path.startswith(prefix):
        return False
    if scope.get("raw_path", path.encode()).partition(b"?")[0] != path.encode():
        return False
    return all(_PATH_PART.fullmatch(part) and part.strip(".") for part in path[len(prefix) :].split("/"))


def _is_tunnelled(scope: Scope, headers: dict[bytes, bytes], host: str) -> bool:
    """Return whether a worker asks through a tunnel, whose port on its own machine differs from that of this server.

    No page can do that: a browser sends no bearer token by itself.
    """
    is_of_worker = scope["method"] == "POST" and scope["path"].startswith(HOST_PATH)
    return is_of_worker and b"authorization" in headers and split_host(host)[0] in LOOPBACK


def _author(grant: TokenEntry, headers: dict[bytes, bytes], *, is_cookie: bool) -> str:
    """Return who makes a change: the token's name and how it came, or on whose behalf an engine of the fleet asks."""
    given = b"" if grant.rights == "host" else headers.get(ON_BEHALF_HEADER, b"")
    given_name = given.decode(errors="replace")[:LONGEST_NAME]
    if behalf := "".join(letter for letter in given_name if letter.isprintable()).strip():
        return f"{behalf} via {grant.name}"
    return f"{grant.name} ({'page' if is_cookie else 'token'})"


def _protected(send: Send) -> Send:
    """Add the protecting headers to every response, and forbid caching unless the response allows it."""

    async def send_protected(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            given = {name.lower() for name, _ in headers}
            headers += [header for header in PROTECTION if header[0] not in given]
            if all(name.lower() != b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            message["headers"] = headers
        await send(message)

    return send_protected


def split_host(host: str, usual_port: int = 80) -> tuple[str, int | None]:
    """Return the name and the port of a Host header.

    Where it names no port, that is the usual one. An invalid header, also one with a user, gives an empty name.
    """
    try:
        parts = urlsplit(f"//{host}")
        return ("", None) if "@" in host else (parts.hostname or "", parts.port or usual_port)
    except ValueError:
        return "", None


def is_same_address(name: str, address: str) -> bool:
    """Return whether the name is this IP address, written as one: no DNS entry can fake that."""
    try:
        return ip_address(name) == ip_address(address)
    except ValueError:
        return False


def _is_same_origin(headers: dict[bytes, bytes], host: str) -> bool:
    """Return whether the request comes from our own dashboard, or from no browser at all."""
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    scheme, _, origin_host = origin.decode("latin-1").lower().partition("://")
    return scheme in ("http", "https") and origin_host == host


def _cookie_name(scope: Scope) -> str:
    """Return the name of the cookie, one per port: browsers share cookies between the ports of a host."""
    server = scope.get("server")
    return f"paceline-{server[1]}" if server else "paceline"


def _cookie(header: bytes, name: str) -> bytes | None:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header.decode("latin-1"))
    except CookieError:
        return None
    return jar[name].value.encode("latin-1", "replace") if name in jar else None
