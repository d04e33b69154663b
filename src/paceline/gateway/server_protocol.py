"""The front door: one port for the API and the gateway, also on one connection.

uvicorn's protocol reads every request; those under `/gateway/` become exchanges of the gateway, all others go on to
uvicorn's application. Here too: time-outs and bounds on what a client sends, which uvicorn does not have.
"""

import asyncio
from typing import Any, ClassVar, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from paceline.gateway.errors import Refused
from paceline.gateway.exchange import Exchange
from paceline.gateway.http_heads import Header, header_lines
from paceline.gateway.request_access import ALLOWED_METHODS, RequestHead
from paceline.gateway.routes import PREFIX
from paceline.gateway.service import Gateway
from paceline.gateway.socket_probes import keep_probing

LARGEST_HEAD_BYTES = 65_536
MOST_CONNECTIONS = 20_000
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
NOT_ALLOWED = (
    b"HTTP/1.1 405 Method Not Allowed\r\nallow: %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % ALLOWED_METHODS
)
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def front_door(gateway: Gateway, *, most_connections: int = MOST_CONNECTIONS) -> type[HttpToolsProtocol]:
    """The protocol for `uvicorn.Config(http=...)`. Who comes while that many are connected is hung up on."""
    return type("FrontDoor", (FrontDoor,), {"gateway": gateway, "most_connections": most_connections})


class FrontDoor(HttpToolsProtocol):
    """One client's connection."""

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
        """Since when the client has owed the rest of a head."""
        self._body_since: float | None = None
        """Since when it has owed the next piece of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        keep_probing(transport)
        self._head_since = self._now()
        if len(self.gateway.connections) < self.most_connections:
            self.gateway.connections.add(self)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gateway.connections.discard(self)
        super().connection_lost(exc)
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

    # -- bounds ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        before, owed_body = self.cycle, self._body_since is not None
        self._feed(data)
        if self._head_since is not None:
            if self.cycle is before and not owed_body:  # else a head begins somewhere in it, behind another request
                self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD_BYTES:
                self._turn_away(TOO_LARGE)
        elif self._body_since is not None:
            self._body_since = self._now()

    def _feed(self, data: bytes) -> None:
        """As uvicorn does, but for upgrades, after which its parser takes a body for another protocol."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """A server may: the request is read again as if it had not asked. CONNECT leaves nothing else to ask for."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._turn_away(NOT_ALLOWED)
            return
        kept = [header for header in self._raw_headers if header[0].lower() != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self._feed(b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self.url, version, header_lines(kept), rest))

    def check_time(self, now: float) -> None:
        """A client that dawdles over its head or its body is let go."""
        limits = self.gateway.timeouts
        if self.flow.read_paused:  # it could not if it would: its time begins anew
            self._head_since = self._head_since and now
            self._body_since = self._body_since and now
            return
        if self._head_since is not None and now - self._head_since > limits.head:
            self._turn_away(TOO_SLOW)
        if self._body_since is not None and now - self._body_since > limits.body_idle:
            self._body_since = None
            cycle: object = self.cycle
            if self.serving is None:
                self.transport.abort()
            elif self.serving is cycle:
                self.serving.refuse(Refused(408, "slow_body", f"nothing more of the body for {limits.body_idle:g} s"))

    def _turn_away(self, answer: bytes) -> None:
        """Only between requests: nothing of another answer can be in the way."""
        self._head_since = None
        if self.serving is None and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(answer)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what is not HTTP; never into the middle of another."""
        if self.serving is not None:
            self.serving.refuse(Refused(400, "bad_request", "the rest of this request is not HTTP"))
        elif self.cycle is not None and self.cycle.response_complete and not self.cycle.keep_alive:
            self.transport.close()  # it was told before
        else:
            super().send_400_response(msg)

    # -- what the parser tells ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._raw_headers = []
        self._head_bytes = 0
        self._head_since = self._now()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_since is not None:  # else a trailer, of which neither side makes anything
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # it is read again, without that
        self._head_since = None
        self._body_since = self._now()
        if self.url.startswith(PREFIX):
            self._begin_exchange()
            return
        for name, value in self._raw_headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        cycle: object = self.cycle
        if not isinstance(cycle, Exchange):
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.upload.receive(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._body_since = None
        cycle: object = self.cycle
        if not isinstance(cycle, Exchange):
            super().on_message_complete()
            return
        cycle.upload.end()
        if cycle.response_complete and not cycle.keep_alive:
            self.transport.close()  # refused before its body was there: now the client has had time to read that

    def _begin_exchange(self) -> None:
        """As uvicorn begins a cycle of its own: at once, or after those that came before on this connection."""
        parser = self.parser
        exchange = Exchange(
            self.gateway,
            self,
            RequestHead(parser.get_method().decode(), self.url, self._raw_headers),
            is_old=parser.get_http_version() == "1.0",
            keep_alive=parser.should_keep_alive(),
        )
        before = self.cycle
        self.cycle = cast("RequestResponseCycle", exchange)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
