"""Connections that end at every byte of a request and of a response, and at every stage. No slot is left."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, until
from tests.gateway.raw_http import GET_API, Message, RawUpstream, Wire, answering, connect, ok, post

from paceline import Limiter
from paceline.gateway import Timeouts
from paceline.gateway.http_heads import CONTINUE

REQUEST = post(b'{"model": "claude-opus-4-6", "n": 1}', b"X-A: b")
CHUNKED_REQUEST = (
    b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n11\r\n{\"model\": \"opus\"}\r\n1\r\n \r\n0\r\n\r\n"
)  # fmt: skip
BODY = b'{"usage": {"input_tokens": 3}}'
ANSWERS = {
    "length": ok(BODY),
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1e\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % BODY,
    "refused": b"HTTP/1.1 401 No\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
}
ENDINGS: dict[str, Callable[[Wire], None]] = {"close": Wire.close, "reset": Wire.reset}


def is_quiet(harness: GatewayHarness) -> bool:
    return harness.in_flight == 0 and not harness.gateway.live


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("request_bytes", [REQUEST, CHUNKED_REQUEST], ids=["length", "chunks"])
async def test_a_client_that_leaves_after_any_byte_of_its_request_leaves_nothing_behind(
    request_bytes: bytes, ending: str
) -> None:
    whole: list[Message] = []

    async def handle(wire: Wire) -> None:
        while True:
            request = await wire.read_message()
            if request.is_whole:
                whole.append(request)
                wire.send(ok())

    async with RawUpstream(handle) as upstream, GatewayHarness(account(upstream.url)) as harness:
        for cut in range(len(request_bytes)):
            client = await connect(harness.port)
            client.send(request_bytes[:cut])
            await client.writer.drain()
            ENDINGS[ending](client)
            await until(lambda: is_quiet(harness))
        await until(lambda: not harness.gateway.connections and is_quiet(harness))

    assert whole == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_upstream_that_leaves_after_any_byte_of_its_response_is_never_taken_for_complete(
    answer: str, ending: str
) -> None:
    cut = 0
    answer_bytes = ANSWERS[answer]
    head_size = answer_bytes.index(b"\r\n\r\n") + 4

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(answer_bytes[:cut])
        await wire.writer.drain()
        ENDINGS[ending](wire)

    async with RawUpstream(handle) as upstream, GatewayHarness(account(upstream.url)) as harness:
        for cut in range(len(answer_bytes)):
            async with await connect(harness.port) as client:
                client.send(REQUEST)
                try:
                    got = await client.read_message()
                except (asyncio.IncompleteReadError, ConnectionError):
                    got = Message(first_line=b"", headers=[], is_whole=False)  # as good as no answer
                assert not got.is_whole or (cut < head_size and got.status == 502), (cut, got)
            await until(lambda: is_quiet(harness))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_client_that_leaves_after_any_byte_of_the_response_ends_the_upstream_call(
    answer: str, ending: str
) -> None:
    cut = answered = hung_up = 0
    answer_bytes = ANSWERS[answer]

    async def handle(wire: Wire) -> None:
        nonlocal answered, hung_up
        await wire.read_message()
        wire.send(answer_bytes[:cut])
        answered += 1
        assert await wire.until_closed() == b""
        hung_up += 1

    async with RawUpstream(handle) as upstream, GatewayHarness(account(upstream.url)) as harness:
        for cut in range(len(answer_bytes)):  # noqa: B007 - the upstream uses it
            client = await connect(harness.port)
            client.send(REQUEST)
            await until(lambda: answered == hung_up + 1)
            ENDINGS[ending](client)
            await until(lambda: answered == hung_up and is_quiet(harness))


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_client_that_leaves_the_queue_is_removed_at_once(ending: str) -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
    ):
        slot = await limiter.acquire("anthropic/work/opus-4-6")
        clients = [await connect(harness.port) for _ in range(3)]
        for client in clients:
            client.send(REQUEST)
        await until(lambda: queued(limiter) == 3)
        ENDINGS[ending](clients[1])
        await until(lambda: queued(limiter) == 2)
        slot.release()
        answers = [await client.read_message() for client in (clients[0], clients[2])]

        for client in (clients[0], clients[2]):
            client.close()
        assert [got.status for got in answers] == [200, 200]
        assert (queued(limiter), harness.in_flight, upstream.connections) == (0, 0, 1)


@pytest.mark.parametrize(("size", "ending"), [(100_000, "close"), (100_000, "reset"), (30_000_000, "reset")])
async def test_a_client_that_leaves_the_queue_while_its_body_is_not_read_is_noticed(size: int, ending: str) -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    big = b'{"model": "claude-opus-4-6", "x": "' + b"x" * size
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
    ):
        slot = await limiter.acquire("anthropic/work/opus-4-6")
        client = await connect(harness.port)
        client.send(post(big))
        await until(lambda: queued(limiter) == 1)
        ENDINGS[ending](client)
        await until(lambda: queued(limiter) == 0)
        slot.release()

        assert (harness.in_flight, upstream.connections) == (0, 0)


async def test_a_client_that_leaves_while_the_upstream_is_being_connected_leaves_no_connection() -> None:
    """The upstream accepts nothing: the connection stays half open until the client leaves."""
    async with RawUpstream(answering(ok())) as upstream, GatewayHarness(account(upstream.url)) as harness:
        for _ in range(20):
            client = await connect(harness.port)
            client.send(REQUEST)
            await client.writer.drain()
            client.reset()
        await until(lambda: not harness.gateway.connections and is_quiet(harness))


# -- clients that close only their sending side ----------------------------------------------------


async def test_a_client_that_sends_no_more_is_served_after_its_wait_and_then_disconnected() -> None:
    limiter, never = Limiter(limits={"anthropic/work": 1}), Timeouts(check_interval=3600.0)  # it is not idle: it ends
    async with (
        RawUpstream(answering(ok(BODY))) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, timeouts=never) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire("anthropic/work/opus-4-6")
        client.send(REQUEST)
        client.writer.write_eof()
        probe = await client.reader.readuntil(b"\r\n\r\n")
        slot.release()
        got = await client.read_message()
        rest = await client.until_closed()
        await until(lambda: not harness.gateway.connections and is_quiet(harness))

    assert (probe, got.status, got.body, rest) == (CONTINUE, 200, BODY, b"")


async def test_a_stream_of_a_client_that_sends_no_more_is_kept_alive_and_served() -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: 1\n\n"
    async with (
        RawUpstream(answering(stream)) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire("anthropic/work/opus-4-6")
        client.send(post(b'{"model": "claude-opus-4-6", "stream": true}', b"X-Paceline-Keepalive: 0.1"))
        await client.reader.readuntil(b"paceline: waiting (")
        client.writer.write_eof()
        await client.reader.readuntil(b": paceline: waiting\n\n")
        slot.release()
        rest = await client.until_closed()

    assert rest.endswith(b"data: 1\n\n\r\n0\r\n\r\n")


async def test_a_client_that_sends_no_more_behind_a_body_that_is_not_read_is_served() -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    seen: list[Message] = []
    body = b'{"model": "claude-opus-4-6", "x": "' + b"x" * 100_000 + b'"}'
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter, timeouts=Timeouts(check_interval=0.02)) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire("anthropic/work/opus-4-6")
        client.send(post(body))
        client.writer.write_eof()
        await client.reader.readuntil(b"\r\n\r\n")
        slot.release()
        got = await client.read_message()
        rest = await client.until_closed()

    assert (got.status, [each.body == body for each in seen], rest) == (200, [True], b"")


async def test_requests_sent_all_at_once_before_the_end_are_all_answered() -> None:
    hold = asyncio.Event()

    async def handle(wire: Wire) -> None:
        while True:
            await wire.read_message()
            await hold.wait()
            wire.send(ok(BODY))

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(REQUEST + GET_API + REQUEST)
        client.writer.write_eof()
        hold.set()
        answers = [(await client.read_message()).body for _ in range(3)]
        rest = await client.until_closed()

    assert (answers, rest) == ([BODY, b"app GET /api ", BODY], b"")


@pytest.mark.parametrize("leaves", [False, True])
async def test_the_api_serves_a_client_that_sends_no_more_and_notices_one_that_left(leaves: bool) -> None:
    ready, ended = asyncio.Event(), list[str]()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        left, go_on = asyncio.ensure_future(receive()), asyncio.ensure_future(ready.wait())
        await asyncio.wait({left, go_on}, return_when=asyncio.FIRST_COMPLETED)
        ended.append((await left)["type"] if left.done() else message["type"])
        left.cancel()
        go_on.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    async with (
        GatewayHarness(account("http://127.0.0.1:9"), beside=slow) as harness,
        await connect(harness.port) as client,
    ):
        client.send(GET_API)
        if leaves:
            await until(lambda: bool(harness.gateway.connections))
            client.close()
            await until(lambda: bool(ended))
        else:
            client.writer.write_eof()
            await client.reader.readuntil(b"\r\n\r\n")
            ready.set()
            assert (await client.read_message()).body == b"done"
        assert await client.until_closed() == b""
        await until(lambda: not harness.gateway.connections)

    assert ended == ["http.disconnect" if leaves else "http.request"]


def queued(limiter: Limiter) -> int:
    status = limiter.scope_status("anthropic/work/opus-4-6")
    return 0 if status is None else status.queued
