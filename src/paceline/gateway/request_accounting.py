"""The books of the gateway: which requests run and wait, how many there are, and what they have used.

Here: what is noted at each step of a request, and how people see it. Noting costs a few microseconds, and never a call
to a store. Never here: the steps themselves.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TypeVar

import msgspec

from paceline.clock import Clock
from paceline.core.values.fields import fields_of
from paceline.core.values.session_output import Tokens
from paceline.core.values.tickets import Deferred
from paceline.gateway.client_response import RequestBody
from paceline.gateway.request_access import UpstreamRequest
from paceline.gateway.routes import FIRST_ERROR, CallRecord, ModelNames, RequestLog
from paceline.gateway.spend_ledger import Reservation, SpendLedger
from paceline.gateway.upstream_call import UpstreamCall
from paceline.metrics import MetricsRegistry
from paceline.protocols import OwnError, TokensUsed, tokens_by_bytes, tokens_used
from paceline.store import Balances, Cost, SpendRow
from paceline.views import gateway_calls

log = logging.getLogger("paceline.gateway")

MOST_LISTED = 1000
"""Running and waiting requests in one answer. More cannot be read, and each waiting one costs the Governor a look."""

KEPT_SHARE = 0.9
"""Weight of the earlier streams in what is learnt of them: about ten count, long ones more."""
LONGEST_DETAIL = 400
"""Characters of an own answer that are kept: all of a usual one."""

Value = TypeVar("Value")


class RequestTimes:
    """The times of one request, on the loop's clock, and their metrics."""

    __slots__ = ("_metrics", "_now", "_record", "_spent_elsewhere", "arrived_at")

    def __init__(self, record: CallRecord, now: Callable[[], float], metrics: MetricsRegistry) -> None:
        self._record = record
        self._now = now
        self._metrics = metrics
        self.arrived_at = now()
        self._spent_elsewhere = 0.0
        """Seconds since the arrival that are not the gateway's own: waiting for the body, a slot, a connection."""

    async def elsewhere(self, waiting: Awaitable[Value]) -> Value:
        """Await something, and do not count its time as the gateway's own."""
        began_at = self._now()
        try:
            return await waiting
        finally:
            self._spent_elsewhere += self._now() - began_at

    def slot_granted(self, waited: float) -> None:
        self._record.waited_seconds += waited
        self._spent_elsewhere += waited
        self._metrics.granted(waited)

    def call_ended(self, call: UpstreamCall) -> None:
        self._metrics.gateway_ttfb_seconds.observe(call.began_at - call.sent_at)
        own_seconds = max(0.0, call.sent_at - self.arrived_at - self._spent_elsewhere)
        self._metrics.gateway_overhead_seconds.observe(own_seconds)
        self._spent_elsewhere += self._now() - call.sent_at

    def since_arrival(self) -> float:
        return self._now() - self.arrived_at

    def request_ended(self) -> None:
        self._metrics.gateway_request_seconds.observe(self._now() - self.arrived_at)
        self._metrics.gateway_wait_seconds.observe(self._record.waited_seconds)


