"""One port for the API and the gateway, mixed on one connection; clients that are slow, flood or send nonsense."""

import asyncio
import inspect
import re

import pytest
import uvicorn
from tests.gateway.gateway_harness import QUICK_TIMEOUTS, GatewayHarness, account, until
from tests.gateway.raw_http import GET_API, Message, RawUpstream, Wire, answering, connect, ok, post
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl

from paceline import Limiter
from paceline.gateway.server_protocol import ServerProtocol


async def slow_ok(wire: Wire) -> None:
    """Respond with the request's own body, one turn of the loop later."""
    while True:
        request = await wire.read_message()
        await asyncio.sleep(0)
        wire.send(ok(request.body))


async def test_the_api_and_the_gateway_take_turns_on_one_connection() -> None:
    async with (
        RawUpstream(slow_ok) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        bodies = []
        for number in range(3):
            for request in (GET_API, post(b'{"model": "opus", "n": %d}' % number)):
                client.send(request)
                bodies.append((await client.read_message()).body)

    assert bodies == [
        b"app GET /api ", b'{"model": "opus", "n": 0}',
        b"app GET /api ", b'{"model": "opus", "n": 1}',
        b"app GET /api ", b'{"model": "opus", "n": 2}',
    ]  # fmt: skip


async def test_requests_sent_all_at_once_are_answered_in_their_order() -> None:
    requests = [
        GET_API,
        post(b'{"model": "opus", "n": 0}'),
        post(b'{"model": "opus", "n": 1}'),
        b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
        GET_API,
        post(b'{"model": "opus", "n": 2}', key=b""),
        post(b'{"model": "opus", "n": 3}'),
    ]
    async with (
        RawUpstream(slow_ok) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(b"".join(requests))
        answers = [await client.read_message() for _ in requests]
        await until(lambda: harness.in_flight == 0)

    assert [got.status for got in answers] == [200, 200, 200, 200, 200, 401, 200]
    assert [got.body for got in answers if got.status == 200] == [
        b"app GET /api ",
        b'{"model": "opus", "n": 0}',
        b'{"model": "opus", "n": 1}',
        b"app POST /api body",
        b"app GET /api ",
        b'{"model": "opus", "n": 3}',
    ]


async def test_a_client_that_leaves_with_queued_requests_leaves_no_slot() -> None:
    hang = asyncio.Event()

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        await hang.wait()

    async with RawUpstream(handle) as upstream, GatewayHarness(account(upstream.url)) as harness:
        client = await connect(harness.port)
        client.send(post() * 5)
        await until(lambda: upstream.connections == 1)
        client.reset()
        await until(lambda: harness.in_flight == 0 and not harness.gateway.live)


async def test_a_connection_with_close_is_closed_after_its_response() -> None:
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(b'{"model": "opus"}', b"Connection: close"))
        got = await client.read_message()

        assert (got.status, got.header(b"connection")) == (200, b"close")
        assert await client.until_closed() == b""


@pytest.mark.parametrize("sent", [b"", b"POST /gate", b"POST /gateway/work/v1/messages HTTP/1.1\r\nX-A: b"])
async def test_a_client_that_never_finishes_its_head_is_disconnected(sent: bytes) -> None:
    async with (
        GatewayHarness(account("http://127.0.0.1:9"), timeouts=QUICK_TIMEOUTS) as harness,
        await connect(harness.port) as client,
    ):
        client.send(sent)
        said = await client.until_closed()
        await until(lambda: not harness.gateway.connections)

    assert said.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_drips_its_head_is_disconnected_all_the_same() -> None:
    async with (
        GatewayHarness(account("http://127.0.0.1:9")) as harness,
        await connect(harness.port) as client,
    ):
        client.send(b"GET /gateway/work HTTP/1.1\r\n")
        await until(lambda: bool(harness.gateway.connections))
        (connection,) = harness.gateway.connections
        assert isinstance(connection, ServerProtocol)
        began_at, limit = asyncio.get_running_loop().time(), harness.gateway.timeouts.head
        for seconds in range(int(limit)):
            seen = connection._head_bytes
            client.send(b"X-A: b\r\n")
            await until(lambda seen=seen: connection._head_bytes > seen)  # type: ignore[misc]
            connection.check_time(began_at + seconds)
            assert not connection.transport.is_closing()
        connection.check_time(began_at + limit + 1)
        received = await client.until_closed()

    assert received.startswith(b"HTTP/1.1 408 ")


async def test_connections_beyond_the_limit_are_aborted_and_accepted_later() -> None:
    async with GatewayHarness(account("http://127.0.0.1:9"), most_connections=2) as harness:
        async with await connect(harness.port) as first, await connect(harness.port) as second:
            for served in (first, second):
                served.send(GET_API)
                assert (await served.read_message()).status == 200
            async with await connect(harness.port) as third:
                assert await third.until_closed() == b""
        await until(lambda: not harness.gateway.connections)
        async with await connect(harness.port) as later:
            later.send(GET_API)
            assert (await later.read_message()).status == 200


@pytest.mark.parametrize("sent", [b"", b'{"model": "opus", '])
async def test_a_client_that_never_finishes_its_body_gets_a_408_and_is_disconnected(sent: bytes) -> None:
    request = post(b'{"model": "opus"}' + b" " * 100)
    head = request[: request.index(b"\r\n\r\n") + 4]
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url), timeouts=QUICK_TIMEOUTS) as harness,
        await connect(harness.port) as client,
    ):
        client.send(head + sent)
        got = await client.read_message()
        await client.until_closed()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.header(b"connection")) == (408, b"close")
    assert b"no more of the body came for 0.2 s" in got.body


