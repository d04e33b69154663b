"""The requests of a worker to the leader, and their way over HTTP, at any of the addresses of its fleet."""

import contextlib
import ipaddress
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from paceline.client.daemon_calls import BAD_CERTIFICATE, text_of_problem, trusted_authorities
from paceline.client.home_daemon import LOOPBACK
from paceline.errors import InvalidInput, LinkDown, NotJoined, Refused
from paceline.hosts.messages import Joined, JoinRequest, Orders, OrdersRequest, Reports, ReportsTaken


class Link(Protocol):
    """Requests of one worker. Each raises `LinkDown` if no leader answers, and `NotJoined` if the joining is over.

    `Refused` means that asking again does not help: the token is not valid, or the versions do not fit.
    """

    async def join(self, request: JoinRequest) -> Joined: ...

    async def orders(self, request: OrdersRequest) -> Orders: ...

    async def report(self, reports: Reports) -> ReportsTaken: ...

    async def fetch_commits(self, joining: str, call_id: str, have: tuple[str, ...], file: Path) -> None:
        """Write a git bundle to `file`, with the commits that the call needs and that are not in `have`."""

    async def send_commits(self, joining: str, call_id: str, file: Path) -> None:
        """Send the leader a git bundle with what came of the call."""


RESPONSE_SECONDS = 10.0
"""The longest time for a response, besides the time that a request asks to wait: a healthy leader needs little."""
TRANSFER_SECONDS = 300.0
"""The longest silence during a transfer of commits: the leader packs them before the first byte, which takes minutes
for the largest repositories."""
PIECE_BYTES = 1 << 16
REFUSALS = (401, 403, 404, 409, 421, 426)
"""Answers that stay the same when the request is repeated."""
NOT_JOINED = 410
JSON_BODY = {"content-type": "application/json"}
Type = TypeVar("Type")


def read_token(text: str, source: str) -> str:
    """Return the token in the text, `NAME.SECRET`. Raise `InvalidInput` if it is not one of a host."""
    token = text.strip()
    if not all(token.rpartition(".")) or any(character.isspace() for character in token):
        raise InvalidInput(
            f"{source} does not hold a token of a host (NAME.SECRET); `paceline hosts add NAME` on the leader prints it"
        )
    return token


def host_of_token(token: str) -> str:
    """Return the host for which alone the token is good."""
    return token.rpartition(".")[0]


def check_address(url: str, *, insecure: bool) -> str:
    """Return the address without a slash at its end. Raise `InvalidInput` if a token must not be sent there."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"--connect {url!r:.80} is not a valid URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"--connect {url!r:.80} is not a URL of a daemon, such as https://leader.example:7433")
    if parsed.scheme == "http" and not insecure and not _is_loopback(parsed.host):
        raise InvalidInput(
            f"--connect {url} would send the token unencrypted; use https:// ([api] tls_cert on the leader), a tunnel"
            " to this machine, or --insecure in a network that you trust"
        )
    return url.rstrip("/")


class HttpLink:
    """The requests of one host. With several addresses the next one is used when nobody answers."""

    def __init__(self, addresses: list[str], token: str) -> None:
        self._addresses = addresses
        self._path = f"/v1/hosts/{quote(host_of_token(token), safe='')}"
        self._http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {token}"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=10),
            trust_env=False,  # a proxy in the environment is not meant for the leader
            verify=trusted_authorities() if any(each.startswith("https:") for each in addresses) else True,
        )

    @property
    def url(self) -> str:
        """The address that is used now."""
        return self._addresses[0]

    async def aclose(self) -> None:
        await self._http.aclose()

    async def join(self, request: JoinRequest) -> Joined:
        return await self._call("join", request, Joined)

    async def orders(self, request: OrdersRequest) -> Orders:
        return await self._call("orders", request, Orders, within=request.wait)

    async def report(self, reports: Reports) -> ReportsTaken:
        return await self._call("reports", reports, ReportsTaken)

    async def fetch_commits(self, joining: str, call_id: str, have: tuple[str, ...], file: Path) -> None:
        """Write the commits that the call needs to the file, as a git bundle."""
        path = f"bundles/{quote(call_id, safe='')}/wanted?joining={quote(joining, safe='')}"
        async with self._answer(path, msgspec.json.encode({"have": have}), is_transfer=True) as response:
            with file.open("wb") as opened:
                async for piece in response.aiter_bytes(PIECE_BYTES):
                    opened.write(piece)

    async def send_commits(self, joining: str, call_id: str, file: Path) -> None:
        """Send what came of a call, as a git bundle."""
        path = f"bundles/{quote(call_id, safe='')}?joining={quote(joining, safe='')}"
        headers = {"content-type": "application/octet-stream", "content-length": str(os.stat(file).st_size)}
        async with self._answer(path, _pieces_of(file), headers, is_transfer=True) as response:
            await response.aread()

    async def _call(self, verb: str, body: object, kind: type[Type], within: float = 0.0) -> Type:
        url = self.url
        async with self._answer(verb, msgspec.json.encode(body), within=within) as response:
            content = await response.aread()
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            self._turn_from(url)
            raise LinkDown(f"{url} answers, but not as a leader does ({error})") from error

    @contextlib.asynccontextmanager
    async def _answer(
        self,
        path: str,
        content: bytes | AsyncIterator[bytes],
        headers: Mapping[str, str] = JSON_BODY,
        *,
        within: float = 0.0,
        is_transfer: bool = False,
    ) -> AsyncIterator[httpx.Response]:
        """Yield the leader's answer, which may take `within` seconds longer than usual, before its body is read."""
        url = self.url
        longest = TRANSFER_SECONDS if is_transfer else RESPONSE_SECONDS
        timeout = httpx.Timeout(longest, read=longest + within)
        request = {"content": content, "headers": headers, "timeout": timeout}
        try:
            async with self._http.stream("POST", f"{url}{self._path}/{path}", **request) as response:  # type: ignore[arg-type]
                if not response.is_success:
                    await response.aread()
                    self._raise(response, url, is_transfer=is_transfer)
                yield response
        except httpx.TransportError as error:
            self._fail(error, url)

    def _raise(self, response: httpx.Response, url: str, *, is_transfer: bool = False) -> NoReturn:
        text = text_of_problem(response)
        if response.status_code == NOT_JOINED:
            raise NotJoined(text)
        if response.status_code in REFUSALS or (is_transfer and response.is_client_error):
            raise Refused(f"the leader at {url} refuses this worker: {text}")
        self._turn_from(url)
        raise LinkDown(f"the leader at {url} is not available now: {text}")

    def _fail(self, error: httpx.TransportError, url: str) -> NoReturn:
        detail = str(error) or type(error).__name__
        self._turn_from(url)
        if BAD_CERTIFICATE in detail:
            raise Refused(
                f"the certificate of {url} is not trusted ({detail}); name the file with its authority in SSL_CERT_FILE"
            ) from error
        raise LinkDown(f"{url}: {detail}") from error

    def _turn_from(self, url: str) -> None:
        """Use the next address from now on, unless another request has done so."""
        if self.url == url:
            self._addresses = [*self._addresses[1:], url]


async def _pieces_of(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(PIECE_BYTES):
            yield piece


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK
