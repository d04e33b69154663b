"""One request from its head to the end of its answer: the gate, the line for a slot, the tries.

To uvicorn an exchange is a request-response cycle like any other: it is started in its turn, told when its client has
left, and calls back when the answer is complete. So the API and the gateway share a port and its connections.
"""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeVar

from paceline.core.signals import Overloaded, Signal
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.verdicts import Deferred
from paceline.errors import CapacityError, InvalidInput, SlotTimeout
from paceline.gateway.client_response import Answer
from paceline.gateway.errors import Refused
from paceline.gateway.http_heads import lowered
from paceline.gateway.request_access import ALLOWED_METHODS, Call, RequestHead
from paceline.gateway.request_body import KEPT_BYTES, WAITING_BYTES, Upload
from paceline.gateway.response_signals import ensure_pause
from paceline.gateway.socket_probes import has_hung_up
from paceline.gateway.upstream_call import Attempt
from paceline.gateway.upstream_pool import AnswerHead, UpstreamBroke, UpstreamConnection
from paceline.limiter.slot import Slot
from paceline.protocols import (
    CallReader,
    OwnAnswer,
    answer_when_held,
    answer_when_out_of_time,
    earliest_retry,
    error_body,
    error_headers,
    may_send_again,
    scope_of,
)

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


class Client(Protocol):
    """The client's connection."""

    transport: asyncio.Transport
    serving: "Exchange | None"
    """The exchange whose turn it is on this connection."""

    @property
    def flow(self) -> ClientFlow: ...

    def on_response_complete(self) -> None: ...


class _NoEvent:
    """uvicorn wakes its own cycles by an event; an exchange needs no waking."""

    def set(self) -> None: ...


