"""Connections to one upstream: opened, used by one request at a time, kept for the next, closed when idle.

Here: TCP, TLS, the parsing of responses, and what is known when a connection breaks. Never here: what a response
means, or whether a request is sent again.
"""

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from paceline.errors import InvalidInput
from paceline.gateway.http_heads import Header, chunk, last_chunk, lowered

if TYPE_CHECKING:
    from paceline.gateway.upstream_call import UpstreamCall

log = logging.getLogger("paceline.gateway")

HTTP_PORT, HTTPS_PORT = 80, 443
LARGEST_HEAD_BYTES = 65_536
"""Bytes in the head of a response, and again in its trailers. Real heads have a few KiB; the rest is an attack or a
broken server."""

PROBE_AFTER_SECONDS = 60
"""Silence before the first probe of a connection. Shorter than the idle time-out of common routers: some minutes."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The one place to which the requests of an account go."""

    host: str
    port: int
    is_tls: bool
    authority: bytes
    """The value of the Host header."""
    base_path: bytes
    """The prefix of every path, without a slash at its end."""


def parse_base_url(url: str) -> Origin:
    """Return the origin of a `base_url`. Raises `InvalidInput`."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise InvalidInput(f"base_url {url!r:.200} has an invalid port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidInput(f"base_url {url!r:.200} must be http://HOST or https://HOST, without a login")
    if parts.query or parts.fragment or not url.isascii():
        raise InvalidInput(f"base_url {url!r:.200} must end with its path, in ASCII")
    is_tls = parts.scheme == "https"
    return Origin(
        host=parts.hostname,
        port=port or (HTTPS_PORT if is_tls else HTTP_PORT),
        is_tls=is_tls,
        authority=parts.netloc.encode(),
        base_path=parts.path.rstrip("/").encode(),
    )


class ResponseHead(msgspec.Struct, gc=False):
    """Status line and headers of a response, as they came."""

    status: int
    reason: bytes
    headers: list[Header]
    lowered: list[Header]
    """The same headers with their names in lower case."""
    names: frozenset[bytes] = frozenset()
    """Their names. Most questions about a head are about a header that is not there."""

    def __post_init__(self) -> None:
        self.names = frozenset(dict(self.lowered))


class UpstreamError(Exception):
    """The connection ended, or sent something that is not HTTP, before the response was complete."""

    def __init__(
        self, detail: str, *, has_response: bool = False, is_timeout: bool = False, is_unsent: bool = False
    ) -> None:
        super().__init__(detail)
        self.is_unsent = is_unsent
        """Whether there was no connection, so that nothing was sent."""
        self.has_response = has_response
        """Whether any byte of a response came."""
        self.is_timeout = is_timeout


class UpstreamConnection(asyncio.Protocol):
    """One connection, for one request at a time. If the upstream closes its half, the transport closes the other."""

    def __init__(self, pool: "UpstreamPool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: UpstreamCall | None = None
        self._is_reading_paused = False
        self.moved_at = 0.0
        """When the last byte came or went, on the loop's clock."""
        self._reset(is_head=False)

    def _reset(self, *, is_head: bool) -> None:
        self._is_head = is_head
        self._is_sent = False
        self._is_chunked_body = False
        self._head: ResponseHead | None = None
        self._reason = b""
        self._headers: list[Header] = []
        self._trailers: list[Header] = []
        self._headless_bytes = 0
        """Bytes received until the head was complete."""
        self._trailer_bytes = 0
        self._has_response = False
        self._has_length = False
        self._is_reusable = False
        self._is_complete = False

    # -- sending -------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(
        self, receiver: "UpstreamCall", head: bytes, body: list[bytes], *, is_head: bool, is_chunked: bool
    ) -> None:
        """Begin a request. The part of its body that is there goes out with the head."""
        assert self._transport is not None
        self._reset(is_head=is_head)
        self._receiver = receiver
        self._is_chunked_body = is_chunked
        self.moved_at = self._pool.loop.time()
        pieces = [chunk(piece) for piece in body] if is_chunked else body
        self._transport.write(b"".join([head, *pieces]))

    def send_body(self, data: bytes) -> None:
        if self._transport is not None and self._receiver is not None:
            self.moved_at = self._pool.loop.time()
            self._transport.write(chunk(data) if self._is_chunked_body else data)

    def end_body(self) -> None:
        """Mark the request as complete. The connection is not reused before that."""
        self._is_sent = True
        if self._is_chunked_body and self._transport is not None and self._receiver is not None:
            self._transport.write(last_chunk([]))

    def abort(self) -> None:
        """Close the connection at once, so that the provider stops working on the response."""
        self._receiver = None
        self._pool.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def fail(self, detail: str, *, is_timeout: bool = False) -> None:
        """Abort the request and report the error to its receiver."""
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            error = UpstreamError(detail, has_response=self._has_response, is_timeout=is_timeout)
            receiver.response_failed(error)

    def pause_response(self, is_paused: bool) -> None:
        """Stop reading the response until the client has taken what is there, or resume."""
        if self._transport is None or self._transport.is_closing() or is_paused == self._is_reading_paused:
            return
        self._is_reading_paused = is_paused
        self.moved_at = self._pool.loop.time()
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- called by the transport -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not instances of it
        enable_keepalive(transport)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            self.abort()  # there is no request
            return
        self.moved_at = self._pool.loop.time()
        self._has_response = True
        if self._head is None:
            self._headless_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error, httptools.HttpParserCallbackError):
                log.exception("Internal error while a response was forwarded")
            self._is_reusable = False
            if not self._is_complete:
                self.fail(f"its response is not HTTP ({type(error).__name__})")
                return
        if self._receiver is None:
            return  # a callback has failed the request
        if self._head is None:
            self._check_size(self._headless_bytes)
        if self._is_complete:
            self._end(receiver)
        else:
            receiver.response_flushed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        receiver = self._receiver
        if receiver is not None and self._head is not None and not self._has_length and exc is None:
            self._is_reusable = False
            self._end(receiver)  # a response without a length ends with its connection
        else:
            self.fail("the connection was closed" if exc is None else f"the connection broke: {exc}")

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.body_paused(True)

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.body_paused(False)

    def _end(self, receiver: "UpstreamCall") -> None:
        self._receiver = None
        if self._is_head:
            self._parser = httptools.HttpResponseParser(self)  # the old one waits for a body that never comes
        if self._is_reusable and self._is_sent and self.is_usable:
            self.pause_response(False)
            self._pool.put(self)
        else:
            self._pool.forget(self)
            if self._transport is not None:
                self._transport.close()
        receiver.response_ended(self._trailers)

    # -- called by the parser --------------------------------------------------------------------

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:
            self._headers.append((name, value))
        elif not self._is_complete:
            self._trailers.append((name, value))
            self._trailer_bytes += len(name) + len(value)
            self._check_size(self._trailer_bytes)

    def _check_size(self, size: int) -> None:
        if size > LARGEST_HEAD_BYTES:
            self.fail(f"the headers of its response have more than {LARGEST_HEAD_BYTES // 1024} KiB")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._is_complete or self._receiver is None:
            self._is_reusable = False  # a second response to one request
            return
        if status < 200:
            return
        if self._headless_bytes > LARGEST_HEAD_BYTES:  # else its headers cannot be longer either
            self._check_size(sum([len(name) + len(value) for name, value in self._headers]))
            if self._receiver is None:
                return
        self._is_reusable = self._parser.should_keep_alive()
        head = ResponseHead(status, self._reason, self._headers, lowered(self._headers))
        coding = b""
        if b"transfer-encoding" in head.names:
            coding = b"".join([value.lower() for name, value in head.lowered if name == b"transfer-encoding"])
        if coding not in (b"", b"chunked"):
            self.fail("its response has a transfer coding other than chunked")
            return
        has_length = bool(coding) or b"content-length" in head.names
        self._has_length = has_length or self._is_head or status in (204, 304)
        self._head = head
        self._is_complete = self._is_head
        self._receiver.response_began(head)

    def on_body(self, body: bytes) -> None:
        if self._receiver is not None and not self._is_complete:
            self._receiver.response_data(body)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._is_complete = True
        else:  # an informational response; the real one follows
            self._reason, self._headers = b"", []


