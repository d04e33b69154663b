"""Waits for a slot, and retries of requests that the upstream refused before it processed them."""

import asyncio
import json
from collections.abc import Callable

import pytest
from tests.gateway.gateway_harness import PATIENCE_SECONDS, GatewayHarness, account, run_loop, until
from tests.gateway.raw_http import Message, RawUpstream, Wire, answering, connect, ok, post

from paceline import Limiter
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import Scenario, Step

SCOPE = "anthropic/work/opus-4-6"
CALL = json.dumps(
    {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
).encode()
STREAM = CALL[:-1] + b', "stream": true}'
START = 1_700_000_000.0
TURNS_PER_STEP = 50
"""Turns of the loop in which a request and its response get from the client to the upstream and back."""


def queued(limiter: Limiter) -> int:
    status = limiter.scope_status(SCOPE)
    return 0 if status is None else status.queued


async def pass_time_until(clock: VirtualClock, condition: Callable[[], bool]) -> None:
    """Move the clock in small steps until the condition holds. Before each step, bytes on the way arrive."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in iter(condition, True):
            await run_loop(TURNS_PER_STEP)
            await clock.advance(0.25)


class Waiting:
    """A limiter with one place, on a clock that only the test moves."""

    def __init__(self, *, limit: int = 1) -> None:
        self.clock = VirtualClock(START)
        self.limiter = Limiter(limits={"anthropic/work": limit}, slot_timeout=3600.0, clock=self.clock)


async def test_a_request_waits_for_a_slot_and_its_response_has_the_wait() -> None:
    at = Waiting()
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=at.limiter, clock=at.clock) as harness,
        await connect(harness.port) as client,
    ):
        slot = await at.limiter.acquire(SCOPE)
        client.send(post())
        await until(lambda: queued(at.limiter) == 1)
        await at.clock.advance(2.5)
        assert upstream.connections == 0
        slot.release()
        got = await client.read_message()

    assert (got.status, got.header(b"x-paceline-waited-ms")) == (200, b"2500")
    assert (harness.metrics.grants, harness.metrics.gateway_wait_seconds.total) == (1, 2.5)


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (b"/v1/messages", {"type": "error", "error": {"type": "rate_limit_error"}}),
        (b"/v1/chat/completions", {"error": {"type": "rate_limit_error", "code": "limit", "param": None}}),
        (b"/v1beta/models/opus-4-6:generateContent", {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}),
    ],
)
async def test_when_the_wait_runs_out_the_client_gets_an_error_in_its_providers_shape(
    path: bytes, shape: dict[str, object]
) -> None:
    at = Waiting()
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=at.limiter, clock=at.clock) as harness,
        await connect(harness.port) as client,
    ):
        await at.limiter.acquire(SCOPE)
        client.send(post(b'{"model": "opus-4-6"}', b"x-paceline-max-wait: 60", path=b"/gateway/work" + path))
        await until(lambda: queued(at.limiter) == 1)
        await at.clock.advance(59.0)
        assert queued(at.limiter) == 1
        await at.clock.advance(1.0)
        got = await client.read_message()
        again = queued(at.limiter)

    body = json.loads(got.body)
    message = body["error"].pop("message")
    body["error"].pop("details", None)
    assert (got.status, body) == (429, shape)
    assert "no slot within 60 s: anthropic/work at its limit (1/1)" in message
    assert "(limit; position 1 in the queue)" in message
    assert int(got.header(b"retry-after") or 0) >= 1
    assert (got.header(b"x-paceline-scope"), got.header(b"x-paceline-waited-ms")) == (SCOPE.encode(), b"60000")
    assert (again, upstream.connections) == (0, 0)


async def test_the_default_max_wait_is_ten_minutes() -> None:
    at = Waiting()
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=at.limiter, clock=at.clock) as harness,
        await connect(harness.port) as client,
    ):
        await at.limiter.acquire(SCOPE)
        client.send(post())
        await until(lambda: queued(at.limiter) == 1)
        await at.clock.advance(599.0)
        assert queued(at.limiter) == 1
        await at.clock.advance(1.0)
        assert (await client.read_message()).status == 429


async def test_session_and_priority_are_those_of_the_headers() -> None:
    at = Waiting()
    at.limiter.acquire_session("s1")
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=at.limiter, clock=at.clock) as harness,
        await connect(harness.port) as client,
    ):
        slot = await at.limiter.acquire(SCOPE)
        client.send(post(CALL, b"x-paceline-priority: -3", b"X-Paceline-Session: s1"))
        await until(lambda: queued(at.limiter) == 1)
        snapshot = at.limiter.snapshot()
        slot.release()
        await client.read_message()

    session = next(record.ticket.id for record in snapshot.slots if "sessions" in record.ticket.scopes)
    assert [(waiter.ticket.priority, waiter.ticket.parent) for waiter in snapshot.waiters] == [(-3, session)]


@pytest.mark.parametrize("error", ["429_retry_after", "429_plain", "529", "503"])
@pytest.mark.parametrize("body", [CALL, STREAM], ids=["whole", "stream"])
async def test_a_refused_request_is_sent_again_after_the_pause_and_the_client_does_not_notice(
    error: str, body: bytes
) -> None:
    clock = VirtualClock(START)
    scenario = Scenario(script=(Step(error=error, times=2, retry_after=7.0),))
    async with (
        FakeProvider(scenario, clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(body))
        answer = asyncio.create_task(client.read_message())
        await until(lambda: len(provider.requests) == 1 and queued(harness.limiter) == 1)
        assert harness.in_flight == 0
        await pass_time_until(clock, answer.done)
        got = answer.result()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.is_whole, len(provider.requests)) == (200, True, 3)
    assert int(got.header(b"x-paceline-waited-ms") or 0) >= 10_000
    assert sum(harness.metrics.gateway_retries.values.values()) == 2


async def test_retry_after_is_obeyed() -> None:
    clock = VirtualClock(START)
    scenario = Scenario(script=(Step(error="429_retry_after", retry_after=7.0),))
    async with (
        FakeProvider(scenario, clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL))
        await until(lambda: queued(harness.limiter) == 1)
        await clock.advance(6.9)
        assert len(provider.requests) == 1
        await clock.advance(0.2)
        assert (await client.read_message()).status == 200

    assert [record.status for record in provider.requests] == [429, 200]


@pytest.mark.parametrize("error", ["401", "402", "400_invalid", "500", "413"])
async def test_other_errors_are_forwarded_at_once(error: str) -> None:
    clock = VirtualClock(START)
    async with (
        FakeProvider(Scenario(script=(Step(error=error),)), clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL))
        got = await client.read_message()

        assert got.status == provider.requests[0].status
        assert got.status >= 400
        assert (len(provider.requests), harness.in_flight) == (1, 0)


async def test_an_unpaid_account_is_held_and_later_requests_fail_at_once() -> None:
    clock = VirtualClock(START)
    async with (
        FakeProvider(Scenario(script=(Step(error="402"),)), clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL))
        await client.read_message()
        client.send(post(CALL))
        got = await client.read_message()

    assert (got.status, len(provider.requests), harness.in_flight) == (403, 1, 0)


async def test_a_refused_key_is_answered_at_once_until_one_call_may_ask_again() -> None:
    clock = VirtualClock(START)
    async with (
        FakeProvider(Scenario(script=(Step(error="401"),)), clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        answers = []
        for seconds in (0.0, 0.0, 61.0):
            await clock.advance(seconds)
            client.send(post(CALL))
            answers.append(await client.read_message())

    assert [each.status for each in answers] == [401, 401, 200]
    assert b'"type":"authentication_error"' in answers[1].body
    assert len(provider.requests) == 2


async def test_a_clients_own_bad_key_does_not_hold_the_account() -> None:
    clock = VirtualClock(START)
    own = b"x-paceline-token: paceline-token-1"
    async with (
        FakeProvider(Scenario(keys=("sk-account-key",)), clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL, own, key=b"x-api-key: sk-wrong"))
        wrong = await client.read_message()
        client.send(post(CALL))
        right = await client.read_message()

    assert (wrong.status, right.status) == (401, 200)


async def test_a_retry_after_the_clients_deadline_is_forwarded_at_once() -> None:
    clock = VirtualClock(START)
    scenario = Scenario(script=(Step(error="429_unified", resets_in=7200.0),))
    async with (
        FakeProvider(scenario, clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL))
        got = await client.read_message()

    assert (got.status, len(provider.requests)) == (429, 1)
    assert b"rate_limit_error" in got.body
    assert got.header(b"anthropic-ratelimit-unified-status") == b"rejected"


async def test_when_the_wait_runs_out_after_a_refusal_the_refusal_is_forwarded() -> None:
    clock = VirtualClock(START)
    scenario = Scenario(script=(Step(error="529", times=None),))
    async with (
        FakeProvider(scenario, clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL, b"x-paceline-max-wait: 20"))
        answer = asyncio.create_task(client.read_message())
        await pass_time_until(clock, answer.done)
        got = answer.result()

    assert (got.status, b"overloaded_error" in got.body, harness.in_flight) == (529, True, 0)
    assert got.header(b"x-paceline-waited-ms") == b"20000"
    assert len(provider.requests) >= 2


async def test_a_refusal_of_a_body_too_long_to_keep_is_forwarded() -> None:
    """The refusal comes while the client is still sending."""
    refusal = b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"

    async def handle(wire: Wire) -> None:
        await wire.read_head()
        await wire.reader.readexactly(6_000_000)
        wire.send(refusal)
        await wire.reader.read()

    body = b'{"model": "opus-4-6", "x": "' + b"x" * 8_000_000 + b'"}'
    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(body))
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.body, upstream.connections) == (429, b"{}", 1)


async def test_a_refusal_too_long_to_keep_is_forwarded_whole() -> None:
    body = b"x" * 300_000
    refusal = b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with (
        RawUpstream(answering(refusal)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()

    assert (got.status, got.body == body, got.is_whole) == (429, True, True)


async def test_a_refusal_without_a_body_leaves_nothing_behind_on_the_connection() -> None:
    refusal = b"HTTP/1.1 429 No\r\nx-should-retry: false\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with (
        RawUpstream(answering(refusal)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(b"", path=b"/gateway/work/v1/files") * 2)
        got = [await client.read_message(), await client.read_message()]

    assert [(message.first_line, message.body) for message in got] == [(b"HTTP/1.1 429 No", b"")] * 2


async def test_after_the_first_byte_nothing_is_ever_sent_again() -> None:
    clock = VirtualClock(START)
    seen = 0

    async def handle(wire: Wire) -> None:
        nonlocal seen
        await wire.read_message()
        seen += 1
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await wire.writer.drain()
        wire.close()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url), limiter=Limiter(clock=clock), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL))
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.body, got.is_whole, seen) == (200, b"half", False, 1)


@pytest.mark.parametrize(("method", "tries"), [(b"POST", 1), (b"GET", 2)])
async def test_a_pooled_connection_that_dies_is_replaced_only_for_idempotent_requests(
    method: bytes, tries: int
) -> None:
    seen: list[Message] = []

    async def handle(wire: Wire) -> None:
        seen.append(await wire.read_message())
        wire.send(ok())
        seen.append(await wire.read_message())
        wire.reset()

    request = post().replace(b"POST", method)
    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(request)
        first = await client.read_message()
        client.send(request)
        second = await client.read_message()

    assert (first.status, second.status) == (200, 200 if tries == 2 else 502)
    assert len(seen) == 1 + tries


async def test_a_connection_that_the_upstream_closed_while_idle_is_not_used() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(ok())
        await wire.writer.drain()
        wire.close()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        for _ in range(5):
            client.send(post())
            assert (await client.read_message()).status == 200
            await until(lambda: not any(pool._idle for pool in harness.gateway._pools.values()))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no..host"])
async def test_an_unreachable_upstream_is_a_502(url: str) -> None:
    async with GatewayHarness(account(url)) as harness, await connect(harness.port) as client:
        client.send(post())
        got = await client.read_message()

    assert (got.status, harness.in_flight) == (502, 0)
    assert b'"type":"api_error","message":"the upstream sent no usable response: no connection' in got.body


async def test_a_fleet_of_64_against_a_cap_of_8_with_accounting_lag_sees_no_429() -> None:
    clock = VirtualClock(START)
    scenario = Scenario(concurrency=8, lag=0.35, latency=0.5)
    limiter = Limiter(clock=clock, max_parallel_runs=None, cooldown=0.35)
    statuses: list[int] = []

    async def client_of_the_fleet(port: int) -> None:
        async with await connect(port) as client:
            for _ in range(3):
                client.send(post(CALL))
                statuses.append((await client.read_message()).status)

    async with (
        FakeProvider(scenario, clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=limiter, clock=clock) as harness,
    ):
        fleet = [asyncio.create_task(client_of_the_fleet(harness.port)) for _ in range(64)]
        await pass_time_until(clock, lambda: all(task.done() for task in fleet))
        await asyncio.gather(*fleet)

        assert harness.in_flight == 0
    assert statuses == [200] * 192
    assert provider.peak_concurrency <= 8


async def test_a_stated_bucket_of_60_a_minute_costs_70_calls_no_refusal_and_no_minute() -> None:
    clock = VirtualClock(START)
    scenario = Scenario(requests_per_minute=60, latency=0.5)
    limiter = Limiter(clock=clock, max_parallel_runs=None, cooldown=0.0, limits={"anthropic/work": 8})
    statuses: list[int] = []

    async def client_of_the_fleet(port: int) -> None:
        async with await connect(port) as client:
            client.send(post(CALL))
            statuses.append((await client.read_message()).status)

    async with (
        FakeProvider(scenario, clock=clock) as provider,
        GatewayHarness(account(provider.url), limiter=limiter, clock=clock) as harness,
    ):
        fleet = [asyncio.create_task(client_of_the_fleet(harness.port)) for _ in range(70)]
        await until(lambda: queued(limiter) == 62)
        await pass_time_until(clock, lambda: all(task.done() for task in fleet))
        await asyncio.gather(*fleet)

    assert (statuses, [each.status for each in provider.requests]) == ([200] * 70, [200] * 70)
    assert clock.now() - START <= 15.0


async def test_a_queued_client_gets_a_retry_after_when_the_daemon_stops() -> None:
    limiter = Limiter(limits={"anthropic": 1})
    async with (
        GatewayHarness(account("http://127.0.0.1:9"), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        await limiter.acquire("anthropic")
        client.send(post(CALL))
        await until(lambda: queued(limiter) == 1)
        await limiter.aclose()
        got = await client.read_message()

    assert (got.status, got.header(b"retry-after"), got.header(b"x-should-retry")) == (503, b"10", None)
