"""Upstreams that are slow, flood the gateway or do not speak HTTP, and connections that are reused or closed."""

import asyncio

import pytest
from tests.gateway.gateway_harness import QUICK_TIMEOUTS, GatewayHarness, account, until
from tests.gateway.raw_http import GET_API, RawUpstream, Wire, answering, connect, ok, post

LONG = b"x" * 70_000


@pytest.mark.parametrize("in_one_read", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX-A: %b\r\nContent-Length: 2\r\n\r\n{}" % LONG,
        b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\n{}" % (b"X-A: b\r\n" * 20_000),
        b"HTTP/1.1 200 %b\r\n" % LONG,
        b"HTTP/1.1 103 Early\r\nX-A: b\r\n\r\n" * 4_000,
    ],
    ids=["one header", "many headers", "status line", "informational"],
)
async def test_a_response_head_without_end_is_a_502(answer: bytes, in_one_read: bool) -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        step = len(answer) if in_one_read else 1_000
        for begin in range(0, len(answer), step):
            wire.send(answer[begin : begin + step])
            await wire.writer.drain()
        await wire.until_closed()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.body[:24]) == (502, b'{"type":"error","error":')
    assert b"the headers of its response have more than 64 KiB" in got.body


async def test_trailers_without_end_cut_the_response_off() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"X-T: 1\r\n" * 20_000 + b"\r\n"
    async with (
        RawUpstream(answering(answer)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.body, got.is_whole) == (200, b"{}", False)


async def test_an_upstream_that_never_responds_is_a_504() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        assert await wire.reader.read() == b""

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url), timeouts=QUICK_TIMEOUTS) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert got.status == 504
    assert (
        b'"type":"timeout_error","message":"the upstream sent no usable response: no response within 0.2 s' in got.body
    )


async def test_an_upstream_that_stops_in_the_middle_is_cut_off() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await wire.reader.read()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url), timeouts=QUICK_TIMEOUTS) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.body, got.is_whole) == (200, b"half", False)


async def test_a_client_that_does_not_read_its_response_is_cut_off() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            wire.send(b"x" * 65536)
            await wire.writer.drain()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url), timeouts=QUICK_TIMEOUTS) as harness,
        await connect(harness.port, receive_buffer=4096) as client,
    ):
        client.send(post())
        await until(lambda: harness.in_flight == 1)
        await until(lambda: harness.in_flight == 0)


async def test_idle_upstream_connections_are_closed() -> None:
    closed = asyncio.Event()

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(ok())
        await wire.until_closed()
        closed.set()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url), timeouts=QUICK_TIMEOUTS) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        await client.read_message()
        async with asyncio.timeout(60.0):
            await closed.wait()


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nxx",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    ],
)
async def test_a_response_that_is_not_http_is_a_502(answer: bytes) -> None:
    async with (
        RawUpstream(answering(answer)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()

        assert (got.status, harness.in_flight) == (502, 0)


async def test_bytes_after_the_end_of_a_response_are_never_forwarded() -> None:
    async with (
        RawUpstream(answering(ok(b"[]") + ok(b'"not yours"'))) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        for _ in range(3):
            client.send(post())
            got = await client.read_message()
            assert (got.status, got.body) == (200, b"[]")

    assert upstream.connections == 3


async def test_a_response_before_the_body_was_sent_is_forwarded_and_the_rest_is_dropped() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_head()
        wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await wire.reader.read()

    body = b'{"model": "opus", "x": "' + b"x" * 2_000_000 + b'"}'
    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        request = post(body)
        client.send(request[:1000])
        got = await client.read_message()
        client.send(request[1000:])
        client.send(GET_API)
        after = await client.read_message()

    assert (got.status, after.body) == (413, b"app GET /api ")