async def test_a_client_whose_body_was_not_read_while_it_waited_does_not_time_out() -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    body = b'{"model": "opus", "x": "' + b"x" * 10_000_000 + b'"}'
    async with (
        RawUpstream(slow_ok) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire("anthropic/work/opus")
        client.send(post(body))
        await until(lambda: bool(harness.gateway.connections))
        (connection,) = harness.gateway.connections
        assert isinstance(connection, ServerProtocol)
        await until(lambda: connection.flow.read_paused)
        long_after = asyncio.get_running_loop().time() + 10 * harness.gateway.timeouts.body_idle
        for seconds in range(2):
            connection.check_time(long_after + seconds)
        slot.release()
        got = await client.read_message()

    assert (got.status, got.body == body) == (200, True)


async def test_an_idle_connection_is_closed_and_one_that_is_being_served_is_not() -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    async with (
        RawUpstream(slow_ok) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        first = await client.read_message()
        (connection,) = harness.gateway.connections
        assert isinstance(connection, ServerProtocol)
        later = asyncio.get_running_loop().time() + 1.5 * connection.timeout_keep_alive
        slot = await limiter.acquire("anthropic/work/opus")
        client.send(post())
        await until(lambda: harness.gateway.calls.counts().waiting == 1)
        connection.check_time(later)
        slot.release()
        second = await client.read_message()
        connection.check_time(later)

        assert (first.status, second.status, await client.until_closed()) == (200, 200, b"")


@pytest.mark.parametrize("ending", [b"\r\n", b""])
async def test_a_head_without_end_is_rejected(ending: bytes) -> None:
    async with GatewayHarness(account("http://127.0.0.1:9")) as harness, await connect(harness.port) as client:
        client.send(b"GET /gateway/work HTTP/1.1\r\nX-A: ")
        for _ in range(200):
            if not client.writer.transport.is_closing():
                client.send(b"x" * 1000 + (ending and ending + b"X-A: "))
            await asyncio.sleep(0)
        said = await client.until_closed()

    assert said == b"" or said.startswith(b"HTTP/1.1 431 ")


async def test_a_long_body_does_not_count_to_the_size_of_the_next_head() -> None:
    long = post(b"x" * 200_000, path=b"/gateway/work/v1/files")
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(long + post()[:20])
        first = await client.read_message()
        client.send(post()[20:])
        second = await client.read_message()

    assert [first.status, second.status] == [200, 200]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"POST /gateway/work HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /gateway/work HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /gateway/work HTTP/1.1\r\nX A: b\r\n\r\n",
        b"GET /gateway/work HTTP/1.1\r\nX-A: b\r\n folded\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_bytes_that_are_not_http_are_rejected(nonsense: bytes) -> None:
    async with GatewayHarness(account("http://127.0.0.1:9")) as harness, await connect(harness.port) as client:
        client.send(nonsense)
        said = await client.until_closed()
        await until(lambda: not harness.gateway.connections)

    assert said.startswith(b"HTTP/1.1 400 ")


async def test_a_body_that_stops_being_http_gets_an_error_in_the_providers_shape() -> None:
    head = b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(head + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"mod\r\n')
        await until(lambda: len(harness.gateway.live) == 1)
        client.send(b"nonsense\r\n")
        got = await client.read_message()
        await until(lambda: harness.in_flight == 0)

    assert (got.status, got.body[:24]) == (400, b'{"type":"error","error":')


async def test_a_body_that_stops_being_http_never_corrupts_a_response_that_has_begun() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await wire.reader.read()

    head = b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(head + b'Transfer-Encoding: chunked\r\n\r\n11\r\n{"model": "opus"}\r\n')
        answer = await client.read_head()
        assert await client.reader.readexactly(4) == b"half"
        client.send(b"nonsense\r\n")
        rest = await client.until_closed()
        await until(lambda: harness.in_flight == 0)

    assert (answer.status, rest) == (200, b"")


async def test_an_unknown_transfer_coding_is_rejected() -> None:
    head = b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(head + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        got = await client.read_message()

    assert (got.status, upstream.connections) == (400, 0)


@pytest.mark.parametrize("cut", [1, 60, 150, -5, None])
async def test_an_upgrade_is_ignored_and_the_request_is_served_without_it(cut: int | None) -> None:
    body = b'{"model": "opus", "n": 1}'
    h2c = post(body, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    seen: list[Message] = []
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(h2c[:cut])
        if cut is not None:
            await client.writer.drain()
            await asyncio.sleep(0)
            client.send(h2c[cut:])
        client.send(GET_API)
        answers = [await client.read_message(), await client.read_message()]

    assert [(got.status, got.body) for got in answers] == [(200, b"{}"), (200, b"app GET /api ")]
    assert [(request.body, request.header(b"upgrade"), request.header(b"http2-settings")) for request in seen] == [
        (body, None, None)
    ]


async def test_an_upgrade_is_ignored_by_the_api_too() -> None:
    asked = b"POST /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody"
    async with GatewayHarness(account("http://127.0.0.1:9")) as harness, await connect(harness.port) as client:
        client.send(asked + GET_API)
        bodies = [(await client.read_message()).body for _ in range(2)]

    assert bodies == [b"app POST /api body", b"app GET /api "]


@pytest.mark.parametrize(
    "asked",
    [
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
        b"CONNECT /gateway/work HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"TRACE /gateway/work/v1/models HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n\r\n",
    ],
)
async def test_connect_and_trace_are_not_allowed(asked: bytes) -> None:
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(asked)
        got = await client.read_message()

    assert (got.status, got.header(b"allow")) == (405, b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
    assert upstream.connections == 0


async def test_a_stopping_server_asks_its_clients_to_close() -> None:
    go_on = asyncio.Event()

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        await go_on.wait()
        wire.send(ok())
        await wire.reader.read()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        await until(lambda: harness.in_flight == 1)
        for connection in list(harness.gateway.connections):
            assert isinstance(connection, httptools_impl.HttpToolsProtocol)
            connection.shutdown()
        go_on.set()
        got = await client.read_message()

        assert (got.status, got.header(b"connection"), await client.until_closed()) == (200, b"close", b"")


def test_uvicorn_still_has_the_parts_that_the_protocol_relies_on() -> None:
    """After a failure, compare `server_protocol.py` and `exchange.py` with uvicorn's `httptools_impl.py`."""
    protocol = inspect.getsource(httptools_impl.HttpToolsProtocol)
    cycle_parts = set(re.findall(r"\bcycle\.(\w+)", protocol))

    assert cycle_parts == {
        "body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "run_asgi",
    }, uvicorn.__version__  # fmt: skip
    start = inspect.signature(httptools_impl.HttpToolsProtocol._start_asgi_task)
    assert list(start.parameters) == ["self", "cycle", "app"]
    assert "self.pipeline.appendleft((self.cycle, app))" in protocol
    assert "cycle, app = self.pipeline.pop()" in protocol
    end = inspect.getsource(httptools_impl.HttpToolsProtocol.on_response_complete)
    assert set(re.findall(r"self\.(\w+)", end)) == {
        "server_state", "transport", "_unset_keepalive_if_required", "flow", "pipeline", "_start_asgi_task",
        "timeout_keep_alive_task", "loop", "timeout_keep_alive", "timeout_keep_alive_handler",
    }, uvicorn.__version__  # fmt: skip
    assert {"read_paused", "write_paused"} <= set(FlowControl.__init__.__code__.co_names)


async def test_a_client_that_still_sends_its_body_can_read_the_error() -> None:
    """If the connection closed at once, it would be reset and the client would lose the response."""
    body = b'{"model": "opus", "x": "' + b"x" * 20_000_000 + b'"}'
    async with GatewayHarness(account("http://127.0.0.1:9")) as harness, await connect(harness.port) as client:
        client.send(post(body, key=b"x-api-key: wrong"))
        await client.writer.drain()
        got = await client.read_message()
        rest = await client.until_closed()

    assert (got.status, got.header(b"connection"), rest) == (401, b"close", b"")
