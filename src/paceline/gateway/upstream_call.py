"""One call to the upstream: the request sent once, its response forwarded, or held back because a retry is possible.

Here: what is read of a response while it passes, and the way of its signals to the slot. Never here: what a response
means (`paceline.protocols`), waiting, or the decision to retry.
"""

import asyncio
import re
from collections.abc import Callable

import msgspec

from paceline.clock import Clock
from paceline.core.signals import AuthFailed, BillingStop, Overloaded, Signal, Succeeded
from paceline.gateway.client_response import ClientResponse, RequestBody
from paceline.gateway.http_heads import Decompressor, Header, decompressor_for, without_coding
from paceline.gateway.request_access import UpstreamRequest
from paceline.gateway.upstream_pool import ResponseHead, UpstreamConnection, UpstreamError
from paceline.limiter.slot import Slot
from paceline.protocols import ResponseReader, response_reader
from paceline.protocols.responses import LONGEST_ERROR, signals_at_end, signals_of, signals_of_broken

HELD_BACK_STATUSES = frozenset({429, 503, 529})
"""A response with one of these is read whole before the client sees any of it."""
POOL_HELD_BACK_STATUSES = HELD_BACK_STATUSES | {400, 401, 402, 403}
"""The same for a pool of keys: these may be about the key, and then another key can serve the request."""
_LOCAL_TARGET = re.compile(rb"(?:/(?![/\\])|[?#.])[\x21-\x7e]*\Z|\Z")
"""A redirect that stays at the gateway: a path, a query or a relative path. Anything else may name another server."""
BUDGET_EVERY_SECONDS = 0.1
"""Headers of successes are read this often in each scope. Reading them costs more than forwarding the request, and
between two readings the Governor counts what it grants."""
MOST_SCOPES = 4096
"""Scopes whose last reading is remembered. Clients choose model names, so the number needs a bound."""


