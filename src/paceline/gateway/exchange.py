"""The running gateway, and one request from its head to the end of its response.

What all exchanges share: the limiter, the connection pools, the one timer for all time-outs, and the shutdown. The
course of one request: access, the wait for a slot, the calls to the upstream.

To uvicorn an exchange is a request-response cycle like any other. uvicorn starts it in its turn and informs it when
its client has left; the exchange calls back when the response is complete. So the API and the gateway can share a
port and its connections.
"""

import asyncio
import contextlib
import logging
import math
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from paceline import protocols
from paceline.clock import Clock
from paceline.core.signals import AuthFailed, Overloaded
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.tickets import Deferred
from paceline.errors import CapacityError, InvalidInput, SlotTimeout
from paceline.gateway.client_response import (
    KEPT_BYTES,
    WAITING_BYTES,
    ClientResponse,
    Members,
    RequestBody,
    parsed,
)
from paceline.gateway.http_heads import CONTINUE, header_value, lowered
from paceline.gateway.key_pools import (
    SESSION_BYTES,
    KeyPools,
    PoolRequest,
    look_again_seconds,
    refused_key,
    session_in_body,
)
from paceline.gateway.request_access import (
    AFTER_WAIT_SECONDS,
    ALLOWED_METHODS,
    READ_AGAIN_SECONDS,
    RequestAccess,
    RequestHead,
    UpstreamRequest,
)
from paceline.gateway.request_accounting import RequestAccounting, RequestTimes
from paceline.gateway.routes import BUDGET_IN_USE, FIRST_ERROR, BudgetError, kept_model
from paceline.gateway.spend_ledger import Estimate, Reservation, SpendLedger, estimate_of
from paceline.gateway.upstream_call import HELD_BACK_STATUSES, SignalReporter, UpstreamCall
from paceline.gateway.upstream_pool import Origin, ResponseHead, UpstreamConnection, UpstreamError, UpstreamPool
from paceline.limiter import AdmissionRequest, Limiter, Slot
from paceline.metrics import MetricsRegistry
from paceline.protocols import OwnError
from paceline.protocols.responses import is_idempotent, should_retry, with_pause
from paceline.settings.model import KeyPoolSettings, price_list

if TYPE_CHECKING:
    from paceline.gateway.server_protocol import ServerProtocol

log = logging.getLogger("paceline.gateway")


