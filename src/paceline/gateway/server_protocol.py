"""The server's protocol: one port for the API and the gateway, also on one connection.

uvicorn's protocol reads every request. Requests under `/gateway/` become exchanges of the gateway, all others go to
uvicorn's application. While another engine leads, all of them do: the application passes them on. Here too: time-outs
and size limits for clients, which uvicorn does not have.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from paceline.gateway.exchange import Exchange, Gateway
from paceline.gateway.http_heads import CONTINUE, Header, header_lines
from paceline.gateway.request_access import ALLOWED_METHODS, RequestHead
from paceline.gateway.routes import PREFIX
from paceline.gateway.upstream_pool import enable_keepalive
from paceline.protocols import OwnError

LARGEST_HEAD_BYTES = 65_536
"""Bytes in the head of a request. Real heads have a few KiB; without a bound a client could fill the memory."""
MOST_CONNECTIONS = 20_000
"""Open client connections. Far above any fleet on one machine, and well below what memory allows."""
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
NOT_ALLOWED = (
    b"HTTP/1.1 405 Method Not Allowed\r\nallow: %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % ALLOWED_METHODS
)
_SENDS_NO_MORE = getattr(select, "POLLRDHUP", 0)
"""Only Linux reports this event for a connection that is not being read."""
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def make_server_protocol(gateway: Gateway, *, most_connections: int = MOST_CONNECTIONS) -> type[HttpToolsProtocol]:
    """Return the class for `uvicorn.Config(http=...)`. Connections beyond `most_connections` are aborted."""
    return type("GatewayProtocol", (ServerProtocol,), {"gateway": gateway, "most_connections": most_connections})


class ServerProtocol(HttpToolsProtocol):
    """The connection of one client."""

    gateway: ClassVar[Gateway]
    most_connections: ClassVar[int]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.serving: Exchange | None = None
        self._now = self.loop.time
        self._raw_headers: list[Header] = []
        self._head_bytes = 0
        self._head_since: float | None = None
        """When the client began to owe the rest of a head."""
        self._body_since: float | None = None
        """When the client began to owe the next piece of a body."""
        self._idle_since: float | None = None
        """When the last response ended, if no request has begun since."""
        self._current: RequestResponseCycle | None = None
        """The request whose turn it is. `cycle` is the latest one that has come."""
        self._is_half_closed = False
        """Whether the client sends no more, but may still read."""
        self._watch: ResetWatch | None = None
        """The watch over a client that sends no more."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        enable_keepalive(transport)
        self._head_since = self._now()
        if len(self.gateway.connections) < self.most_connections:
            self.gateway.connections.add(self)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gateway.connections.discard(self)
        super().connection_lost(exc)
        if self._watch is not None:
            self._watch.stop()
        if self.serving is not None:
            self.serving.client_left()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.serving is not None:
            self.serving.client_paused(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.serving is not None:
            self.serving.client_paused(False)

    # -- clients that send no more -----------------------------------------------------------------

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep a client that has sent its whole request, unless it turns out to have left."""
        is_whole = self._head_since is None and self._body_since is None
        self._is_half_closed = is_whole and self._may_still_read()
        return self._is_half_closed

    def _may_still_read(self) -> bool:
        """Probe a client that sends no more, once. Returns False if it is taken to have left.

        That is a client whose response has begun: it closes to end the response. No probe may be written then.
        """
        if self._watch is not None:
            return True
        cycle = cast("RequestResponseCycle | Exchange | None", self._current)
        if cycle is None or cycle.response_complete or self.scheme == "https":
            return False
        self._watch = ResetWatch.over(self.transport, self.transport.abort)
        if self._watch is None:
            return False
        if isinstance(cycle, Exchange):
            return cycle.response.probe()
        if cycle.response_started or self.parser.get_http_version() != "1.1":
            return False
        self.transport.write(CONTINUE)
        return True

    # -- limits ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        before, owed_body = self.cycle, self._body_since is not None
        self._feed(data)
        if self._head_since is not None:
            if self.cycle is before and not owed_body:  # else the head begins behind another request in `data`
                self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD_BYTES:
                self._reject(TOO_LARGE)
        elif self._body_since is not None:
            self._body_since = self._now()

    def _feed(self, data: bytes) -> None:
        """Parse as uvicorn does, except for upgrades: after one, its parser would not read a body."""
        self._idle_since = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its upgrade, as HTTP allows. CONNECT has no other meaning: reject it."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._reject(NOT_ALLOWED)
            return
        kept = [header for header in self._raw_headers if header[0].lower() != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own parser
        self._feed(b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self.url, version, header_lines(kept), rest))

    def on_response_complete(self) -> None:
        """Continue as uvicorn does, but let `check_time` end an idle connection: a timer costs more each time."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._is_half_closed and not self.pipeline:
            self.transport.close()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = self._now()

    def check_time(self, now: float) -> None:
        """End a connection that is idle, or whose client is too slow with its head or its body."""
        limits = self.gateway.timeouts
        if self._idle_since is not None and now - self._idle_since > self.timeout_keep_alive:
            self.transport.close()
            return
        if self.flow.read_paused and sends_no_more(self.transport) and not self._may_still_read():
            self.transport.abort()
            return
        if self.flow.read_paused:  # the client cannot send: its time starts again
            self._head_since = self._head_since and now
            self._body_since = self._body_since and now
            return
        if self._head_since is not None and now - self._head_since > limits.head:
            self._reject(TOO_SLOW)
        if self._body_since is not None and now - self._body_since > limits.body_idle:
            self._body_since = None
            cycle: object = self.cycle
            if self.serving is None:
                self.transport.abort()
            elif self.serving is cycle:
                message = f"no more of the body came for {limits.body_idle:g} s"
                self.serving.fail(OwnError(408, "slow_body", message))

    def _reject(self, response: bytes) -> None:
        """Close the connection, with this response only if no other response is in progress."""
        self._head_since = None
        if self.serving is None and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(response)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Reject what is not HTTP, but never write into the middle of another response."""
        if self.serving is not None:
            self.serving.fail(OwnError(400, "bad_request", "the rest of this request is not HTTP"))
        elif self.cycle is not None and self.cycle.response_complete and not self.cycle.keep_alive:
            self.transport.close()  # the last response has announced it
        else:
            super().send_400_response(msg)

    # -- called by the parser ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.url = b""
        self._raw_headers = []
        self._head_bytes = 0
        self._head_since = self._now()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_since is not None:  # else a trailer, which neither side uses
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the request is parsed again without the upgrade
        self._head_since = None
        self._body_since = self._now()
        if self.url.startswith(PREFIX) and self.gateway.serves_calls:
            self._begin_exchange()
            return
        url = self.url
        super().on_message_begin()  # it makes what only an application needs
        self.url = url
        for name, value in self._raw_headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        cycle: object = self.cycle
        if not isinstance(cycle, Exchange):
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.request_body.receive(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._body_since = None
        cycle: object = self.cycle
        if not isinstance(cycle, Exchange):
            super().on_message_complete()
            return
        cycle.request_body.end()
        if cycle.response_complete and not cycle.keep_alive:
            self.transport.close()  # rejected before its body was complete: now the client has read the response

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._current = cycle
        super()._start_asgi_task(cycle, app)

    def _begin_exchange(self) -> None:
        """Start an exchange as uvicorn starts its own cycles: at once, or after earlier ones on this connection."""
        parser, before = self.parser, self.cycle
        last: object = before
        head = RequestHead(parser.get_method().decode(), self.url, self._raw_headers)
        if isinstance(last, Exchange):
            head.follow(last.head)
        exchange = Exchange(
            self.gateway,
            self,
            head,
            is_old=parser.get_http_version() == "1.0",
            keep_alive=parser.should_keep_alive(),
        )
        self.cycle = cast("RequestResponseCycle", exchange)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))


# -- probes by the operating system -----------------------------------------------------------------
#
# A peer that has closed its connection and one that only sends no more look the same, until something is written.
# Only the first one answers with a reset.


def sends_no_more(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer has left or has closed its side, for a connection that is not being read."""
    connection = transport.get_extra_info("socket")
    if connection is None or not _SENDS_NO_MORE or connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), _SENDS_NO_MORE)
    return bool(poll.poll(0))


class ResetWatch:
    """A watch for the reset of a connection that is not being read. The loop does not poll those."""

    def __init__(self, epoll: "select.epoll", on_reset: Callable[[], object]) -> None:
        self._epoll = epoll
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(epoll.fileno(), on_reset)

    @classmethod
    def over(cls, transport: asyncio.BaseTransport, on_reset: Callable[[], object]) -> Self | None:
        """Watch a transport. Returns None where the system cannot: only Linux can."""
        connection = transport.get_extra_info("socket")
        if connection is None or not _SENDS_NO_MORE or connection.fileno() < 0:
            return None
        epoll = select.epoll(1)
        epoll.register(connection.fileno(), 0)  # errors and resets are always reported
        return cls(epoll, on_reset)

    def stop(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
