"""One request from its head to the end of its response: access, the wait for a slot, the calls to the upstream.

To uvicorn an exchange is a request-response cycle like any other. uvicorn starts it in its turn and informs it when
its client has left; the exchange calls back when the response is complete. So the API and the gateway can share a
port and its connections.
"""

import asyncio
import math
from collections.abc import Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeVar

from paceline.core.signals import Overloaded
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.verdicts import Deferred
from paceline.errors import CapacityError, InvalidInput, SlotTimeout
from paceline.gateway.call_book import kept_model
from paceline.gateway.client_checks import authorized, check_after_wait, check_budget, note_use
from paceline.gateway.client_keys import check_path
from paceline.gateway.client_response import ClientResponse
from paceline.gateway.errors import GatewayError
from paceline.gateway.http_heads import lowered
from paceline.gateway.key_pools import SESSION_BYTES, Choice, PoolRequest, look_again_seconds, session_in_body
from paceline.gateway.key_rules import body_rules, check_call
from paceline.gateway.request_access import ALLOWED_METHODS, RequestHead, UpstreamRequest
from paceline.gateway.request_body import KEPT_BYTES, WAITING_BYTES, RequestBody
from paceline.gateway.request_log import FIRST_ERROR, CallRecord
from paceline.gateway.request_times import RequestTimes
from paceline.gateway.response_signals import ensure_pause
from paceline.gateway.socket_probes import has_hung_up
from paceline.gateway.upstream_call import HELD_BACK_STATUSES, UpstreamCall
from paceline.gateway.upstream_pool import ResponseHead, UpstreamConnection, UpstreamError
from paceline.gateway.wait_comments import WaitComments
from paceline.limiter.slot import AdmissionRequest, Slot
from paceline.protocols import (
    OwnResponse,
    RequestReader,
    error_body,
    error_headers,
    response_when_held,
    response_when_timed_out,
    scope_of,
)
from paceline.protocols.responses import is_idempotent, should_retry

if TYPE_CHECKING:
    from paceline.gateway.service import Gateway

Value = TypeVar("Value")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientFlow(Protocol):
    """uvicorn's `FlowControl`."""

    read_paused: bool
    write_paused: bool

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ClientConnection(Protocol):
    """The client's connection."""

    transport: asyncio.Transport
    serving: "Exchange | None"
    """The exchange whose turn it is on this connection."""

    @property
    def flow(self) -> ClientFlow: ...

    def on_response_complete(self) -> None: ...


class _NoEvent:
    """A stand-in for the event with which uvicorn wakes its own cycles. An exchange is not woken that way."""

    def set(self) -> None: ...