class Exchange:
    """A request and its response.

    uvicorn uses its `response_complete`, `disconnected`, `keep_alive`, `message_event` and `run_asgi`.
    """

    message_event = asyncio.Event()
    """uvicorn wakes its own cycles with it. Nobody waits for this one."""

    def __init__(
        self, gateway: "Gateway", client: "ServerProtocol", head: RequestHead, *, is_old: bool, keep_alive: bool
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
        self._error: OwnError | None = None
        self._task: asyncio.Task[None] | None = None
        self._call: UpstreamCall | None = None
        self._sent_call: UpstreamCall | None = None
        """The one of the last slot, also once it has ended."""
        self._estimate = Estimate()
        self._keepalive: float | None = None
        """Seconds between the signs of life that the client wants while its stream waits."""
        self._sign_of_life: asyncio.TimerHandle | None = None
        self._reader = protocols.RequestReader()
        self._pieces_read = 0
        """How many pieces of the body the reader has seen."""
        self._has_own_key = False
        self._pool: PoolRequest | None = None
        """What a pool of keys must know of the request, if its path names one."""
        self.record = gateway.calls.log.new_record(gateway.clock.now())
        self._times = RequestTimes(self.record, gateway.loop.time, gateway.metrics)

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

    def fail(self, error: OwnError) -> None:
        """End the exchange, in any state, because of something that the client did."""
        self._error = error
        if self._task is not None and not self.response_complete:
            self._task.cancel()

    def key_refused(self, account: str) -> None:
        """End the wait for an account whose key was refused just now. A pool soon checks its other keys by itself."""
        waits = self.record.ticket is not None and self._pool is None and self.record.account == account
        if waits and (error := self._refused_key()) is not None:
            self.fail(error)

    def client_paused(self, is_paused: bool) -> None:
        if self._call is not None:
            self._call.pause(is_paused)

    def check_time(self, now: float) -> None:
        """End a call that hangs."""
        limits = self._gateway.timeouts
        if self._call is not None:
            self._call.check_time(now, first_byte_seconds=limits.first_byte, idle_seconds=limits.upstream_idle)

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
        except OwnError as error:
            self._respond_with(error)
        except UpstreamError as error:
            status, code = (504, "upstream_timeout") if error.is_timeout else (502, "upstream_failed")
            self._fail_with(OwnError(status, code, f"the upstream sent no usable response: {error}"))
        except asyncio.CancelledError:
            if self._error is None or self.disconnected or self.response.has_begun:
                raise
            self._respond_with(self._error)
        except Exception:
            log.exception("a call of the gateway failed: %s %s", self.record.id, self.record.scope)
            self._fail_with(OwnError(500, "internal_error", "internal error; see paceline.log"))
        finally:
            self._end_signs()
            if self._pool is not None:
                self._pool.choice = None  # it refers to this exchange: a cycle would wait for the garbage collector
            self._gateway.calls.ended(self.record, self._times)
            self._gateway.exchange_ended(self)
            self._client.serving = None
            if not self.response_complete:
                self._client.transport.abort()

    async def _serve(self) -> None:
        gateway, record = self._gateway, self.record
        if gateway.is_stopping:
            raise OwnError(503, "stopping", "the daemon is stopping", retry_after=gateway.restart_seconds)
        request = await gateway.access.let_in(self.head)
        if request.expects_continue:
            self._client.transport.write(CONTINUE)
        self._has_own_key = request.has_own_key
        gateway.calls.admitted(record, request)
        if request.client is not None:
            gateway.access.keys.check_use(request.client, request.route, request.arrived.method)
        if request.takes_slot:
            try:
                await self._serve_call(request)
            except (InvalidInput, CapacityError) as error:
                raise self._own_error(error) from None
            return
        if request.client is not None:
            gateway.spend.check_key(request.client)
        if request.route.pool is not None:
            request = gateway.without_slot(request)
            record.account = request.route.account.name
        record.scope = canonical_scope(request.route.account.scope)
        self._finish(await self._call_upstream(request, None))

    async def _serve_call(self, request: UpstreamRequest) -> None:
        """Serve a call of a model: check what its body asks for, then wait for a slot."""
        gateway, record, body, reader = self._gateway, self.record, self.request_body, self._reader
        account, rules = request.route.account, gateway.access.body_rules(request)
        await self._read_request(request, whole=rules is not None)
        model = request.route.model or reader.model
        if request.route.pool is not None:
            self._pool = await self._pool_request(request, request.route.pool, model)
        record.model = kept_model(model)
        is_stream = reader.is_stream or self.head.target.partition(b"?")[0].endswith(b"streamGenerateContent")
        if request.keepalive is not None and is_stream and self.response.can_begin_early:
            self._keepalive = request.keepalive
        others: tuple[str, ...] = ()
        if rules is not None:
            record.scope = canonical_scope(protocols.scope_of(account.provider, account.name, model))
            others = await rules.check(request, body, record.model, gateway.spend.is_priced, self._more)
            await self._read_rest()  # it may name the longest answer
        record.scope = gateway.model_names.scope(account.provider, account.name, model)
        body.most_waiting = WAITING_BYTES
        body_bytes = self._body_bytes(request)
        self._estimate = estimate_of(reader, body_bytes, is_stream=is_stream, others=others)
        if self._pool is not None:
            self._pool.estimate = self._estimate
        await self._call_until_accepted(request, reader.tokens(body_bytes))

    async def _read_request(self, request: UpstreamRequest, *, whole: bool) -> None:
        """Read the body until its model is known. A request without a model is counted without one.

        `whole`: it will be decoded anyway. Then one that has come is not scanned before.
        """
        body, reader = self.request_body, self._reader
        if whole and body.is_complete and (members := await self._members()) is not None:
            reader.read_members(members)
            self._pieces_read = len(body.pieces)
            return
        while True:
            for piece in body.pieces[self._pieces_read :]:
                self._pieces_read += 1
                if reader.feed(piece) and (request.keepalive is None or reader.is_stream):
                    return
            if request.route.model is not None or body.is_complete or body.size >= KEPT_BYTES:
                break
            await self._more()
        await self._read_rest()

    async def _read_rest(self) -> None:
        """Let the reader see the rest of the body, and all of it again if it has too many members for a scan."""
        body, reader = self.request_body, self._reader
        for piece in body.pieces[self._pieces_read :]:
            reader.feed(piece)
        self._pieces_read = len(body.pieces)
        if reader.needs_whole and body.is_complete:
            whole = b"".join(body.pieces)
            await parsed(len(whole), lambda: reader.read_whole(whole))

    async def _members(self) -> Members | None:
        try:
            return await self.request_body.members()
        except ValueError:
            return None

    async def _more(self) -> None:
        """Wait for more of the body. That is not the gateway's own time."""
        await self._times.elsewhere(self.request_body.more())

    async def _pool_request(self, request: UpstreamRequest, pool: KeyPoolSettings, model: str | None) -> PoolRequest:
        """Return what its pool must know of a request. A fallback route may change the model: it needs the body."""
        body, session = self.request_body, request.session
        wanted = KEPT_BYTES if pool.fallback else SESSION_BYTES if session is None and len(pool.accounts) > 1 else 0
        while not body.is_complete and body.size < wanted:
            await self._more()
        if session is None and len(pool.accounts) > 1:
            session = session_in_body(body.pieces)
        is_changed = body.is_complete and any(route.model is not None for route in pool.fallback)
        members = await self._members() if is_changed else None
        return PoolRequest(pool, model, session, request, members)

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
                if request.client is not None:
                    gateway.spend.check_key(request.client, self.record.model, self._estimate)
                if self._pool is None:
                    gateway.spend.check_account(request.route.account, self.record.model, self._estimate)
                    waiting = gateway.limiter.slot_for(admission(self.record.scope))
                elif (choice := gateway.key_pools.choose(self._pool, gateway.limiter, admission)) is not None:
                    request, waiting = choice.request, choice.waiting
                    self.record.account, self.record.scope = request.route.account.name, choice.scope
                    self.record.model = kept_model(choice.model)
                elif refused is not None:
                    self._finish(refused)  # the answer of the last account that was reached
                    return
                else:
                    assert self._pool.failure is not None
                    raise self._pool.failure
                async with waiting as slot:
                    refused = await self._call_in_slot(request, slot, deadline)
            except BudgetError as error:
                self._begin_signs()
                if not error.is_of_choice:  # else another account of the pool may have room at once
                    self.record.reason, began_at = BUDGET_IN_USE, gateway.loop.time()
                    await self._times.elsewhere(gateway.spend.room(error, deadline))
                    self.record.waited_seconds += gateway.loop.time() - began_at
                continue
            except UpstreamError as error:
                pool, now = self._pool, gateway.clock.now()
                if pool is None or not gateway.key_pools.may_skip_unreachable(pool, request, error, now):
                    raise
                continue
            except SlotTimeout as timeout:
                now = gateway.clock.now()
                self.record.waited_seconds += now - joined_at
                if self._pool is not None and now < deadline:
                    continue
                gateway.calls.refused()
                if refused is None:
                    raise self._wait_ran_out(timeout, deadline - arrived) from None
                self._finish(refused)
            if refused is None or self.response_complete:
                return

    async def _call_in_slot(self, request: UpstreamRequest, slot: Slot, deadline: float) -> UpstreamCall | None:
        """Call the upstream once. Returns the call if it is to be repeated, None if the client has the response."""
        gateway = self._gateway
        self._times.slot_granted(slot.waited)
        self._end_signs()
        record = self.record
        if self._pool is not None:
            changed = gateway.key_pools.begin(self._pool)
            self._sent_body = self.request_body if changed is None else RequestBody.whole(changed, self._client.flow)
        record.ticket = record.reason = record.retry_at = None
        self._sent_call = None
        try:
            has_waited = record.waited_seconds > 0 or self._times.since_arrival() > READ_AGAIN_SECONDS
            reserved = await self._reserved(request, has_waited=has_waited)
            try:
                call = await self._call_upstream(request, slot)
            finally:
                gateway.calls.used(record, self._sent_call, self.request_body, reserved)
                self._sent_call = None  # it refers to this exchange
        except BaseException:
            slot.abandon()  # an unreachable upstream, or a client that left, is no success
            raise
        signals = gateway.reporter.report_end(request, slot, call)
        if any(isinstance(signal, AuthFailed) for signal in signals):
            gateway.key_refused(request.route.account.name)
        assert call.head is not None
        status, headers, now = call.head.status, call.head.lowered, gateway.clock.now()
        if self._pool is not None:
            gateway.key_pools.note_answer(request, status, signals, now)
        if status < FIRST_ERROR:
            gateway.model_names.note_served(request.route.account.provider, request.route.account.name, record.model)
        elif status in HELD_BACK_STATUSES:
            gateway.calls.refused()
        if not call.is_held_back or not should_retry(signals, status, headers, now=now, deadline=deadline):
            if call.is_held_back and self._pool is not None and self._pool.may_fail_over(request, status, signals):
                gateway.metrics.gateway_retries.add(record.scope, "next_key")
                return call
            self._finish(call)
            return None
        for signal in with_pause(signals)[len(signals) :]:  # a request that is sent again must wait first
            slot.report(signal)
        is_overload = any(isinstance(signal, Overloaded) for signal in signals)
        gateway.metrics.gateway_retries.add(record.scope, "overloaded" if is_overload else "rate_limited")
        return call

    async def _reserved(self, request: UpstreamRequest, *, has_waited: bool) -> Reservation:
        """Reserve what a request with a slot may cost. Raise `OwnError` if it may no longer be sent."""
        gateway, client, account = self._gateway, request.client, request.route.account
        if client is not None and has_waited:  # much may have happened since it was let in
            await gateway.access.keys.catch_up(AFTER_WAIT_SECONDS)
            gateway.access.keys.check_present(client)
        try:
            return gateway.spend.reserve(self.record, client, account, self._estimate)
        except BudgetError as error:
            error.is_of_choice = request.route.pool is not None and error.scope == account.scope
            raise

    async def _call_upstream(self, request: UpstreamRequest, slot: Slot | None) -> UpstreamCall:
        """Send the request and forward its response. If a pooled connection turns out to be dead, use a new one."""
        pool = self._gateway.pool(request.route.origin)
        connection = pool.take()
        if connection is not None:
            try:
                return await self._send(request, slot, connection)
            except UpstreamError as error:
                is_safe = is_idempotent(request.arrived.method, lowered(request.headers))
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
        self._call = self._sent_call = call
        try:
            call.send(connection)
            if self._client.flow.write_paused:
                call.pause(True)
            error = await call.over
        finally:
            call.give_up()
            self._call = None
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

    def _respond_with(self, error: OwnError) -> None:
        """Send an error response of the gateway, in the shape of the provider's protocol."""
        self._gateway.calls.answered(self.record, error)
        family = self._gateway.access.family(self.head)
        body = protocols.error_body(family, error.status, error.code, str(error))
        headers = [*protocols.error_headers(error.status, error.retry_after), (b"content-length", b"%d" % len(body))]
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

    def _fail_with(self, error: OwnError) -> None:
        if self.response.has_begun:
            self.response.cut_off()
            self.response_complete = True
        else:
            self._respond_with(error)

    def _complete(self) -> None:
        self.response_complete = True
        self._times.request_ended()
        if not self.response.keep_alive and self.request_body.is_complete:
            self._client.transport.close()  # else after the body: a client that is still sending does not read
        self._client.on_response_complete()

    def _own_headers(self) -> bytes:
        record, waited = self.record, round(self.record.waited_seconds * 1000)
        return b"x-paceline-request-id: %b\r\nx-paceline-scope: %b\r\nx-paceline-waited-ms: %d\r\n%b" % (
            record.id.encode(), header_value(record.scope), waited, b"" if self._pool is None else self._pool.headers,
        )  # fmt: skip

    # -- the record --------------------------------------------------------------------------------

    def _queued(self, deferred: Deferred) -> None:
        if self._pool is None and (response := protocols.response_when_held(deferred)) is not None:
            raise response
        if self._pool is None and (error := self._refused_key()) is not None:
            raise error
        self._gateway.calls.queued(self.record, deferred)
        self._begin_signs()

    def _begin_signs(self) -> None:
        """Write comments into the response from now on. No-op if the request waited before, for another account."""
        if self._keepalive is not None and self._sign_of_life is None:
            self._sign_of_life = self._gateway.loop.call_later(self._keepalive, self._show_life)

    def _show_life(self) -> None:
        if not self.response.is_early:
            is_named = self._gateway.access.family(self.head) == "anthropic"
            self.response.begin_early(self._own_headers(), b"event: error\n" if is_named else b"")
        self.response.comment(b"paceline: waiting (%b)" % (self.record.reason or "queue").encode())
        self._sign_of_life = None
        self._begin_signs()

    def _end_signs(self) -> None:
        if self._sign_of_life is not None:
            self._sign_of_life.cancel()
            self._sign_of_life = None

    def _refused_key(self) -> OwnError | None:
        """Return the answer if the key that the request would use was refused. None if it brings one of its own."""
        if self._has_own_key or self.record.account is None:
            return None
        return refused_key(self._gateway.limiter, self._gateway.access.accounts[self.record.account])

    def _own_error(self, error: InvalidInput | CapacityError) -> OwnError:
        """Return what the limiter refuses as an error of the gateway."""
        if isinstance(error, InvalidInput):
            return OwnError(400, "invalid_request", str(error))
        gateway = self._gateway
        why = str(error) if gateway.serves_calls else "this engine does not lead any more; try again"
        return OwnError(503, "stopping", why, retry_after=gateway.restart_seconds)

    def _wait_ran_out(self, timeout: SlotTimeout, waited: float) -> OwnError:
        """Return the answer after the last wait. Several waits, for accounts of a pool, had `waited` seconds in all."""
        message, deferred = str(timeout) if self._pool is None else f"no slot within {waited:g} s", timeout.deferred
        expected = self._gateway.calls.expected_wait(deferred)
        return protocols.response_when_timed_out(message, deferred, self._gateway.clock.now(), expected)


# -- what all exchanges share ------------------------------------------------------------------------


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The longest time for each step, in seconds."""

    max_wait: float = 600.0
    """For a slot, unless the client names another time. As long as the usual time-out of the SDKs."""
    connect: float = 10.0
    """To open an upstream connection. A healthy provider needs well under a second."""
    first_byte: float = 600.0
    """From the last byte sent upstream to the first byte of the response. Models can think for minutes."""
    upstream_idle: float = 300.0
    """Between two pieces of a response, whichever side does not move."""
    head: float = 20.0
    """For a client to send the whole head of a request. A slow client must not hold a connection forever."""
    body_idle: float = 60.0
    """Between two pieces of a client's body."""
    pooled: float = 30.0
    """For an unused upstream connection. Servers often close theirs after a minute: we close first."""
    check_interval: float = 1.0
    """Between two checks of all these limits. It is how late a time-out may be noticed."""


RESTART_SECONDS = 10.0
"""The usual length of a daemon restart. Clients that retry sooner meet a closed port."""
CLOSING_SECONDS = 1.0
"""How long the end waits for exchanges to count what they have used, which takes them a moment."""
NEXT_LEADER_SECONDS = 1.0
"""When to retry after this engine has lost the lead: the request is then passed on to the next leader."""


class Gateway:
    """The gateway on one event loop, the one it is created on. `limiter` may belong to an engine or stand alone.

    Without a limiter no slot can be granted, so requests are not served here: another engine leads.
    """

    def __init__(
        self,
        limiter: Limiter | None,
        access: RequestAccess,
        *,
        clock: Clock,
        metrics: MetricsRegistry,
        timeouts: Timeouts | None = None,
        spend: SpendLedger | None = None,
    ) -> None:
        self._limiter = limiter
        self.access = access
        self.clock = clock
        self.metrics = metrics
        self.timeouts = timeouts or Timeouts()
        self.loop = asyncio.get_running_loop()
        self.reporter = SignalReporter(clock)
        self.spend = spend or SpendLedger(price_list(), clock)
        self.calls = RequestAccounting(clock, self.spend, metrics)
        self.calls.why = self._why
        self.model_names = self.calls.model_names
        self.key_pools = KeyPools(access, self.model_names, self.spend)
        self.calls.failures = self.key_pools.failures
        self.live: set[Exchange] = set()
        """The exchanges that are being served."""
        self.connections: set[ServerProtocol] = set()
        self._pools: dict[Origin, UpstreamPool] = {}
        self._stops_at: float | None = None
        self._drained = asyncio.Event()
        """Set once the gateway stops and its last exchange has ended."""
        self._timer = self.loop.call_later(self.timeouts.check_interval, self._check_time)

    @property
    def serves_calls(self) -> bool:
        """Whether calls are answered here, be it with "the daemon is stopping"."""
        return self._limiter is not None or self.is_stopping

    @property
    def limiter(self) -> Limiter:
        """The limiter that grants the slots. Raises `CapacityError` if there is none now."""
        if self._limiter is None:
            raise CapacityError("this engine does not lead any more; try again")
        return self._limiter

    def use_limiter(self, limiter: Limiter | None, metrics: MetricsRegistry) -> None:
        """Let this limiter grant the slots from now on, and count there."""
        self._limiter = limiter
        self.metrics = self.calls.metrics = metrics
        self.reporter = SignalReporter(self.clock)

    def _why(self, ticket_id: str) -> Deferred | None:
        return None if self._limiter is None else self._limiter.why(ticket_id)

    def without_slot(self, request: UpstreamRequest) -> UpstreamRequest:
        """Return a request to a pool that takes no slot as it is sent: with the key of an account that is open."""
        return request if self._limiter is None else self.key_pools.without_slot(request, self._limiter)

    def pool(self, origin: Origin) -> UpstreamPool:
        """Return the connections to an upstream. Accounts with the same origin share them."""
        pool = self._pools.get(origin)
        if pool is None:
            timeouts = self.timeouts
            pool = UpstreamPool(origin, connect_seconds=timeouts.connect, idle_seconds=timeouts.pooled)
            self._pools[origin] = pool
        return pool

    # -- shutdown ----------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        return self._stops_at is not None

    @property
    def restart_seconds(self) -> float:
        """The time after which a client that is rejected now may find a running daemon."""
        if not self.serves_calls:
            return NEXT_LEADER_SECONDS
        left = 0.0 if self._stops_at is None else self._stops_at - self.loop.time()
        return max(0.0, left) + RESTART_SECONDS

    def stop_accepting(self, seconds: float) -> None:
        """Reject new requests. Those being served may continue for `seconds`."""
        if self._stops_at is None:
            self._stops_at = self.loop.time() + seconds
            self._note_if_drained()

    def exchange_ended(self, exchange: Exchange) -> None:
        self.live.discard(exchange)
        self._note_if_drained()

    def key_refused(self, account: str) -> None:
        """Answer the calls that wait for an account whose key the provider has refused: waiting does not help them."""
        for exchange in list(self.live):
            exchange.key_refused(account)

    async def drain(self, hurry: asyncio.Event) -> None:
        """Wait until every exchange has ended, their time is over, or `hurry` is set."""
        assert self._stops_at is not None
        waits = [asyncio.ensure_future(event.wait()) for event in (self._drained, hurry)]
        try:
            await asyncio.wait(
                waits, timeout=max(0.0, self._stops_at - self.loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in waits:
                each.cancel()

    def _note_if_drained(self) -> None:
        if self._stops_at is not None and not self.live:
            self._drained.set()

    async def close(self) -> None:
        """End every exchange, waiting or being served, count what it has used, and close all upstream connections."""
        self._timer.cancel()
        self._stops_at = self._stops_at or self.loop.time()
        for exchange in list(self.live):
            exchange.client_left()
        self._note_if_drained()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._drained.wait()
        for pool in self._pools.values():
            pool.close()
        self.spend.announce()
        self.spend.save()

    def _check_time(self) -> None:
        self._timer = self.loop.call_later(self.timeouts.check_interval, self._check_time)  # also if this one fails
        now = self.loop.time()
        for exchange in list(self.live):
            exchange.check_time(now)
        for connection in list(self.connections):
            connection.check_time(now)
        for pool in self._pools.values():
            pool.drop_idle(now)
        self.spend.announce()
        self.spend.save_if_due(now)
