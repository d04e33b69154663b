"""The requests that a process that stands by passes on to the leader: changes, slots and gateway calls.

A request waits while there is no leader. If the leader is gone before it has answered, the request goes to the next
one. Never here: reading, which the standby does itself, and rights, which were checked before.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import httpx

from paceline.api import bodies
from paceline.api.auth import LOOPBACK, ON_BEHALF_HEADER, SAFE_METHODS
from paceline.api.bodies import App, Header, Receive, Scope, Send
from paceline.api.tokens import AccessTokens
from paceline.client.daemon_calls import trusted_authorities
from paceline.engine.capacity.leases import CallerGone
from paceline.engine.command_log import current_author
from paceline.leadership.election import Leader, this_machine
from paceline.protocols import error_body, family_of

PASSED_PATHS: Final = ("/v1/slots", "/gateway", "/v1/gateway")
"""Everything there uses capacity, which only the leader grants, or is about calls, which only the leader knows."""
PATIENCE_SECONDS: Final = 30.0
"""How long a change waits for a leader: twice as long as a take-over may take."""
CALL_PATIENCE_SECONDS: Final = 600.0
"""How long a gateway call waits for a leader: as long as it may wait for a slot."""
RETRY_SECONDS: Final = 0.25
"""How often a waiting request looks for a leader."""
CONNECT_SECONDS: Final = 3.0
LARGEST_BODY: Final = 64 << 20
"""Bytes of a request that are kept for another leader. The largest calls with images have a third of it."""
NOT_PASSED: Final = frozenset(
    (b"host", b"connection", b"keep-alive", b"te", b"upgrade", b"proxy-connection", b"transfer-encoding")
)
"""Headers about one connection. The bodies are passed on with their whole length, or in chunks of our own."""
BROWSER_HEADERS: Final = frozenset((b"authorization", b"cookie", b"origin", b"referer", b"x-paceline-csrf"))
"""Headers that a page or a client has shown to this process, and that the leader need not understand."""

PASSED_HEADER: Final = b"x-paceline-passed"
"""Marks a request that another process has passed on. It is not passed on again, so none can go round in circles."""

FindLeader = Callable[[], Leader | None]


class LeaderProxy:
    """Passes requests on. It shows the leader the token of its own home, which every engine of the fleet accepts.

    It lives as long as its process: a request that waits when the process takes the lead is passed on to itself. With
    `plain` it also reaches leaders on other machines that have no TLS.
    """

    def __init__(self, find_leader: FindLeader, tokens: AccessTokens, *, plain: bool = False) -> None:
        self._find_leader = find_leader
        self._tokens = tokens
        self._plain = plain
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            trust_env=False,
            verify=trusted_authorities(),
        )

    def beside(self, reads: App) -> App:
        """Return an application that serves reads with `reads`, and passes everything else on."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            is_own = scope["type"] != "http" or is_read(scope["method"], scope["path"])
            await (reads if is_own else self.pass_on)(scope, receive, send)

        return serve

    async def aclose(self) -> None:
        await self._http.aclose()

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request with what the leader answers."""
        if any(name == PASSED_HEADER for name, _ in scope["headers"]):
            await _refuse(scope, send, 503, "this process does not lead; ask the one that does")
            return
        try:
            body = await bodies.read_whole(receive, LARGEST_BODY)
        except CallerGone:
            return
        if body is None:
            await _refuse(scope, send, 413, f"the body has more than {LARGEST_BODY} bytes")
            return
        passing = asyncio.ensure_future(self._until_answered(scope, body, send))
        leaving = asyncio.ensure_future(bodies.disconnected(receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                await passing
        finally:
            for task in (passing, leaving):
                task.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def _until_answered(self, scope: Scope, body: bytes, send: Send) -> None:
        """Ask one leader after the other until one answers or the patience is over.

        A call of the gateway whose leader was killed is made again, as its client would do: its own call upstream has
        ended with the leader. A leader that is there and breaks the call off twice is not asked a third time.
        """
        is_call = scope["path"].startswith("/gateway")
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + (CALL_PATIENCE_SECONDS if is_call else PATIENCE_SECONDS)
        why, broken_by = "no engine leads now", ""
        while loop.time() < give_up_at:
            leader = self._find_leader()
            if leader is not None:
                try:
                    asking = self._ask(leader, scope, body, is_call=is_call)
                    answer = await (asking if is_call else self._while_it_leads(leader, asking))
                except _CannotReach as error:
                    why = str(error)
                except httpx.TransportError as error:
                    why = f"{leader} does not answer at {leader.url} ({error or type(error).__name__})"
                    if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):  # it may have arrived
                        if broken_by == leader.owner or not _may_repeat(scope, body):
                            break
                        broken_by = leader.owner
                else:
                    async with contextlib.aclosing(answer):
                        if is_call or answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                            await _forward(answer, send)
                            return
                        why = f"{leader} cannot answer now"
            await asyncio.sleep(RETRY_SECONDS)
        await _refuse(scope, send, 503, f"{why}; try again")

    async def _while_it_leads(self, leader: Leader, asked: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """Return the answer to a change. A frozen leader takes it in, and does not answer before it continues.

        A call is left with its leader, which continues it also without the lead.
        """
        asking = asyncio.ensure_future(asked)
        try:
            while not (await asyncio.wait({asking}, timeout=RETRY_SECONDS))[0]:
                present = self._find_leader()
                if present is not None and present.owner != leader.owner:
                    raise httpx.ReadTimeout("another engine leads now")
            return await asking
        finally:
            asking.cancel()

    async def _ask(self, leader: Leader, scope: Scope, body: bytes, *, is_call: bool) -> httpx.Response:
        """Send the request to the leader, and return its answer, whose body is still to come."""
        base = self._address(leader)
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        url = base.copy_with(raw_path=target)
        port = url.port or (443 if url.scheme == "https" else 80)
        headers = [*_passed(scope["headers"], is_call=is_call), (b"host", f"localhost:{port}".encode())]
        headers.append((PASSED_HEADER, b"1"))
        if not is_call:
            author = current_author() or ""
            headers += [
                (b"authorization", b"Bearer " + self._tokens.full.encode()),
                (ON_BEHALF_HEADER, author.encode()),
            ]
        # Not made by the client object, which would add headers and cookies of its own.
        time_limits = {"timeout": httpx.Timeout(None, connect=CONNECT_SECONDS).as_dict()}
        request = httpx.Request(scope["method"], url, headers=headers, content=body, extensions=time_limits)
        return await self._http.send(request, stream=True)

    def address(self, leader: Leader) -> str | None:
        """Return where the leader can be reached from this machine."""
        with contextlib.suppress(_CannotReach):
            return str(self._address(leader))
        return None

    def _address(self, leader: Leader) -> httpx.URL:
        """Return where the leader can be reached from this machine. Raise `_CannotReach` with the reason."""
        if leader.url is None:
            raise _CannotReach(f"{leader} runs a plan in the foreground, and serves nothing")
        url = httpx.URL(leader.url)
        is_local = url.host in LOOPBACK
        if is_local and leader.machine != this_machine():
            raise _CannotReach(f"{leader} listens only on its own machine; start it with --host and TLS")
        if not is_local and url.scheme == "http" and not self._plain:
            raise _CannotReach(f"{leader} has no TLS: give it a certificate, or start this process with --insecure")
        return url


class _CannotReach(Exception):
    """The leader has no address that may be used from here."""


def _may_repeat(scope: Scope, body: bytes) -> bool:
    """Return whether a request that may have arrived may go to the next leader: carrying it out twice is harmless."""
    takes_slot = scope["method"] == "POST" and scope["path"] == "/v1/slots"
    return not takes_slot or b'"idempotency_key"' in body


def is_read(method: str, path: str) -> bool:
    """Return whether a standby serves the request itself."""
    is_output = path.startswith("/v1/units/") and path.endswith("/output")  # the leader fetches it from its host
    return method in SAFE_METHODS and not path.startswith(PASSED_PATHS) and not is_output


def _passed(headers: Iterable[Header], *, is_call: bool) -> list[Header]:
    dropped = NOT_PASSED | {ON_BEHALF_HEADER, PASSED_HEADER} | (frozenset() if is_call else BROWSER_HEADERS)
    return [(name, value) for name, value in headers if name.lower() not in dropped]


async def _forward(answer: httpx.Response, send: Send) -> None:
    headers = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in NOT_PASSED]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    async for piece in answer.aiter_raw():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(scope: Scope, send: Send, status: int, detail: str) -> None:
    """Answer in the shape of the provider if the request is a call of the gateway."""
    path = scope["path"]
    if path.startswith("/gateway"):
        code = "stopping" if status == httpx.codes.SERVICE_UNAVAILABLE else "not_passed_on"
        body = error_body(family_of("", path), status, code, detail)
    else:
        body = bodies.error_json(path, status, detail)
    headers = [(b"retry-after", b"2")] if status == httpx.codes.SERVICE_UNAVAILABLE else []
    await bodies.send_whole(send, status, body, headers)