class Exchange:
    """A request and its response.

    uvicorn uses its `response_complete`, `disconnected`, `keep_alive`, `message_event` and `run_asgi`.
    """

    message_event = _NoEvent()

    def __init__(
        self, gateway: "Gateway", client: ClientConnection, head: RequestHead, *, is_old: bool, keep_alive: bool
    ) -> None:
        self.response_complete = False
        self.disconnected = False
        self.request_body = self._sent_body = RequestBody(client.flow)
        self.response = ClientResponse(
            client.transport, is_for_head=head.method == "HEAD", is_old=is_old, keep_alive=keep_alive
        )
        self._gateway = gateway
        self._client = client
        self.head = head
        self._error: GatewayError | None = None
        self._task: asyncio.Task[None] | None = None
        self._call: UpstreamCall | None = None
        self._times = RequestTimes(gateway.loop.time, gateway.metrics)
        self._comments: WaitComments | None = None
        self._pool: PoolRequest | None = None
        """What a pool of keys must know of the request, if its path names one."""
        self.record = gateway.calls.log.new_record(gateway.clock.now())

    @property
    def keep_alive(self) -> bool:
        return self.response.keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self.response.keep_alive = value  # uvicorn clears it when the server stops

    # -- called by the client's connection ---------------------------------------------------------

    def client_left(self) -> None:
        """Stop whatever is in progress: leave the queue, or abort the call to the upstream."""
        self.disconnected = True
        if self._task is not None and not self.response_complete:
            self._task.cancel()

    def fail(self, error: GatewayError) -> None:
        """End the exchange, in any state, because of something that the client did."""
        self._error = error
        if self._task is not None and not self.response_complete:
            self._task.cancel()

    def client_paused(self, is_paused: bool) -> None:
        if self._call is not None:
            self._call.pause(is_paused)

    def check_time(self, now: float) -> None:
        """End a call that hangs, and notice a client that left while it was not being read."""
        limits = self._gateway.timeouts
        if self._call is not None:
            self._call.check_time(now, first_byte_seconds=limits.first_byte, idle_seconds=limits.upstream_idle)
        if self._client.flow.read_paused and has_hung_up(self._client.transport):
            self._client.transport.abort()

    # -- the steps of an exchange ------------------------------------------------------------------

    async def run_asgi(self, app: object) -> None:
        """Serve the request. uvicorn calls this by name; its application `app` is not used."""
        if self.disconnected:
            return
        self._task = asyncio.current_task(self._gateway.loop)
        self._client.serving = self
        self._gateway.live.add(self)
        try:
            if self._error is not None:
                raise self._error
            await self._serve()
        except GatewayError as error:
            self._respond_with(error)
        except UpstreamError as error:
            self._respond_to_failure(error)
        except asyncio.CancelledError:
            if self._error is None or self.disconnected or self.response.has_begun:
                raise
            self._respond_with(self._error)
        finally:
            if self._comments is not None:
                self._comments.stop()
            if self._pool is not None:
                self._pool.choice = None  # it refers to this exchange: a cycle would wait for the garbage collector
            self._gateway.calls.ended(self.record, self._times)
            self._gateway.exchange_ended(self)
            self._client.serving = None
            if not self.response_complete:
                self._client.transport.abort()

    async def _serve(self) -> None:
        if self._gateway.is_stopping:
            message, seconds = "the daemon is stopping", self._gateway.restart_seconds
            raise GatewayError(503, "stopping", message, retry_after=seconds)
        access = self._gateway.access
        request = await authorized(access, self.head)
        if request.expects_continue:
            self._client.transport.write(CONTINUE)
        account, record = request.route.account, self.record
        self._gateway.calls.let_in(record, request)
        client, takes_slot = request.client, request.takes_slot
        if client is not None:
            access.keys.check_present(client)
            check_path(client, request.route, request.method)
            if not takes_slot:
                await check_budget(self._gateway, client)
        if takes_slot:
            reader = await self._read_request(request)
            model = request.route.model or reader.model
            if request.route.pool is not None:
                found = _pool_request(self.head, request, model, self.request_body)
                self._pool = await _for_body(self.request_body, self._times, found)
            record.model = kept_model(model)
            is_stream = reader.is_stream or b"streamGenerateContent" in self.head.target
            if request.keepalive is not None and is_stream and self.response.can_begin_early:
                family, headers = request.route.family, self._own_headers
                self._comments = WaitComments(self.response, record, request.keepalive, family, headers)
            if client is not None and body_rules(client, request.route.path):
                record.scope = canonical_scope(scope_of(account.provider, account.name, model))
                is_priced = self._gateway.calls.spend.is_priced
                rules = check_call(client, request, self.request_body, record.model, is_priced)
                await _for_body(self.request_body, self._times, rules)
                await check_budget(self._gateway, client)
            record.scope = self._gateway.model_names.scope(account.provider, account.name, model)
            self.request_body.most_waiting = WAITING_BYTES
            try:
                await self._call_until_accepted(request, reader.tokens(self._body_bytes(request)))
            except (InvalidInput, CapacityError) as error:
                raise _own_error(self._gateway, error) from None
        else:
            if request.route.pool is not None:
                request = self._gateway.without_slot(self.head, request)
                record.account = request.route.account.name
            record.scope = canonical_scope(request.route.account.scope)
            self._finish(await self._call_upstream(request, None))

    async def _read_request(self, request: UpstreamRequest) -> RequestReader:
        """Read the body until its model is known. A request without a model is counted without one."""
        body, reader, seen = self.request_body, RequestReader(), 0
        while True:
            for piece in body.pieces[seen:]:
                seen += 1
                if reader.feed(piece) and (request.keepalive is None or reader.is_stream):
                    return reader
            if request.route.model is not None or body.is_complete or body.size >= KEPT_BYTES:
                return reader
            await self._times.elsewhere(body.more())

    def _body_bytes(self, request: UpstreamRequest) -> int | None:
        """Return the size of the body, None if it is not known yet."""
        if self.request_body.is_complete:
            return self.request_body.size
        lengths = [value for name, value in request.headers if name.lower() == b"content-length"]
        return int(lengths[0]) if lengths and lengths[0].isdigit() else None

    async def _call_until_accepted(self, request: UpstreamRequest, tokens: int) -> None:
        """Wait for a slot and call the upstream. After a refusal that is safe to retry, wait in the queue again."""
        gateway = self._gateway
        arrived = gateway.clock.now()
        deadline = arrived + (gateway.timeouts.max_wait if request.max_wait is None else request.max_wait)
        refused: UpstreamCall | None = None
        look_again = math.inf if self._pool is None else look_again_seconds(len(gateway.live))

        def admission(scope: str) -> AdmissionRequest:
            return AdmissionRequest(
                scope,
                session=request.session,
                priority=request.priority,
                since=arrived,
                tokens=tokens,
                timeout=max(0.0, min(deadline - joined_at, look_again)),
                on_queued=self._queued,
                leased=False,
                group=request.group,
            )

        while True:
            joined_at = gateway.clock.now()
            try:
                if self._pool is None:
                    gateway.account_budgets.check(request.route.account, self.record.model)
                    waiting = gateway.limiter.slot_for(admission(self.record.scope))
                elif (choice := gateway.key_pools.choose(self._pool, gateway.limiter, admission)) is not None:
                    request, waiting = _note_choice(self.record, choice), choice.waiting
                else:
                    self._finish(_last_answer(self._pool, refused))
                    return
                async with waiting as slot:
                    refused = await self._call_in_slot(request, slot, deadline)
            except UpstreamError as error:
                _go_past(gateway, self._pool, request, error)
                continue
            except SlotTimeout as timeout:
                now = gateway.clock.now()
                self.record.waited_seconds = self._times.waited = self._times.waited + now - joined_at
                if self._pool is not None and now < deadline:
                    continue
                gateway.calls.refused()
                if refused is None:
                    raise _wait_ran_out(gateway, timeout, None if self._pool is None else deadline - arrived) from None
                self._finish(refused)
            if refused is None or self.response_complete:
                return

    async def _call_in_slot(self, request: UpstreamRequest, slot: Slot, deadline: float) -> UpstreamCall | None:
        """Call the upstream once. Returns the call if it is to be repeated, None if the client has the response."""
        gateway = self._gateway
        self._times.slot_granted(slot.waited)
        if self._comments is not None:
            self._comments.stop()
        record = self.record
        if self._pool is not None:
            changed = gateway.key_pools.begin(self._pool)
            self._sent_body = self.request_body if changed is None else _body_of(changed, self._client.flow)
        record.ticket = record.reason = record.retry_at = None
        record.waited_seconds = self._times.waited
        try:
            if slot.waited:
                await check_after_wait(gateway, request, record.model)
            call = await self._call_upstream(request, slot)
        except BaseException:
            slot.abandon()  # an unreachable upstream, or a client that left, is no success
            raise
        signals = gateway.reporter.report_end(request, slot, call)
        assert call.head is not None
        status, headers, now = call.head.status, call.head.lowered, gateway.clock.now()
        if self._pool is not None:
            gateway.key_pools.note_answer(request, status, signals, now)
        if status < FIRST_ERROR:
            gateway.model_names.note_served(request.route.account.provider, request.route.account.name, record.model)
        elif status in HELD_BACK_STATUSES:
            gateway.calls.refused()
        if not call.is_held_back or not should_retry(signals, status, headers, now=now, deadline=deadline):
            if call.is_held_back and self._pool is not None and self._pool.goes_on(request, status, signals):
                gateway.metrics.gateway_retries.add(record.scope, "next_key")
                return call
            self._finish(call)
            return None
        ensure_pause(slot, signals)
        is_overload = any(isinstance(signal, Overloaded) for signal in signals)
        gateway.metrics.gateway_retries.add(record.scope, "overloaded" if is_overload else "rate_limited")
        return call

    async def _call_upstream(self, request: UpstreamRequest, slot: Slot | None) -> UpstreamCall:
        """Send the request and forward its response. If a pooled connection turns out to be dead, use a new one."""
        pool = self._gateway.pool(request.route.origin)
        connection = pool.take()
        if connection is not None:
            try:
                return await self._send(request, slot, connection)
            except UpstreamError as error:
                is_safe = is_idempotent(request.method, lowered(request.headers))
                if error.has_response or error.is_timeout or not is_safe or not self.request_body.is_kept:
                    raise
                self._gateway.metrics.gateway_retries.add(self.record.scope, "stale_connection")
        return await self._send(request, slot, await self._times.elsewhere(pool.connect()))

    async def _send(self, request: UpstreamRequest, slot: Slot | None, connection: UpstreamConnection) -> UpstreamCall:
        reporter = self._gateway.reporter

        def on_head(head: ResponseHead) -> None:
            self.record.status = head.status
            self.record.first_byte_seconds = self._times.since_arrival()
            if slot is not None:
                reporter.report_head(request, slot, head)

        call = UpstreamCall(request, self._sent_body, self.response, self._own_headers(), on_head)
        self._call = call
        try:
            call.send(connection)
            if self._client.flow.write_paused:
                call.pause(True)
            error = await call.over
        finally:
            call.give_up()
            self._call = None
            if slot is not None:
                note_use(self._gateway, request, self.record, call, self.request_body.size)
        if error is not None:
            if slot is not None and call.head is not None:
                reporter.report_broken(request, slot, call.head)
            raise error
        self._times.call_ended(call)
        return call

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, call: UpstreamCall) -> None:
        """Complete the exchange with the response of this call, which may have been held back until now."""
        if call.is_held_back:
            call.forward_held_back(self._own_headers())
            self.response.end([])
        self._complete()

    def _respond_with(self, error: GatewayError) -> None:
        """Send an error response of the gateway, in the shape of the provider's protocol."""
        self._gateway.calls.answered(self.record, error)
        family = self._gateway.access.family(self.head)
        body = error_body(family, error.status, error.code, str(error))
        headers = [*error_headers(error.status, error.retry_after), (b"content-length", b"%d" % len(body))]
        if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", ALLOWED_METHODS))
        if not self.request_body.is_complete:  # the client may never send the rest
            self.response.keep_alive = False
        self.response.begin(
            ResponseHead(error.status, HTTPStatus(error.status).phrase.encode(), headers, headers),
            self._own_headers(),
        )
        self.response.write(body)
        self.response.end([])
        self._complete()

    def _respond_to_failure(self, error: UpstreamError) -> None:
        if self.response.has_begun:
            self.response.cut_off()
            self.response_complete = True
            return
        status, code = (504, "upstream_timeout") if error.is_timeout else (502, "upstream_failed")
        self._respond_with(GatewayError(status, code, f"the upstream sent no usable response: {error}"))

    def _complete(self) -> None:
        self.response_complete = True
        self._times.request_ended()
        if not self.response.keep_alive and self.request_body.is_complete:
            self._client.transport.close()  # else after the body: a client that is still sending does not read
        self._client.on_response_complete()

    def _own_headers(self) -> bytes:
        record, waited = self.record, round(self._times.waited * 1000)
        return b"x-paceline-request-id: %b\r\nx-paceline-scope: %b\r\nx-paceline-waited-ms: %d\r\n%b" % (
            record.id.encode(), record.scope.encode(), waited, b"" if self._pool is None else self._pool.headers,
        )  # fmt: skip

    # -- the record --------------------------------------------------------------------------------

    def _queued(self, deferred: Deferred) -> None:
        if self._pool is None and (response := response_when_held(deferred)) is not None:
            raise _gateway_error(response)
        self._gateway.calls.queued(self.record, deferred)
        if self._comments is not None:
            self._comments.start()