class RequestAccounting(gateway_calls.GatewayCalls):
    """The books of one gateway."""

    def __init__(self, clock: Clock, spend: SpendLedger, metrics: MetricsRegistry) -> None:
        self.log = RequestLog()
        self.spend = spend
        self.metrics = metrics
        self.why: Callable[[str], Deferred | None] = lambda _: None
        """Returns why a ticket waits."""
        self.failures: Callable[[], list[gateway_calls.MemberFailure]] = list
        """Returns the accounts of pools that fail."""
        self.model_names = ModelNames()
        self._clock = clock
        self._speeds: dict[str, float] = {}
        """How many calls ended in a second, by scope, as computed at `_speeds_at`."""
        self._speeds_at = 0
        self._streamed: dict[str, tuple[float, float]] = {}
        """Tokens of the latest whole streams, as used and as streamed, by scope. Models differ in what they hide."""
        self._unread: set[str | None] = set()
        """Accounts whose answers came in a coding that cannot be read. That is logged once."""

    # -- the steps of a request --------------------------------------------------------------------

    def admitted(self, record: CallRecord, request: UpstreamRequest) -> None:
        """Note that the request may use its account."""
        record.account = request.route.account.name
        record.key = None if request.client is None else request.client.name
        record.is_billed = request.route.account.kind == "metered"
        self.log.admit(record, record.began_at)

    def queued(self, record: CallRecord, deferred: Deferred) -> None:
        """Note that the request waits for a slot."""
        record.ticket, record.reason, record.retry_at = deferred.ticket_id, deferred.reason, deferred.retry_at
        record.queued_at = self._clock.now()

    def refused(self) -> None:
        """Count a refusal by a provider, or a wait that ran out."""
        self.log.refusals.add(self._clock.now())

    def used(self, record: CallRecord, call: UpstreamCall | None, body: RequestBody, reserved: Reservation) -> None:
        """Settle what a call has used: all of a response, or what came before it broke off or its client left.

        A call with a budget always counts, if need be by its bytes. One that is left before its usage is known, or that
        runs out of time, counts as its estimate: the provider works on it, or has done so. Of a stream that is the
        request alone, because a provider stops to write when nobody reads. An answer in one piece is no stream, also
        if one was asked for.
        """
        may_cost = call is not None and (call.head is not None or (body.is_complete and call.may_be_worked_on))
        if call is None or not may_cost or (call.head is not None and call.head.status >= FIRST_ERROR):
            self.spend.release(reserved)
            return
        is_unread = call.reader is None or not (call.reader.events or call.reader.usage.split)
        is_stream = reserved.estimate.is_stream and (call.reader is None or call.reader.is_stream)
        used, coding = None, None
        if call.head is None or (is_unread and not call.is_whole and not is_stream):
            estimate = reserved.row.tokens
            prompt = max(estimate.input, tokens_by_bytes(body.size, 0, is_compressed=False).tokens.input)
            used = TokensUsed(Tokens(input=prompt, output=0 if is_stream else estimate.output), is_estimated=True)
        elif call.reader is None:
            coding = call.unread_coding
        else:
            tokens, streamed = self._streamed.get(record.scope, (1.0, 1.0))
            factor, come = max(1.0, tokens / streamed), call.reader.streamed_tokens
            used = tokens_used(call.reader, body.size, call.response_bytes, is_whole=call.is_read_whole, factor=factor)
            if come and used is not None and not used.is_estimated:
                seen = tokens * KEPT_SHARE + used.tokens.output, streamed * KEPT_SHARE + come
                self._streamed[record.scope] = seen
        if used is None and (reserved.limits or coding is not None):
            used = tokens_by_bytes(body.size, call.response_bytes, is_compressed=coding is not None)
        if used is not None and call.unread_bytes:
            rest = tokens_by_bytes(0, call.unread_bytes, is_compressed=True).tokens
            used = TokensUsed(used.tokens.plus(rest), is_estimated=True)
        if coding is not None and record.account not in self._unread:
            self._unread.add(record.account)
            log.warning("%s answers with %s, which was not asked for: tokens are estimated", record.account, coding)
        if used is not None:
            record.tokens, record.is_estimated = used.tokens, used.is_estimated
            for kind in Tokens.__struct_fields__:
                if (count := getattr(used.tokens, kind)) or kind in ("input", "output"):
                    self.metrics.tokens.add(record.scope, kind, by=count)
        self.spend.settle(reserved, record, call.reader)

    def answered(self, record: CallRecord, error: OwnError) -> None:
        """Note that the gateway itself answers the request, and what it writes."""
        record.status, record.reason = error.status, error.code
        record.detail = str(error)[:LONGEST_DETAIL]
        record.retry_at = None if error.retry_after is None else self._clock.now() + error.retry_after

    def ended(self, record: CallRecord, times: RequestTimes) -> None:
        """Note that the request is over, however it ended."""
        record.ticket = None
        record.seconds = times.since_arrival()
        self.log.ended(record)

    def expected_wait(self, deferred: Deferred | None) -> float | None:
        """Return how many seconds the queue before this ticket will take, by how fast calls ended there of late."""
        if deferred is None or deferred.position is None:
            return None
        now = self._clock.now()
        if int(now) != self._speeds_at:  # many waits may run out at once
            self._speeds_at, self._speeds = int(now), {}
        speed = self._speeds.get(deferred.scope)
        if speed is None:
            speed = self._speeds[deferred.scope] = self.log.ended_per_second(deferred.scope, now)
        return deferred.position / speed if speed else None

    # -- for people --------------------------------------------------------------------------------

    def counts(self) -> gateway_calls.GatewayCounts:
        """Return how many requests there are."""
        now, live = self._clock.now(), list(self.log.live())
        waiting = sum(each.ticket is not None for each in live)
        return gateway_calls.GatewayCounts(
            in_flight=len(live) - waiting,
            waiting=waiting,
            per_minute=self.log.arrivals.total(now),
            refused_per_minute=self.log.refusals.total(now),
        )

    def activity(self) -> gateway_calls.GatewayActivity:
        """Return the counts, where requests wait, and what this day has used."""
        today = self.spend.today()
        return gateway_calls.GatewayActivity(
            **msgspec.structs.asdict(self.counts()),
            waiting_by_scope=dict(Counter(each.scope for each in self.log.live() if each.ticket is not None)),
            failures=self.failures(),
            requests_today=today.requests,
            tokens_today=today.tokens,
            cost_today=Cost(billed=today.billed or None, imputed=today.imputed or None),
            unpriced_today=today.unpriced,
        )

    def requests(self, limit: int) -> gateway_calls.GatewayRequests:
        """Return the requests that run and wait, and the last `limit` that ended."""
        live = list(self.log.live())
        running = [each for each in live if each.ticket is None]
        waiting = [each for each in live if each.ticket is not None]
        return gateway_calls.GatewayRequests(
            running=[self._view(each) for each in running[:MOST_LISTED]],
            waiting=[self._view(each) for each in waiting[:MOST_LISTED]],
            recent=[self._view(each) for each in islice(self.log.recent(), limit)],
        )

    def request(self, request_id: str) -> gateway_calls.GatewayRequest | None:
        """Return one request, as long as it is known."""
        return None if (record := self.log.find(request_id)) is None else self._view(record)

    def is_unserved(self, scope: str) -> bool:
        """Return whether clients have named a model for this scope that never answered."""
        return self.model_names.is_unserved(scope)

    def balances(self) -> Balances:
        """Return what keys and accounts have spent."""
        return self.spend.settled

    def unsaved(self) -> list[SpendRow]:
        """Return what the store does not have yet."""
        return self.spend.unsaved()

    def _view(self, record: CallRecord) -> gateway_calls.GatewayRequest:
        now = self._clock.now()
        reason, retry_at, waited = record.reason, record.retry_at, record.waited_seconds
        if record.ticket is not None:
            waited += max(0.0, now - record.queued_at)
            if (deferred := self.why(record.ticket)) is not None:
                reason, retry_at = deferred.reason, deferred.retry_at
        seconds = round(max(0.0, now - record.began_at), 6) if record.seconds is None else record.seconds
        now_known = {"reason": reason, "retry_at": retry_at, "waited_seconds": round(waited, 6)}
        known = fields_of(gateway_calls.GatewayCall, record) | now_known
        cost = Cost(billed=record.dollars) if record.is_billed else Cost(imputed=record.dollars)
        return gateway_calls.GatewayRequest(**known, seconds=seconds, cost=cost)