class UpstreamPool:
    """The connections to one origin. The one used last is used first, so that the others become idle and close."""

    def __init__(self, origin: Origin, *, connect_seconds: float, idle_seconds: float) -> None:
        self.origin = origin
        self.loop = asyncio.get_running_loop()
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._idle: list[UpstreamConnection] = []
        self._tls = ssl.create_default_context() if origin.is_tls else None
        if self._tls is not None:
            self._tls.set_alpn_protocols(["http/1.1"])

    def take(self) -> UpstreamConnection | None:
        """Return an open connection that is not in use, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def connect(self) -> UpstreamConnection:
        """Open a new connection. Raises `UpstreamError`."""
        connection = UpstreamConnection(self)
        origin = self.origin
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self.loop.create_connection(lambda: connection, origin.host, origin.port, ssl=self._tls)
        except TimeoutError:
            connection.abort()
            detail = f"no connection within {self._connect_seconds:g} s"
            raise UpstreamError(detail, is_timeout=True, is_unsent=True) from None
        except UnicodeError:
            detail = f"no connection: {origin.host!r:.80} is not a valid host name"
            raise UpstreamError(detail, is_unsent=True) from None
        except OSError as error:
            raise UpstreamError(f"no connection: {error.strerror or error}", is_unsent=True) from None
        except BaseException:
            connection.abort()  # it may have opened at the moment of the cancellation
            raise
        return connection

    def put(self, connection: UpstreamConnection) -> None:
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def drop_idle(self, now: float) -> None:
        """Close connections that were idle for long, before the other side closes them during a request."""
        while self._idle and now - self._idle[0].moved_at > self._idle_seconds:
            self._idle[0].abort()

    def close(self) -> None:
        for connection in list(self._idle):
            connection.abort()


def enable_keepalive(transport: asyncio.BaseTransport) -> None:
    """Probe the connection while it is silent. That detects a vanished peer, and keeps routers from dropping it."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_SECONDS)
