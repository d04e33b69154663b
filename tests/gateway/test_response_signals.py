"""Signals in responses: budgets before a refusal, refusals, tokens, in compressed responses too."""

import gzip
import json
import random
import zlib
from collections.abc import Callable

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, until
from tests.gateway.raw_http import RawUpstream, Wire, answering, connect, ok, post

from paceline import Limiter
from paceline.core.signals import QuotaClosed
from paceline.testing import VirtualClock

START = 1_700_000_000.0
SCOPE = "anthropic/work/opus-4-6"
USED = json.dumps({"content": ["x" * 5000], "usage": {"input_tokens": 30, "output_tokens": 12}}).encode()
EVENTS = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":30}}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":12}}\n\n'
)
BROKEN_BODY = b"HTTP/1.1 429 No\r\nRetry-After: 50\r\nContent-Length: 99\r\n\r\n{"
BROKEN_CHUNKS = b"HTTP/1.1 429 No\r\nRetry-After: 50\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"
IN_AND_OUT = {"input": 30, "output": 12}
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def chunked(body: bytes, kind: bytes, *headers: bytes) -> bytes:
    """Return a response in chunks of a few bytes."""
    lines = b"".join(b"%b\r\n" % line for line in headers)
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (body[at : at + 50] for at in range(0, len(body), 50))
    )
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (
        kind,
        lines,
        chunks,
    )


async def tokens_of(answer: bytes) -> dict[str, int]:
    """Return the tokens in the metrics, by direction, after one call with this response."""
    async with (
        RawUpstream(answering(answer)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)
        assert got.is_whole
        assert {scope for scope, _ in harness.metrics.tokens.values} <= {SCOPE}
        return {direction: count for (_, direction), count in harness.metrics.tokens.values.items()}


@pytest.mark.parametrize(
    "answer", [ok(USED), chunked(USED, b"application/json"), chunked(EVENTS, b"text/event-stream; charset=utf-8")]
)
async def test_the_tokens_of_a_response_are_counted(answer: bytes) -> None:
    assert await tokens_of(answer) == IN_AND_OUT


@pytest.mark.parametrize("coding", PACKERS)
async def test_the_tokens_of_a_compressed_response_are_counted_too(coding: str) -> None:
    packed, header = PACKERS[coding], b"Content-Encoding: " + coding.encode()

    assert await tokens_of(ok(packed(USED), header)) == IN_AND_OUT
    assert await tokens_of(chunked(packed(EVENTS), b"text/event-stream", header)) == IN_AND_OUT


async def test_the_tokens_of_a_response_in_an_unknown_coding_are_estimated_by_its_bytes() -> None:
    assert await tokens_of(ok(b"\x1b\x2a\x00", b"Content-Encoding: br")) == {"input": 7, "output": 3}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
async def test_the_tokens_behind_a_first_member_or_a_long_piece_are_counted(pack: Callable[[bytes], bytes]) -> None:
    gz = b"Content-Encoding: gzip"
    members = b"".join(pack(line) for line in EVENTS.splitlines(keepends=True))
    long = b'{"content": "%b", %b' % (b"x" * (3 * 4 * 2**20), USED[1:])

    assert await tokens_of(chunked(members + bytes(100), b"text/event-stream", gz)) == IN_AND_OUT
    assert await tokens_of(ok(pack(long[:40]) + pack(long[40:]), gz)) == IN_AND_OUT


async def test_what_does_not_decompress_is_estimated_by_its_bytes() -> None:
    gz, packed = b"Content-Encoding: gzip", gzip.compress(EVENTS)
    text = random.Random(1).randbytes(2000).hex()
    cut = gzip.compress(json.dumps({"content": text}).encode())[:-8]

    assert await tokens_of(ok(b"?" * 200, gz)) == {"input": 7, "output": 200}
    assert await tokens_of(ok(b"?" * 200, b"Content-Encoding: deflate")) == {"input": 7, "output": 200}
    assert await tokens_of(ok(b"?" * 200, b"Content-Encoding: gzip, br")) == {"input": 7, "output": 200}
    assert await tokens_of(ok(cut, gz)) == {"input": 7, "output": (len(text) + 15) // 4}
    assert await tokens_of(chunked(packed[:-8], b"text/event-stream", gz)) == IN_AND_OUT
    assert await tokens_of(chunked(packed + b"?" * 20, b"text/event-stream", gz)) == {"input": 30, "output": 12 + 20}


async def test_a_body_without_usage_is_unknown_and_no_error() -> None:
    assert await tokens_of(ok()) == {}


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_refusal_is_understood_by_its_words_compressed_or_not(is_packed: bool) -> None:
    body = json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}
    )
    sent = gzip.compress(body.encode()) if is_packed else body.encode()
    coding = b"Content-Encoding: gzip\r\n" if is_packed else b""
    answer = b"HTTP/1.1 400 Bad Request\r\n%bContent-Length: %d\r\n\r\n%b" % (coding, len(sent), sent)
    async with (
        RawUpstream(answering(answer)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        client.send(post())
        held = await client.read_message()

    assert (got.status, got.body, held.status) == (400, sent, 403)


async def test_a_budget_in_the_headers_delays_the_next_request_before_a_429_comes() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock)
    headers = (
        b"anthropic-ratelimit-requests-remaining: 0",
        b"anthropic-ratelimit-requests-reset: 2023-11-14T22:13:50Z",  # in half a minute
    )
    async with (
        RawUpstream(answering(ok(b"{}", *headers))) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        await client.read_message()
        client.send(post())
        await until(lambda: _queued(limiter) == 1)
        await clock.advance(29.0)
        assert _queued(limiter) == 1
        await clock.advance(2.0)
        got = await client.read_message()

    assert (got.status, int(got.header(b"x-paceline-waited-ms") or 0) // 1000) == (200, 30)


async def test_an_error_inside_a_stream_is_reported() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock)
    events = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    async with (
        RawUpstream(answering(chunked(events, b"text/event-stream"))) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)
        paused = [status.scope for status in limiter.statuses() if status.paused]

    assert (got.status, got.body) == (200, events)
    assert paused == ["anthropic"]  # the trouble is the provider's own


@pytest.mark.parametrize("answered", [BROKEN_BODY, BROKEN_CHUNKS])
async def test_a_refusal_whose_body_breaks_off_is_reported(answered: bytes) -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock)

    async def break_off(wire: Wire) -> None:
        await wire.read_message()
        wire.send(answered)
        await wire.writer.drain()
        wire.close()

    async with (
        RawUpstream(break_off) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    status = limiter.scope_status(SCOPE)
    assert status is not None
    assert (got.status, status.paused_until) == (502, START + 50.0)


def _queued(limiter: Limiter) -> int:
    status = limiter.scope_status(SCOPE)
    return 0 if status is None else status.queued


async def test_a_canary_reopens_the_window_with_the_head_of_its_response() -> None:
    clock = VirtualClock(START)
    limiter = Limiter(clock=clock)
    limiter.report("anthropic/work", QuotaClosed(resets_at=START + 60.0, window="5h"))
    await clock.advance(63.0)

    async def begin(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await wire.reader.read()  # until the test is over

    def windows() -> list[str]:
        status = limiter.scope_status("anthropic/work")
        assert status is not None
        return [window.state for window in status.windows]

    async with (
        RawUpstream(begin) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, clock=clock) as harness,
        await connect(harness.port) as client,
    ):
        assert windows() == ["closed"]
        client.send(post())
        await client.read_head()

        assert (harness.in_flight, windows()) == (1, ["wave"])
