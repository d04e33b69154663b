"""Signs of life while a stream waits for a slot: only on request, and never at the cost of an error's shape."""

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest
from tests.gateway.gateway_harness import TOKEN, GatewayHarness, account, until
from tests.gateway.raw_http import RawUpstream, Wire, answering, connect, ok, post

from paceline import Limiter
from paceline.gateway.client_response import ClientResponse
from paceline.gateway.upstream_pool import ResponseHead
from paceline.testing import FakeProvider, VirtualClock

START = 1_700_000_000.0
SCOPE = "anthropic/work/opus-4-6"
STREAM = b'{"model": "claude-opus-4-6", "stream": true}'
OFTEN = b"x-paceline-keepalive: 0.1"
EVENTS = b'event: message_start\ndata: {"type":"message_start"}\n\n'
COMMENT = b": paceline: waiting (limit)\n\n"
STREAMED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Of-Upstream: 1\r\nContent-Length: %d\r\n\r\n%b" % (
    len(EVENTS),
    EVENTS,
)


def full_limiter(clock: VirtualClock) -> Limiter:
    return Limiter(clock=clock, limits={"anthropic/work": 1})


async def test_a_stream_that_waits_gets_comments_and_then_its_events() -> None:
    clock = VirtualClock(START)
    limiter = full_limiter(clock)
    seen: list[bytes] = []

    async def answer(wire: Wire) -> None:
        request = await wire.read_message()
        seen.append(request.header(b"accept-encoding") or b"none")
        wire.send(STREAMED)

    async with (
        RawUpstream(answer) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire(SCOPE)
        client.send(post(STREAM, OFTEN, b"Accept-Encoding: gzip"))
        early = await client.reader.readuntil(COMMENT)
        slot.release()
        rest = await client.reader.readuntil(b"0\r\n\r\n")

    assert early.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
    assert b"x-paceline-request-id: req-" in early
    assert b"x-paceline-scope: anthropic/work/opus-4-6\r\n" in early
    assert EVENTS in rest
    assert b"X-Of-Upstream" not in rest
    assert seen == [b"none"]


@pytest.mark.parametrize(
    ("path", "event"),
    [
        (b"/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error"'),
        (b"/v1/chat/completions", b'data: {"error":{"message":"no slot within'),
    ],
)
async def test_a_wait_that_runs_out_ends_as_an_error_event_in_the_providers_shape(path: bytes, event: bytes) -> None:
    clock = VirtualClock(START)
    limiter = full_limiter(clock)
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        await limiter.acquire(SCOPE)
        client.send(post(STREAM, OFTEN, b"x-paceline-max-wait: 60", path=b"/gateway/work" + path))
        await client.reader.readuntil(COMMENT)
        await clock.advance(60.0)
        rest = await client.reader.readuntil(b"0\r\n\r\n")
        (listed,) = harness.gateway.calls.requests(1).recent

    assert event in rest
    assert (listed.status, listed.reason) == (429, "limit")


async def test_a_refusal_by_the_provider_after_comments_is_an_error_event_too() -> None:
    clock = VirtualClock(START)
    limiter = full_limiter(clock)
    body = b'{\n "type": "error",\n "error": {"type": "invalid_request_error", "message": "no  such"}\n}'
    refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    async with (
        RawUpstream(answering(refusal)) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire(SCOPE)
        client.send(post(STREAM, OFTEN))
        await client.reader.readuntil(COMMENT)
        slot.release()
        rest = await client.reader.readuntil(b"0\r\n\r\n")

    _, _, event = rest.partition(b"event: error\ndata: ")
    assert json.loads(event.partition(b"\n\n")[0]) == json.loads(body)


@pytest.mark.parametrize(
    ("body", "headers"),
    [(STREAM, ()), (b'{"model": "claude-opus-4-6"}', (OFTEN,)), (b'{"model": "m", "stream": false}', (OFTEN,))],
)
async def test_without_the_header_or_a_stream_nothing_is_sent_early(body: bytes, headers: tuple[bytes, ...]) -> None:
    clock = VirtualClock(START)
    limiter = full_limiter(clock)
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
        await connect(harness.port) as other,
    ):
        slot = await limiter.acquire(SCOPE)
        client.send(post(body, *headers))
        await until(lambda: harness.gateway.calls.counts().waiting == 1)
        other.send(post(STREAM, OFTEN))
        await other.reader.readuntil(COMMENT)  # as long as it takes until another one has had its comment
        slot.release()
        got = await client.read_message()

    assert (got.status, got.header(b"content-type")) == (200, b"application/json")


async def test_a_stream_that_need_not_wait_is_as_ever() -> None:
    async with (
        RawUpstream(answering(STREAMED)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(STREAM, OFTEN))
        got = await client.read_message()

    assert (got.body, got.header(b"x-of-upstream")) == (EVENTS, b"1")


@pytest.mark.parametrize("value", [b"0", b"301", b"often", b"nan"])
async def test_a_keepalive_that_is_no_time_is_refused(value: bytes) -> None:
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(STREAM, b"x-paceline-keepalive: " + value))
        got = await client.read_message()

    assert (got.status, b"x-paceline-keepalive must be a number of seconds from 0.1 to 300" in got.body) == (400, True)


async def test_the_sdks_skip_the_comments_and_raise_the_error() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock, limits={"anthropic/work": 1, "openai/oai": 1})
    headers = {OFTEN.split(b":")[0].decode(): "0.1", "x-paceline-max-wait": "60"}
    with FakeProvider() as provider:
        accounts = account(provider.url), account(provider.url, "oai", "openai")
        async with GatewayHarness(*accounts, limiter=limiter, clock=clock) as harness:
            books = harness.gateway.calls
            await limiter.acquire("anthropic/work")
            await limiter.acquire("openai/oai")
            claude = anthropic.AsyncAnthropic(api_key=TOKEN, base_url=f"{harness.url}/gateway/work", max_retries=0)
            gpt = openai.AsyncOpenAI(api_key=TOKEN, base_url=f"{harness.url}/gateway/oai/v1", max_retries=0)
            said: Any = [{"role": "user", "content": "hi"}]
            first: Any = await claude.messages.create(
                model="claude-opus-4-6",
                max_tokens=9,
                messages=said,
                stream=True,
                extra_headers=headers,
            )
            second: Any = await gpt.chat.completions.create(
                model="gpt-5",
                messages=said,
                stream=True,
                extra_headers=headers,
            )
            await until(lambda: books.counts().waiting == 2)
            await clock.advance(60.0)
            with pytest.raises(anthropic.APIStatusError, match="no slot within 60 s"):
                async for _ in first:
                    pass
            with pytest.raises(openai.APIError, match="no slot within 60 s"):
                async for _ in second:
                    pass
            await claude.close()
            await gpt.close()


# -- Responses written to clients that may have left --


async def test_a_response_to_a_client_that_has_just_left_is_dropped() -> None:
    loop = asyncio.get_running_loop()
    left: list[Exception | None] = []

    class Client(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            left.append(exc)

    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        transport, _ = await loop.create_connection(Client, *server.sockets[0].getsockname())
        answer = ClientResponse(transport, is_for_head=False, is_old=False, keep_alive=True)
        transport.abort()
        await until(lambda: left == [None])
        answer.begin(ResponseHead(200, b"OK", [], []), b"")
        answer.write(b"too late")
        answer.flush()
        answer.end([])

    assert transport.is_closing()