def _own_error(gateway: "Gateway", error: InvalidInput | CapacityError) -> GatewayError:
    """Return what the limiter refuses as an error of the gateway."""
    if isinstance(error, InvalidInput):
        return GatewayError(400, "invalid_request", str(error))
    why = str(error) if gateway.serves_calls else "this engine does not lead any more; try again"
    return GatewayError(503, "stopping", why, retry_after=gateway.restart_seconds)


def _go_past(gateway: "Gateway", pool: PoolRequest | None, request: UpstreamRequest, error: UpstreamError) -> None:
    """Let another account of the pool serve the request. Raises the error if none may."""
    if pool is None or not gateway.key_pools.goes_past(pool, request, error, gateway.clock.now()):
        raise error


def _last_answer(pool: PoolRequest, refused: UpstreamCall | None) -> UpstreamCall:
    """Return what a client gets if no account of the pool serves its request: the answer of the last one reached."""
    if refused is not None:
        return refused
    assert pool.failure is not None
    raise pool.failure


def _gateway_error(response: OwnResponse) -> GatewayError:
    return GatewayError(response.status, response.code, response.message, retry_after=response.retry_after)


async def _for_body(body: RequestBody, times: RequestTimes, reading: Coroutine[None, None, Value]) -> Value:
    """Await something that may need more of the body. The wait for it is not the gateway's own time."""
    return await (reading if body.is_complete else times.elsewhere(reading))