class Exchange:
    """uvicorn knows `response_complete`, `disconnected`, `keep_alive`, `message_event` and `run_asgi` of it."""

    message_event = _NoEvent()

    def __init__(
        self, gateway: "Gateway", client: Client, head: RequestHead, *, is_old: bool, keep_alive: bool
    ) -> None:
        self.response_complete = False
        self.disconnected = False
        self.upload = Upload(client.flow)
        self.answer = Answer(client.transport, is_for_head=head.method == "HEAD", is_old=is_old, keep_alive=keep_alive)
        self._gateway = gateway
        self._client = client
        self._head = head
        self._fault: Refused | None = None
        self._task: asyncio.Task[None] | None = None
        self._attempt: Attempt | None = None
        self._scope = ""
        self._waited = 0.0
        """For a slot, in all."""
        self._arrived_at = gateway.loop.time()
        self._spent_elsewhere = 0.0
        """Of the time since then, what was spent waiting: for the body, a slot, a connection."""

    @property
    def keep_alive(self) -> bool:
        return self.answer.keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self.answer.keep_alive = value  # the server stops

    # -- what the client's connection tells --------------------------------------------------------

    def client_left(self) -> None:
        """Whatever is going on is not wanted any more: leave the line, or hang up on the upstream."""
        self.disconnected = True
        if self._task is not None and not self.response_complete:
            self._task.cancel()

    def refuse(self, fault: Refused) -> None:
        """The client did something for which the exchange ends, in whatever state it is."""
        self._fault = fault
        if self._task is not None and not self.response_complete:
            self._task.cancel()

    def client_paused(self, is_paused: bool) -> None:
        if self._attempt is not None:
            self._attempt.pause(is_paused)

    def check_time(self, now: float) -> None:
        """Looked at every so often: an upstream that hangs, and a client that left while it was not being read."""
        limits = self._gateway.timeouts
        if self._attempt is not None:
            self._attempt.check_time(now, first_byte_seconds=limits.first_byte, idle_seconds=limits.upstream_idle)
        if self._client.flow.read_paused and has_hung_up(self._client.transport):
            self._client.transport.abort()

    # -- the course of things ----------------------------------------------------------------------

    async def run_asgi(self, app: object) -> None:
        """Serve the request. The name is uvicorn's; its application has no part in it."""
        if self.disconnected:
            return
        self._task = asyncio.current_task()
        self._client.serving = self
        self._gateway.live.add(self)
        try:
            if self._fault is not None:
                raise self._fault
            await self._serve()
        except Refused as refused:
            self._refuse(refused)
        except UpstreamBroke as broke:
            self._tell_broken(broke)
        except asyncio.CancelledError:
            if self._fault is None or self.disconnected or self.answer.has_begun:
                raise
            self._refuse(self._fault)
        finally:
            self._gateway.ended(self)
            self._client.serving = None
            if not self.response_complete:
                self._client.transport.abort()

    async def _serve(self) -> None:
        if self._gateway.is_stopping:
            raise Refused(503, "stopping", "the daemon is stopping", retry_after=self._gateway.back_in)
        call = self._gateway.gate.admit(self._head)
        if call.expects_continue:
            self._client.transport.write(CONTINUE)
        account = call.way.account
        if call.is_counted:
            asked = await self._read_call(call)
            self.upload.most_waiting = WAITING_BYTES
            self._scope = canonical_scope(scope_of(account.provider, account.name, call.way.model or asked.model))
            await self._take_turns(call, asked.tokens(self._body_bytes(call)))
        else:
            self._scope = canonical_scope(account.scope)
            self._finish(await self._try(call, None))

    async def _read_call(self, call: Call) -> CallReader:
        """Read as much of the body as it takes. Where no model comes, the request counts without one."""
        upload, reader, seen = self.upload, CallReader(), 0
        while True:
            for piece in upload.pieces[seen:]:
                seen += 1
                if reader.feed(piece):
                    return reader
            if call.way.model is not None or upload.is_complete or upload.size >= KEPT_BYTES:
                return reader
            await self._elsewhere(upload.more())

    def _body_bytes(self, call: Call) -> int | None:
        """How long the body is, where that is known before it is all there."""
        if self.upload.is_complete:
            return self.upload.size
        told = [value for name, value in call.headers if name.lower() == b"content-length"]
        return int(told[0]) if told and told[0].isdigit() else None

    async def _take_turns(self, call: Call, tokens: int) -> None:
        """Wait for a slot and try; what was refused and is safe to send again waits in the same line once more."""
        gateway = self._gateway
        arrived = gateway.clock.now()
        deadline = arrived + (gateway.timeouts.max_wait if call.max_wait is None else call.max_wait)
        refused: Attempt | None = None
        while True:
            joined_at = gateway.clock.now()
            in_line = gateway.limiter.slot(
                self._scope,
                session=call.session,
                priority=call.priority,
                since=arrived,
                tokens=tokens,
                timeout=max(0.0, deadline - joined_at),
                on_queued=_joined_line,
            )
            try:
                async with in_line as slot:
                    refused = await self._try_in_slot(call, slot, deadline)
            except SlotTimeout as timeout:
                now = gateway.clock.now()
                self._waited += now - joined_at
                if refused is None:
                    raise _refusal(answer_when_out_of_time(str(timeout), timeout.deferred, now)) from None
                self._finish(refused)
            except InvalidInput as error:
                raise Refused(400, "invalid_request", str(error)) from None
            except CapacityError as error:
                raise Refused(503, "stopping", str(error), retry_after=gateway.back_in) from None
            if refused is None or self.response_complete:
                return

    async def _try_in_slot(self, call: Call, slot: Slot, deadline: float) -> Attempt | None:
        """The attempt, where it is to be made again."""
        gateway = self._gateway
        self._waited += slot.waited
        self._spent_elsewhere += slot.waited
        gateway.metrics.granted(slot.waited)
        try:
            attempt = await self._try(call, slot)
        except BaseException:
            slot.abandon()  # an upstream that cannot be reached, or a client that left, is no success
            raise
        signals = gateway.learning.from_end(call, slot, attempt)
        if not attempt.is_held_back or not self._may_send_again(call, attempt, signals, deadline):
            self._finish(attempt)
            return None
        ensure_pause(slot, signals)
        is_overload = any(isinstance(signal, Overloaded) for signal in signals)
        gateway.metrics.gateway_retries.add(self._scope, "overloaded" if is_overload else "rate_limited")
        return attempt

    def _may_send_again(self, call: Call, attempt: Attempt, signals: list[Signal], deadline: float) -> bool:
        """Never what may have been done, and never in vain: not where the provider names a time too late."""
        assert attempt.head is not None
        head, now = attempt.head, self._gateway.clock.now()
        if (not_before := earliest_retry(signals, now)) is not None and not_before > deadline:
            return False
        return may_send_again(
            call.method, lowered(call.headers), status=head.status, headers=head.lowered, signals=signals
        )

    async def _try(self, call: Call, slot: Slot | None) -> Attempt:
        """Send it and see it through. A connection that was used before may turn out to be dead; a new one may not."""
        pool = self._gateway.pool(call.way.origin)
        connection = pool.take()
        if connection is not None:
            try:
                return await self._send(call, slot, connection)
            except UpstreamBroke as broke:
                is_safe = may_send_again(call.method, lowered(call.headers), status=None)
                if broke.is_answered or broke.is_timeout or not is_safe or not self.upload.is_kept:
                    raise
                self._gateway.metrics.gateway_retries.add(self._scope, "stale_connection")
        return await self._send(call, slot, await self._elsewhere(pool.connect()))

    async def _send(self, call: Call, slot: Slot | None, connection: UpstreamConnection) -> Attempt:
        learning = self._gateway.learning

        def on_head(head: AnswerHead) -> None:
            if slot is not None:
                learning.from_head(call, slot, head)

        attempt = self._attempt = Attempt(call, self.upload, self.answer, self._own_headers(), on_head)
        try:
            attempt.send(connection)
            if self._client.flow.write_paused:
                attempt.pause(True)
            broke = await attempt.over
        finally:
            attempt.give_up()
            self._attempt = None
        if broke is not None:
            if slot is not None and attempt.head is not None:
                learning.from_broken(call, slot, attempt.head)
            raise broke
        self._measure_try(attempt)
        return attempt

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, attempt: Attempt) -> None:
        """The client has the whole answer; one that was held back is passed on now."""
        if attempt.is_held_back:
            attempt.pass_on(self._own_headers())
            self.answer.end([])
        self._complete()

    def _refuse(self, refused: Refused) -> None:
        """An answer of the gateway's own, in the provider's words."""
        family = self._gateway.gate.family(self._head)
        body = error_body(family, refused.status, refused.code, str(refused))
        headers = [*error_headers(refused.status, refused.retry_after), (b"content-length", b"%d" % len(body))]
        if refused.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", ALLOWED_METHODS))
        if not self.upload.is_complete:  # the client may never send the rest
            self.answer.keep_alive = False
        self.answer.begin(
            AnswerHead(refused.status, HTTPStatus(refused.status).phrase.encode(), headers, headers),
            self._own_headers(),
        )
        self.answer.write(body)
        self.answer.end([])
        self._complete()

    def _tell_broken(self, broke: UpstreamBroke) -> None:
        if self.answer.has_begun:
            self.answer.cut_off()
            self.response_complete = True
            return
        status, code = (504, "upstream_timeout") if broke.is_timeout else (502, "upstream_failed")
        self._refuse(Refused(status, code, f"the upstream gave no whole answer: {broke}"))

    def _complete(self) -> None:
        self.response_complete = True
        metrics = self._gateway.metrics
        metrics.gateway_request_seconds.observe(self._gateway.loop.time() - self._arrived_at)
        metrics.gateway_wait_seconds.observe(self._waited)
        if not self.answer.keep_alive and self.upload.is_complete:
            self._client.transport.close()  # else once the body is there: a client that still sends reads nothing
        self._client.on_response_complete()

    def _own_headers(self) -> bytes:
        scope, waited = self._scope.encode(), round(self._waited * 1000)
        return b"x-paceline-scope: %b\r\nx-paceline-waited-ms: %d\r\n" % (scope, waited)

    async def _elsewhere(self, waiting: Awaitable[Value]) -> Value:
        """Time spent in here is not the gateway's own."""
        began_at = self._gateway.loop.time()
        try:
            return await waiting
        finally:
            self._spent_elsewhere += self._gateway.loop.time() - began_at

    def _measure_try(self, attempt: Attempt) -> None:
        metrics = self._gateway.metrics
        metrics.gateway_ttfb_seconds.observe(attempt.began_at - attempt.sent_at)
        metrics.gateway_overhead_seconds.observe(max(0.0, attempt.sent_at - self._arrived_at - self._spent_elsewhere))
        self._spent_elsewhere += self._gateway.loop.time() - attempt.sent_at


def _joined_line(deferred: Deferred) -> None:
    if (answer := answer_when_held(deferred)) is not None:
        raise _refusal(answer)


def _refusal(answer: OwnAnswer) -> Refused:
    return Refused(answer.status, answer.code, answer.message, retry_after=answer.retry_after)
