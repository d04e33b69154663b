"""The bodies of a request and its response: read no faster than they are forwarded, and framed for the other side.

The body of a request is kept while it may have to be sent again. The response is written with its head once and its
body as it comes, framed for the client's HTTP version. Never here: where a response comes from.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import msgspec
from uvicorn.protocols.http.flow_control import FlowControl

from paceline.gateway.http_heads import CONTINUE, HOP_BY_HOP, Header, chunk, last_chunk, named_by_connection
from paceline.gateway.upstream_pool import ResponseHead, UpstreamConnection

KEPT_BYTES = 4 * 2**20
"""Bytes of a body that are kept for a retry and searched for the model. A longer body can be sent only once. It
bounds the memory of one request; a long conversation without images is smaller."""
WAITING_BYTES = 65_536
"""Bytes read of a body that waits for a slot, unless more were needed to find its model. Thousands can wait."""

LARGE_BYTES = 256 * 1024
"""Bytes of a body that are parsed on the loop: a few milliseconds, however deep the JSON is."""
_PARSER = ThreadPoolExecutor(1, thread_name_prefix="paceline-bodies")
"""One thread: parsing holds the interpreter, so more of them would only keep the loop from its turn."""
Value = TypeVar("Value")


async def parsed(size: int, parse: Callable[[], Value]) -> Value:
    """Return what `parse` makes of a body of so many bytes. A large one is parsed off the loop."""
    if size <= LARGE_BYTES:
        return parse()
    return await asyncio.get_running_loop().run_in_executor(_PARSER, parse)


Members = dict[str, msgspec.Raw]
"""The members of a body, whose values keep their bytes."""
_OBJECT = msgspec.json.Decoder(Members)


class RequestBody:
    """The part of the body that has arrived so far."""

    def __init__(self, flow: FlowControl) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_complete = False
        self.is_kept = True
        """Whether `pieces` holds everything that has arrived."""
        self.most_waiting = KEPT_BYTES
        self._flow = flow
        self._connection: UpstreamConnection | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._members: Members | None = None

    @classmethod
    def whole(cls, data: bytes, flow: FlowControl) -> Self:
        body = cls(flow)
        body.receive(data)
        body.end()
        return body

    def receive(self, data: bytes) -> None:
        self.size += len(data)
        if self.is_kept:
            self.pieces.append(data)
        if self._connection is not None:
            self._connection.send_body(data)
            self._drop_if_long()
        elif self.size >= self.most_waiting:
            self._flow.pause_reading()
        self._wake()

    def end(self) -> None:
        self.is_complete = True
        if self._connection is not None:
            self._connection.end_body()
        self._wake()

    def attach(self, connection: UpstreamConnection) -> None:
        """Forward later pieces to this connection, which has been sent everything up to now."""
        self._connection = connection
        self._drop_if_long()
        if self.is_complete:
            connection.end_body()

    def detach(self) -> None:
        """Stop forwarding. Later pieces wait for the next connection."""
        self._connection = None

    def pause(self, is_paused: bool) -> None:
        """Stop or resume reading from the client, because the upstream takes no more or takes more again."""
        if is_paused:
            self._flow.pause_reading()
        else:
            self._flow.resume_reading()

    async def more(self) -> None:
        """Wait until more of the body has arrived, or its end."""
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    async def members(self) -> Members:
        """Return the members of a complete body. It is decoded once. Raises `ValueError` if it is no JSON object."""
        if self._members is None:
            whole = b"".join(self.pieces)
            self._members = await parsed(len(whole), lambda: members_of(whole))
        return self._members

    def _drop_if_long(self) -> None:
        if self.size > KEPT_BYTES and self.is_kept:
            self.is_kept = False
            self.pieces = []

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def members_of(body: bytes) -> Members:
    """Return the members of a body. Raises `ValueError` if it is no JSON object in UTF-8."""
    try:
        body.decode()  # the decoder does not look into strings that it skips
        return _OBJECT.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


# -- the response ------------------------------------------------------------------------------------

BODILESS_STATUSES = frozenset({204, 304})
_OURS = b"x-paceline-"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_EARLY_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"


class ClientResponse:
    """The response to one request."""

    __slots__ = (
        *("_error_event", "_has_body", "_is_chunked", "_is_for_head", "_is_old", "_out", "_transport", "_wrapped"),
        *("has_begun", "is_early", "keep_alive"),
    )

    def __init__(self, transport: asyncio.Transport, *, is_for_head: bool, is_old: bool, keep_alive: bool) -> None:
        self.has_begun = False
        self.keep_alive = keep_alive and not is_old
        self._transport = transport
        self._is_for_head = is_for_head
        self._is_old = is_old
        """HTTP/1.0, which has no chunks."""
        self._has_body = True
        self._is_chunked = False
        self._out: list[bytes] = []
        self.is_early = False
        """Whether a head was written before the upstream's: that of a stream of events."""
        self._error_event = b""
        self._wrapped: list[bytes] | None = None
        """The body of a response that is no stream, to be sent as one event in a stream that has begun."""

    @property
    def can_begin_early(self) -> bool:
        return not self._is_old and not self._is_for_head

    def begin_early(self, own_headers: bytes, error_event: bytes) -> None:
        """Write the head of a stream of events, because the client wants signs of life while it waits.

        A later refusal can then be no status any more. It is sent as an event, which begins with `error_event`.
        """
        self.is_early = self._is_chunked = True
        self._error_event = error_event
        ending = b"" if self.keep_alive else b"Connection: close\r\n"
        self._out.append(b"%b%bTransfer-Encoding: chunked\r\n%b\r\n" % (_EARLY_HEAD, own_headers, ending))

    def comment(self, text: bytes) -> None:
        """Write a comment into a stream that has begun early."""
        self._out.append(chunk(b": %b\n\n" % text))
        self.flush()

    def probe(self) -> bool:
        """Write what every client skips: one that has left answers it with a reset. Returns whether that could be."""
        if self.has_begun or self._is_old:
            return False
        if self.is_early:
            self.comment(b"paceline: waiting")
        else:
            self._transport.write(CONTINUE)
        return True

    def begin(self, head: ResponseHead, own_headers: bytes) -> None:
        """Write the upstream's head without its hop-by-hop headers, and add our own headers."""
        self.has_begun = True
        if self.is_early:
            self._wrapped = None if _is_event_stream(head) else [self._error_event if head.status >= 400 else b""]
            return
        self._has_body = not self._is_for_head and head.status not in BODILESS_STATUSES
        headers, has_length = _forwarded(head)
        self._out.append(b"HTTP/1.1 %d %b\r\n%b%b" % (head.status, head.reason, headers, own_headers))
        if self._has_body and not has_length:
            self._is_chunked = not self._is_old
            self.keep_alive = self.keep_alive and self._is_chunked
        if self._is_chunked:
            self._out.append(b"Transfer-Encoding: chunked\r\n")
        self._out.append(b"\r\n" if self.keep_alive else b"Connection: close\r\n\r\n")

    def write(self, data: bytes) -> None:
        if self._wrapped is not None:
            self._wrapped.append(data)
        elif self._has_body and data:  # an empty chunk would end the body
            self._out.append(chunk(data) if self._is_chunked else data)

    def flush(self) -> None:
        if self._out and not self._transport.is_closing():  # the client may have left just now
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            self._out = []

    def end(self, trailers: list[Header]) -> None:
        if self._wrapped is not None:
            first, *body = self._wrapped
            self._out.append(chunk(b"%bdata: %b\n\n" % (first, b"".join(body).translate(_ONE_LINE))))
        if self._is_chunked:
            self._out.append(last_chunk(trailers))
        self.flush()

    def cut_off(self) -> None:
        """Close the connection so that the client can see that the body is incomplete."""
        if self._is_old:
            self._transport.abort()  # an orderly close would look like the end of the body
        else:
            self.flush()
            self._transport.close()


def _is_event_stream(head: ResponseHead) -> bool:
    """Return whether the body can follow in a stream of events that has begun."""
    return head.status < 400 and any(
        name == b"content-type" and b"event-stream" in value.lower() for name, value in head.lowered
    )


def _forwarded(head: ResponseHead) -> tuple[bytes, bool]:
    """Return the lines of the headers that are forwarded, and whether one of them is the body's length."""
    dropped = HOP_BY_HOP
    if b"connection" in head.names:
        dropped = dropped.union(*[named_by_connection(value) for name, value in head.lowered if name == b"connection"])
    lines = [
        b"%b: %b\r\n" % raw
        for raw, (name, _) in zip(head.headers, head.lowered, strict=True)
        if name not in dropped and not name.startswith(_OURS)
    ]
    return b"".join(lines), b"content-length" in head.names  # `Connection` cannot name it