async def _pool_request(
    head: RequestHead, request: UpstreamRequest, model: str | None, body: RequestBody
) -> PoolRequest:
    """Return what its pool must know of a request. A fallback route may change the model, so it needs the body."""
    pool, session = request.route.pool, request.session
    assert pool is not None
    wanted = KEPT_BYTES if pool.fallback else SESSION_BYTES if session is None and len(pool.accounts) > 1 else 0
    while not body.is_complete and body.size < wanted:
        await body.more()
    if session is None and len(pool.accounts) > 1:
        session = session_in_body(body.pieces)
    whole = b"".join(body.pieces) if pool.fallback and body.is_complete else None
    return PoolRequest(head, pool, model, session, request.client, whole, arrived=request)


def _wait_ran_out(gateway: "Gateway", timeout: SlotTimeout, waited: float | None) -> GatewayError:
    """Return the answer after the last wait. `waited` is what several waits, for accounts of a pool, had in all."""
    message, deferred = str(timeout) if waited is None else f"no slot within {waited:g} s", timeout.deferred
    expected = gateway.calls.expected_wait(deferred)
    return _gateway_error(response_when_timed_out(message, deferred, gateway.clock.now(), expected))


def _note_choice(record: CallRecord, choice: Choice) -> UpstreamRequest:
    """Note the account of a pool that the request waits for, or has a slot of."""
    record.account, record.scope = choice.request.route.account.name, choice.scope
    record.model = kept_model(choice.model)
    return choice.request


def _body_of(data: bytes, flow: ClientFlow) -> RequestBody:
    """Return a whole body with this content."""
    body = RequestBody(flow)
    body.receive(data)
    body.end()
    return body
