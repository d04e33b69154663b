"""The books of the gateway: which requests run and wait and why, what they used, also when their client left."""

import json

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, until
from tests.gateway.raw_http import RawUpstream, Wire, answering, connect, ok, post

from paceline import Limiter
from paceline.core.values.session_output import Tokens
from paceline.gateway import SpendLedger
from paceline.settings.model import Price, price_list
from paceline.store import Cost
from paceline.testing import VirtualClock
from paceline.views.gateway_calls import GatewayCounts, GatewayRequest, GatewayRequests

START = 1_700_000_000.0
SCOPE = "anthropic/work/opus-4-6"
MODEL = "claude-opus-4-6"
USED = {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 200}
TOKENS = Tokens(input=1000, output=100, cache_read=500, cache_write=200)
COST = (1000 * 5.0 + 100 * 25.0 + 500 * 0.5 + 200 * 6.25) / 1_000_000
CALL = b'{"model": "claude-opus-4-6"}'
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(value: object) -> bytes:
    data = b"event: x\ndata: %b\n\n" % json.dumps(value).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def request_id(header: bytes | None) -> str:
    assert header is not None
    return header.decode()


async def test_each_answer_has_an_id_under_which_tokens_and_cost_can_be_read() -> None:
    body = json.dumps({"content": [], "usage": USED}).encode()
    async with (
        RawUpstream(answering(ok(body))) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(CALL))
        first = await client.read_message()
        client.send(post(CALL))
        second = await client.read_message()
        await until(lambda: harness.in_flight == 0)
        books = harness.gateway.calls
        found = [books.request(request_id(each.header(b"x-paceline-request-id"))) for each in (first, second)]

    assert found[0] is not None
    assert found[1] is not None
    assert found[0].id != found[1].id
    assert found[0] == GatewayRequest(
        id=found[0].id,
        scope=SCOPE,
        account="work",
        key=None,
        model=MODEL,
        reason=None,
        retry_at=None,
        waited_seconds=0.0,
        first_byte_seconds=found[0].first_byte_seconds,
        seconds=found[0].seconds,
        began_at=found[0].began_at,
        status=200,
        tokens=TOKENS,
        cost=Cost(billed=COST),
    )
    assert found[0].first_byte_seconds is not None
    assert 0.0 <= found[0].first_byte_seconds <= found[0].seconds  # rounded, so a fast call took no time
    assert books.counts() == GatewayCounts(per_minute=2)
    directions = {direction: count for (_, direction), count in harness.metrics.tokens.values.items()}
    assert directions == {"input": 2000, "output": 200, "cache_read": 1000, "cache_write": 400}


async def test_waiting_requests_are_listed_with_their_reason_and_next_check() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock, limits={"anthropic/work": 1})
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
        await connect(harness.port) as other,
    ):
        books = harness.gateway.calls
        slot = await limiter.acquire(SCOPE)
        client.send(post(CALL))
        await until(lambda: books.counts().waiting == 1)
        await clock.advance(10.0)
        other.send(post(CALL))
        await until(lambda: books.counts().waiting == 2)
        limiter.report_rate_limit(SCOPE, retry_after=30.0)
        slot.release()
        listed, counts, scopes = books.requests(10), books.counts(), books.activity().waiting_by_scope
        await clock.advance(30.0)
        waited = (await client.read_message()).header(b"x-paceline-waited-ms")
        await other.read_message()
        await until(lambda: harness.in_flight == 0)
        after = books.requests(10)

    shown = [(each.reason, each.retry_at, each.waited_seconds, each.status, each.scope) for each in listed.waiting]
    assert shown == [("paused", START + 40.0, 10.0, None, SCOPE), ("paused", START + 40.0, 0.0, None, SCOPE)]
    assert (listed.running, listed.recent, scopes) == ([], [], {SCOPE: 2})
    assert counts == GatewayCounts(waiting=2, per_minute=2)
    assert (after.running, after.waiting, waited) == ([], [], b"40000")
    assert [(each.status, each.reason, each.waited_seconds) for each in after.recent][-1] == (200, None, 40.0)


