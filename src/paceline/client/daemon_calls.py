"""HTTP calls to the daemon: responses as values, and failures as Paceline's own errors.

Never here: slots, or how long a caller waits.
"""

import os
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from paceline import errors
from paceline.client.home_daemon import own_token, own_url
from paceline.core.signals import KINDS, Signal
from paceline.core.values.scopes import ScopePattern
from paceline.core.values.tickets import Reason

RESPONSE_SECONDS = 10.0
"""The longest time for a response, besides the time that a call asks to wait. A healthy daemon takes milliseconds."""
UNAVAILABLE = (502, 503, 504)
CONFLICT = 409
UNKNOWN_TOKEN = 401
NOT_AUTHORIZED = (401, 403, 421)
BAD_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word for it. Trying again does not help."""
Type = TypeVar("Type")
Json = dict[str, Any]


class SlotReply(msgspec.Struct, frozen=True):
    """The daemon's grant."""

    id: str
    scope: str
    token: int
    expires_at: float


class DeferredReply(msgspec.Struct, frozen=True):
    """The daemon's reason why there is no slot now."""

    reason: Reason
    scope: str
    detail: str
    retry_at: float | None
    position: int | None


class ProblemReply(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: str
    detail: str = ""


class DaemonConnection:
    """The HTTP connections to one daemon, or to the engines of a fleet, of which any one is enough.

    `url` may name several addresses, separated by commas. Without it, the address of the home's daemon is read again
    when nobody answers: after a take-over it is another one.
    """

    def __init__(self, url: str | None, token: str | None) -> None:
        named = url or os.environ.get("PACELINE_URL")
        self._given = _addresses(named) if named else []
        self._addresses = self._given or _addresses(own_url(os.environ))
        self._token = token
        self._has_own_token = token is None
        self._is_closed = False
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=False,  # a proxy in the environment is not meant for a local daemon
            verify=trusted_authorities() if any(each.startswith("https:") for each in self._addresses) else True,
        )

    @property
    def url(self) -> str:
        """The address that is used now."""
        return self._addresses[0]

    async def aclose(self) -> None:
        self._is_closed = True
        await self._http.aclose()

    async def send(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, within: float = RESPONSE_SECONDS
    ) -> httpx.Response:
        """Return a response that is about the call itself. Raises `DaemonError` for all others.

        An address at which nobody can be reached is skipped.
        """
        for _ in self._addresses[1:]:
            try:
                return await self._send(method, path, body, within)
            except errors.DaemonUnreachable as error:
                if not isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                    raise
        return await self._send(method, path, body, within)

    async def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Json:
        """Return the members of a good answer, or raise the error that it reports."""
        return decode_reply(await self.send(method, path, body), Json)

    async def _send(self, method: str, path: str, body: Mapping[str, object] | None, within: float) -> httpx.Response:
        if self._is_closed:
            raise errors.CapacityError("the client is closed")
        url = self.url
        content = None if body is None else msgspec.json.encode(body)
        token = self._token = self._token or own_token(url, os.environ)
        response = await self._request(method, url, path, content, within)
        if response.status_code == UNKNOWN_TOKEN and self._has_own_token:
            self._token = own_token(url, os.environ)
            if self._token != token:  # it was rotated
                response = await self._request(method, url, path, content, within)
        if response.status_code in UNAVAILABLE:
            raise errors.DaemonUnreachable(f"the daemon at {url} is not available now: {text_of_problem(response)}")
        if response.status_code in NOT_AUTHORIZED or response.status_code >= 500:
            raise error_of(response)
        return response

    async def _request(self, method: str, url: str, path: str, content: bytes | None, within: float) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        timeout = httpx.Timeout(RESPONSE_SECONDS, read=within)
        try:
            return await self._http.request(method, url + path, content=content, headers=headers, timeout=timeout)
        except httpx.TransportError as error:
            if self._is_closed:
                raise errors.CapacityError("the client was closed while this call waited") from None
            self._turn_to_next()
            detail = str(error) or type(error).__name__
            if BAD_CERTIFICATE in detail:
                raise errors.DaemonError(
                    f"the certificate of the daemon at {url} is not trusted ({detail}); "
                    "name the file with its authority in SSL_CERT_FILE"
                ) from error
            raise errors.DaemonUnreachable(
                f"no daemon answers at {url} ({detail}); start one with `paceline up`"
            ) from error

    def _turn_to_next(self) -> None:
        """Use the next address from now on."""
        if self._given:
            self._addresses = [*self._addresses[1:], self._addresses[0]]
        else:
            self._addresses = _addresses(own_url(os.environ))


def trusted_authorities() -> ssl.SSLContext:
    """Return the certificate authorities of SSL_CERT_FILE or SSL_CERT_DIR, else the usual ones."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise errors.InvalidInput(f"SSL_CERT_FILE or SSL_CERT_DIR: {named} has no certificates: {error}") from error


def _addresses(text: str) -> list[str]:
    """Return the addresses in the text, without slashes at their ends."""
    found = [each.strip().rstrip("/") for each in text.split(",") if each.strip()]
    for each in found:
        try:
            httpx.URL(each)
        except httpx.InvalidURL as error:
            raise errors.InvalidInput(f"url {each!r:.80} is not a valid URL: {error}") from None
    if not found:
        raise errors.InvalidInput(f"url {text!r:.80} names no address")
    return found


def scope_path(scope: str) -> str:
    """Return a scope or pattern as part of a URL path. Its slashes may stay."""
    return quote(ScopePattern(scope).text)


def signal_body(signal: Signal) -> dict[str, object]:
    kind = next((kind for kind, each in KINDS.items() if type(signal) is each), None)
    if kind is None:
        raise errors.InvalidInput(f"expected a signal of paceline.core.signals; got {signal!r:.80}")
    fields = {name: value for name, value in msgspec.structs.asdict(signal).items() if value is not None}
    fields.pop("ticket", None)
    return fields | {"kind": kind}


def text_of_problem(response: httpx.Response) -> str:
    try:
        problem = msgspec.json.decode(response.content, type=ProblemReply)
    except msgspec.DecodeError:
        return f"status {response.status_code} without a description"
    return problem.detail or problem.error


def decode_reply(response: httpx.Response, kind: type[Type]) -> Type:
    """Return the response as a value, or raise the error that it reports."""
    if not response.is_success and response.status_code != CONFLICT:
        raise error_of(response)
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise errors.DaemonError(f"{response.url} answered, but not as a Paceline daemon: {error}") from None


def error_of(response: httpx.Response) -> errors.PacelineError:
    """Return the error of an unsuccessful response."""
    detail = text_of_problem(response)
    match response.status_code:
        case 400:
            return errors.InvalidInput(detail)
        case 404:
            return errors.UnknownName(detail)
        case 422:
            return errors.TicketConflict(detail)
    return errors.DaemonError(f"{response.url} refused ({response.status_code}): {detail}")