class UpstreamCall:
    """The receiver of one response. `over` completes when it ends, with an `UpstreamError` as its value if it broke."""

    def __init__(
        self,
        request: UpstreamRequest,
        body: RequestBody,
        response: ClientResponse,
        own_headers: bytes,
        on_head: Callable[[ResponseHead], object],
    ) -> None:
        self.over: asyncio.Future[UpstreamError | None] = asyncio.get_running_loop().create_future()
        self.head: ResponseHead | None = None
        self.reader: ResponseReader | None = None
        self.response_bytes = 0
        """Bytes of its body that have come, decompressed if they can be."""
        self.is_held_back = False
        self.sent_at = self.began_at = 0.0
        """On the loop's clock."""
        self._request = request
        self._body = body
        self._response = response
        self._own_headers = own_headers
        self._on_head = on_head
        self._connection: UpstreamConnection | None = None
        """None as soon as the response has ended: the pool may then lend the connection to another call."""
        self._decompressor: Decompressor | None = None
        self._error: list[bytes] = []
        self._error_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of the response has come. It has not if it broke off, or if the client left."""
        return self.over.done() and not self.over.cancelled() and self.over.result() is None

    @property
    def is_read_whole(self) -> bool:
        """Whether all of the response could be read: its compressed body has an end."""
        return self.is_whole and (self._decompressor is None or self._decompressor.is_at_end)

    @property
    def unread_bytes(self) -> int:
        """Bytes of its body that are not what its coding says."""
        return 0 if self._decompressor is None else self._decompressor.unread_bytes

    @property
    def may_be_worked_on(self) -> bool:
        """Whether the request was sent, and the upstream did not end the call."""
        if not self.sent_at:
            return False
        error = self.over.result() if self.over.done() and not self.over.cancelled() else None
        return error is None or error.is_timeout

    @property
    def unread_coding(self) -> str | None:
        """The coding of the response if it cannot be read here."""
        headers = () if self.head is None or self._decompressor is not None else self.head.lowered
        codings = (value.strip().lower() for name, value in headers if name == b"content-encoding")
        return next((each.decode("latin-1") for each in codings if each not in (b"", b"identity")), None)

    @property
    def error_text(self) -> bytes:
        """The beginning of an error response, decompressed."""
        body = b"".join(self._error)
        decompressor = None if self.head is None else decompressor_for(self.head.lowered)
        if decompressor is None:
            return body
        read = bytearray()
        for piece in decompressor.feed(body):
            read += piece
            if len(read) >= LONGEST_ERROR:
                break
        return bytes(read)

    def send(self, connection: UpstreamConnection) -> None:
        """Send the request with all of its body that has arrived. The rest follows as it comes."""
        request, body = self._request, self._body
        self._connection = connection
        body.pause(False)  # before anything is sent: a slow upstream pauses it again
        is_head = request.arrived.method == "HEAD"
        connection.send(self, request.head, body.pieces, is_head=is_head, is_chunked=request.is_chunked)
        self.sent_at = connection.moved_at
        body.attach(connection)

    def give_up(self) -> None:
        """Abort the call: the response is no longer needed."""
        self._body.detach()
        if self._connection is not None:
            self._connection.abort()

    def check_time(self, now: float, *, first_byte_seconds: float, idle_seconds: float) -> None:
        """Fail the call if nothing has moved for too long."""
        limit = first_byte_seconds if self.head is None else idle_seconds
        if self._connection is not None and now - self._connection.moved_at > limit:
            what = "no response" if self.head is None else "no more of the response"
            self._connection.fail(f"{what} within {limit:g} s", is_timeout=True)

    def pause(self, is_paused: bool) -> None:
        """Stop or resume reading the response, because the client takes no more or takes more again."""
        if self._connection is not None:
            self._connection.pause_response(is_paused)

    def forward_held_back(self, own_headers: bytes) -> None:
        """Send the response that was held back to the client."""
        assert self.head is not None
        self.is_held_back = False
        self._response.begin(self.head, own_headers)
        self._response.write(b"".join(self._error))

    # -- called by the connection --------------------------------------------------------------------

    def response_began(self, head: ResponseHead) -> None:
        if (target := _redirect_away(head)) is not None and self._connection is not None:
            # a client that follows would send the gateway's token, as its API key, to that server
            self._connection.fail(f"it redirects to another server ({target!r:.200}), and that is not passed on")
            return
        self.head = head
        self.began_at = asyncio.get_running_loop().time()
        self._on_head(head)
        if head.status < 400:
            headers = head.lowered
            if b"content-encoding" in head.names:
                self._decompressor = decompressor_for(headers)
                headers = headers if self._decompressor is None else without_coding(headers)
            self.reader = response_reader(headers)
        held_back = HELD_BACK_STATUSES if self._request.route.pool is None else POOL_HELD_BACK_STATUSES
        if head.status in held_back and self._body.is_kept:
            self.is_held_back = True
        else:
            self._response.begin(head, self._own_headers)

    def response_data(self, data: bytes) -> None:
        for piece in (data,) if self._decompressor is None else self._decompressor.feed(data):
            self.response_bytes += len(piece)
            if self.reader is not None:
                self.reader.feed(piece)
        if self.head is not None and self.head.status >= 400 and self._error_bytes < LONGEST_ERROR:
            self._error.append(data)
            self._error_bytes += len(data)
            if self.is_held_back:
                if self._error_bytes >= LONGEST_ERROR:
                    self.forward_held_back(self._own_headers)  # too long to be kept
                return
        self._response.write(data)

    def response_flushed(self) -> None:
        self._response.flush()

    def response_ended(self, trailers: list[Header]) -> None:
        if not self.is_held_back:
            self._response.end(trailers)
        self._end(None)

    def response_failed(self, error: UpstreamError) -> None:
        self._end(error)

    def body_paused(self, is_paused: bool) -> None:
        self._body.pause(is_paused)

    def _end(self, error: UpstreamError | None) -> None:
        self._body.detach()
        self._connection = None
        if not self.over.done():
            self.over.set_result(error)


def _redirect_away(head: ResponseHead) -> str | None:
    """Return the target of a redirect that leads away from the gateway, or None."""
    if not 300 <= head.status < 400:
        return None
    targets = [value for name, value in head.lowered if name == b"location"]
    return next((target.decode("latin-1") for target in targets if not _LOCAL_TARGET.match(target)), None)


class SignalReporter:
    """Reports what responses say to the slots of their requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_at: dict[str, float] = {}

    def report_head(self, request: UpstreamRequest, slot: Slot, head: ResponseHead) -> None:
        """Report the remaining budget from a success, as soon as its head is there: its stream may last minutes."""
        if head.status < 400 and slot.is_canary:
            slot.report(Succeeded())  # waiters for the window need not wait for the end of the stream
        now = self._clock.now()
        if head.status >= 400 or 0 <= now - self._read_at.get(slot.scope, 0.0) < BUDGET_EVERY_SECONDS:
            return
        signals = signals_of(request.route.detect_name, head.status, head.lowered, b"", seen_at=now)
        if signals:
            if len(self._read_at) >= MOST_SCOPES:
                self._read_at.clear()
            self._read_at[slot.scope] = now
        for signal in signals:
            slot.report(signal)

    def report_end(self, request: UpstreamRequest, slot: Slot, call: UpstreamCall) -> list[Signal]:
        """Report the tokens of a whole response, or the reason of its refusal. Returns the signals."""
        head, reader = call.head, call.reader
        assert head is not None
        now = self._clock.now()
        error = b"" if reader is not None else call.error_text
        signals = signals_at_end(
            request.route.detect_name, head.status, head.lowered, error=error, reader=reader, seen_at=now
        )
        if request.has_own_key:  # a client's bad or unpaid key must not hold the account for the others
            signals = [signal for signal in signals if not isinstance(signal, AuthFailed | BillingStop)]
        if request.route.pool is not None:
            signals = [_of_one_key(signal) for signal in signals]
        for signal in signals:
            slot.report(signal)
        return signals

    def report_broken(self, request: UpstreamRequest, slot: Slot, head: ResponseHead) -> None:
        """Report a response that broke off after its head."""
        now = self._clock.now()
        for signal in signals_of_broken(request.route.detect_name, head.status, head.lowered, seen_at=now):
            slot.report(signal)


def _of_one_key(signal: Signal) -> Signal:
    """Return an overload as one of this key and model alone: the pool asks its other keys before it waits."""
    return msgspec.structs.replace(signal, reach=None) if isinstance(signal, Overloaded) else signal