async def test_a_wait_that_runs_out_is_a_refusal_with_its_reason() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock, limits={"anthropic/work": 1})
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        books = harness.gateway.calls
        await limiter.acquire(SCOPE)
        client.send(post(CALL, b"x-paceline-max-wait: 5"))
        await until(lambda: books.counts().waiting == 1)
        await clock.advance(5.0)
        await client.read_message()
        (listed,) = books.requests(10).recent

    assert (listed.status, listed.reason, listed.waited_seconds, listed.tokens) == (429, "limit", 5.0, None)
    assert books.counts() == GatewayCounts(per_minute=1, refused_per_minute=1)
    assert books.unsaved() == []


async def test_refusals_of_the_provider_are_counted_also_when_they_are_waited_out() -> None:
    clock = VirtualClock(START)
    answers = [b"HTTP/1.1 429 No\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n", ok()]

    async def refuse_once(wire: Wire) -> None:
        while answers:
            await wire.read_message()
            wire.send(answers.pop(0))

    async with (
        RawUpstream(refuse_once) as upstream,
        GatewayHarness(account(upstream.url), clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        books = harness.gateway.calls
        client.send(post(CALL))
        await until(lambda: books.counts().waiting == 1)
        refused = books.counts()
        await clock.advance(6.0)
        got = await client.read_message()

    assert got.status == 200
    assert refused == GatewayCounts(waiting=1, per_minute=1, refused_per_minute=1)


async def test_the_first_streams_that_their_clients_leave_count_the_text_that_had_come() -> None:
    """This provider writes 30 tokens with each event. No whole stream has shown that."""
    begin = event({"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}})
    delta = event({"type": "content_block_delta", "delta": {"text": 30 * "word"}})

    async def stream(wire: Wire) -> None:
        await wire.read_message()
        wire.send(STREAM_HEAD + begin + 4 * delta)
        await wire.reader.read()

    async with (
        RawUpstream(stream) as upstream,
        GatewayHarness(account(upstream.url), spend=SpendLedger(price_list({}))) as harness,
    ):
        for _ in range(3):
            async with await connect(harness.port) as client:
                client.send(post(CALL))
                for _ in range(4):
                    await client.reader.readuntil(30 * b"word")
                client.reset()
                await until(lambda: harness.in_flight == 0 and not harness.gateway.calls.requests(0).running)
        listed = harness.gateway.calls.requests(10).recent

    assert [each.tokens for each in listed] == 3 * [Tokens(input=30, output=120)]


async def test_what_whole_streams_of_a_model_used_beyond_their_text_counts_for_those_that_are_left() -> None:
    """One model thinks without a word: 300 tokens, 25 of them in its text. The other one writes all of them."""
    begin = event({"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}})
    delta = event({"type": "content_block_delta", "delta": {"text": "some words"}})
    end = event({"type": "message_delta", "usage": {"output_tokens": 300}}) + b"0\r\n\r\n"
    answers = [begin + 10 * delta + end, begin + 4 * delta, begin + 4 * delta]
    other = CALL.replace(b"opus", b"sonnet")

    async def stream(wire: Wire) -> None:
        while answers:
            await wire.read_message()
            wire.send(STREAM_HEAD + answers.pop(0))
        await wire.reader.read()

    async with (
        RawUpstream(stream) as upstream,
        GatewayHarness(account(upstream.url), spend=SpendLedger(price_list({}))) as harness,
    ):
        async with await connect(harness.port) as client:
            client.send(post(CALL))
            await client.read_message()
        for model in (CALL, other):
            async with await connect(harness.port) as client:
                client.send(post(model))
                for _ in range(4):
                    await client.reader.readuntil(b"some words")
                client.reset()
                await until(lambda: harness.in_flight == 0 and not harness.gateway.calls.requests(0).running)
        listed = harness.gateway.calls.requests(10).recent

    of_other, left, whole = (each.tokens for each in listed)
    thinking = round(10 * (0.9 + 300) / (0.9 + 25))
    expected = Tokens(input=30, output=10), Tokens(input=30, output=thinking), Tokens(input=30, output=300)
    assert (of_other, left, whole) == expected


@pytest.mark.parametrize("is_left", [True, False])
async def test_a_stream_that_ends_early_is_counted_as_far_as_it_came(is_left: bool) -> None:
    usage = {"input_tokens": 30, "cache_read_input_tokens": 7, "output_tokens": 1}
    deltas = [event({"type": "content_block_delta", "delta": {"text": "a"}})] * 4

    async def begin(wire: Wire) -> None:
        await wire.read_message()
        wire.send(STREAM_HEAD + event({"type": "message_start", "message": {"usage": usage}}) + b"".join(deltas))
        if is_left:
            await wire.reader.read()
        else:
            await wire.writer.drain()
            wire.close()

    prices = price_list({MODEL: Price(input=1.0, output=10.0, cache_read=0.0)})
    async with (
        RawUpstream(begin) as upstream,
        GatewayHarness(account(upstream.url), spend=SpendLedger(prices)) as harness,
        await connect(harness.port) as client,
    ):
        books = harness.gateway.calls
        client.send(post(CALL))
        head = await client.read_head()
        found = request_id(head.header(b"x-paceline-request-id"))
        if is_left:
            running = books.requests(10).running
            assert [(each.id, each.status, each.tokens) for each in running] == [(found, 200, None)]
            await client.reader.readuntil(b"content_block_delta")
            client.reset()
        await until(lambda: harness.in_flight == 0 and not books.requests(0).running)

        listed, (row,) = books.request(found), books.unsaved()

    assert listed is not None
    assert (listed.status, listed.tokens) == (200, Tokens(input=30, output=5, cache_read=7))
    assert listed.cost == Cost(billed=80 / 1_000_000)
    assert (row.requests, row.tokens, row.billed, row.estimated) == (1, listed.tokens, 80 / 1_000_000, 1)


async def test_strangers_leave_no_trace_in_the_log() -> None:
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\n\r\n")
        got = await client.read_message()
        books = harness.gateway.calls

        assert (got.status, request_id(got.header(b"x-paceline-request-id"))[:4]) == (401, "req-")
        assert books.requests(10) == GatewayRequests(running=[], waiting=[], recent=[])
        assert books.counts() == GatewayCounts()


async def test_a_call_that_takes_no_slot_costs_nothing() -> None:
    async with (
        RawUpstream(answering(ok(b'{"data": []}'))) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(b"", path=b"/gateway/work/v1/models").replace(b"POST", b"GET", 1))
        got = await client.read_message()
        books = harness.gateway.calls
        (listed,) = books.requests(10).recent

    assert (got.status, listed.status, listed.scope, listed.tokens) == (200, 200, "anthropic/work", None)
    assert books.unsaved() == []


async def test_a_client_that_sends_ten_thousand_characters_as_a_model_fills_no_memory() -> None:
    async with (
        RawUpstream(answering(ok(b"{}"))) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(json.dumps({"model": "m" * 5000}).encode()))
        await client.read_message()
        (listed,) = harness.gateway.calls.requests(10).recent

    assert len(listed.model or "") == 100


async def test_retry_after_is_how_long_the_queue_takes_at_its_speed() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock, limits={"anthropic/work": 1})
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
        await connect(harness.port) as first,
    ):
        books = harness.gateway.calls
        for _ in range(5):
            client.send(post(CALL))
            assert (await client.read_message()).status == 200
            await until(lambda: harness.in_flight == 0)
            await clock.advance(8.0)
        await limiter.acquire(SCOPE)
        first.send(post(CALL))
        await until(lambda: books.counts().waiting == 1)
        client.send(post(CALL, b"x-paceline-max-wait: 0"))
        refused = await client.read_message()

    assert (refused.status, refused.header(b"retry-after")) == (429, b"16")  # the second in line, one call in 8 s
