"""Bytes are forwarded unchanged in both directions, whatever their size, framing and timing."""

import asyncio
import gzip
import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateway.gateway_harness import KEY, GatewayHarness, account, until
from tests.gateway.raw_http import Message, RawUpstream, Wire, answering, connect, ok, post

from paceline.protocols import RequestReader

CALL = b'{"model": "claude-opus-4-6", "messages": []}'


async def exchanged(request: bytes, answer: bytes, *, is_for_head: bool = False) -> tuple[Message, Message]:
    """Return the request that the upstream saw and the response that the client got."""
    seen: list[Message] = []
    async with (
        RawUpstream(answering(answer, seen)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(request)
        got = await client.read_message(is_for_head=is_for_head)
        assert harness.in_flight == 0
    return seen[0], got


async def test_a_call_arrives_with_the_accounts_key_and_its_response_returns() -> None:
    request = post(CALL, b"X-Trace: a b", b"anthropic-version: 2023-06-01", path=b"/gateway/work/v1/messages?beta=true")

    seen, got = await exchanged(request, ok(b'{"a": 1}', b"Request-Id: r1"))

    assert seen.first_line == b"POST /v1/messages?beta=true HTTP/1.1"
    assert seen.body == CALL
    assert [header for header in seen.headers if header[0] != b"Host"] == [
        (b"X-Trace", b"a b"),
        (b"anthropic-version", b"2023-06-01"),
        (b"Content-Length", b"%d" % len(CALL)),
        (b"x-api-key", KEY.encode()),
    ]
    assert seen.all(b"host") != [b"gateway"]
    assert (got.first_line, got.body) == (b"HTTP/1.1 200 OK", b'{"a": 1}')
    assert got.headers == [
        (b"Content-Type", b"application/json"),
        (b"Request-Id", b"r1"),
        (b"Content-Length", b"8"),
        (b"x-paceline-request-id", got.header(b"x-paceline-request-id")),
        (b"x-paceline-scope", b"anthropic/work/opus-4-6"),
        (b"x-paceline-waited-ms", b"0"),
    ]


async def test_hop_by_hop_headers_are_removed_and_all_others_keep_their_order() -> None:
    request = post(
        CALL,
        b"Connection: keep-alive, X-Only-Here",
        b"X-Only-Here: 1",
        b"Keep-Alive: timeout=5",
        b"TE: trailers",
        b"Proxy-Authorization: Basic eA==",
        b"X-Paceline-Session: s1",
        b"Accept-Encoding: gzip, br",
        b"X-Twice: 1",
        b"x-twice: 2",
    )
    answer = ok(
        b"{}",
        b"Connection: x-gone",
        b"X-Gone: 1",
        b"Keep-Alive: timeout=5",
        b"Set-Cookie: a=1",
        b"set-cookie: b=2",
        b"x-paceline-scope: forged",
        b"X-Empty: ",
    )

    seen, got = await exchanged(request, answer)

    assert [name for name, _ in seen.headers] == [
        b"Host", b"Accept-Encoding", b"X-Twice", b"x-twice", b"Content-Length", b"x-api-key",
    ]  # fmt: skip
    assert [header for header in got.headers if header[0].lower() not in (b"content-type", b"content-length")] == [
        (b"Set-Cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"X-Empty", b""),
        (b"x-paceline-request-id", got.header(b"x-paceline-request-id")),
        (b"x-paceline-scope", b"anthropic/work/opus-4-6"),
        (b"x-paceline-waited-ms", b"0"),
    ]


async def test_compressed_bodies_stay_compressed() -> None:
    packed = gzip.compress(b'{"usage": {"input_tokens": 1}}' * 100)

    _, got = await exchanged(post(), ok(packed, b"Content-Encoding: gzip"))

    assert (got.body, got.header(b"content-encoding")) == (packed, b"gzip")


async def test_a_chunked_response_stays_chunked_with_its_trailers() -> None:
    answer = (
        b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        b"3;note=x\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n"
    )

    _, got = await exchanged(post(), answer)

    assert (got.first_line, got.body, got.trailers) == (b"HTTP/1.1 200 Fine", b"abcde", [(b"X-Sum", b"5")])
    assert (got.all(b"transfer-encoding"), got.all(b"content-length")) == ([b"chunked"], [])


async def test_a_response_that_ends_with_its_connection_is_complete() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        got = await client.read_message()

    assert (got.status, got.body, got.is_whole) == (200, b"all of it", True)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_a_response_without_a_body_has_none(status: bytes) -> None:
    _, got = await exchanged(post(), b"HTTP/1.1 %b\r\nETag: x\r\n\r\n" % status)

    assert (got.first_line, got.body, got.header(b"transfer-encoding")) == (b"HTTP/1.1 " + status, b"", None)


async def test_head_gets_the_length_without_a_body_and_the_connection_stays_open() -> None:
    seen: list[Message] = []
    key = b"x-api-key: paceline-token-1\r\n"
    async with (
        RawUpstream(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", seen)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        answers = []
        for _ in range(2):
            client.send(b"HEAD /gateway/work HTTP/1.1\r\nHost: x\r\n%b\r\n" % key)
            answers.append(await client.read_message(is_for_head=True))

    assert [(got.status, got.header(b"content-length")) for got in answers] == [(200, b"5"), (200, b"5")]
    assert [request.first_line for request in seen] == [b"HEAD / HTTP/1.1"] * 2
    assert upstream.connections == 1


async def test_informational_responses_are_skipped() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"

    _, got = await exchanged(post(), early + ok(b"[1]"))

    assert (got.status, got.body, got.header(b"link")) == (200, b"[1]", None)


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    seen: list[Message] = []
    head = post(CALL, b"Expect: 100-continue")[: -len(CALL)]
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(head)
        received = await client.reader.readuntil(b"\r\n\r\n")
        client.send(CALL)
        got = await client.read_message()

    assert received == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (got.status, seen[0].body, seen[0].header(b"expect")) == (200, CALL, None)


async def test_a_chunked_body_is_forwarded_in_chunks() -> None:
    head = b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    pieces = [CALL[:7], CALL[7:20], CALL[20:]]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX-Trailer: 1\r\n\r\n"

    seen, got = await exchanged(head + b"Transfer-Encoding: chunked\r\n\r\n" + body, ok())

    assert (seen.body, seen.all(b"transfer-encoding"), seen.all(b"content-length")) == (CALL, [b"chunked"], [])
    assert got.status == 200


async def test_one_upstream_connection_serves_many_requests() -> None:
    async with (
        RawUpstream(answering(ok())) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        for _ in range(20):
            client.send(post())
            assert (await client.read_message()).status == 200

    assert upstream.connections == 1


async def test_an_upstream_that_closes_after_each_response_is_connected_again() -> None:
    async with (
        RawUpstream(answering(ok(b"{}", b"Connection: close"))) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        for _ in range(3):
            client.send(post())
            assert (await client.read_message()).status == 200

    assert upstream.connections == 3


async def test_an_http_1_0_client_gets_a_response_that_ends_with_its_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with (
        RawUpstream(answering(answer)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        got = await client.read_message()

    assert (got.body, got.header(b"transfer-encoding"), got.header(b"connection")) == (b"abc", None, b"close")


async def test_a_stream_is_forwarded_piece_by_piece_without_delay() -> None:
    go_on = asyncio.Event()

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            wire.send(b"a\r\ndata: %d\n\n\n\r\n" % number)
            await go_on.wait()
            go_on.clear()
        wire.send(b"0\r\n\r\n")

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        await client.read_head()
        for number in range(5):
            assert b"data: %d" % number in await client.reader.readuntil(b"\n\n\n")
            go_on.set()
        await until(lambda: harness.in_flight == 0)


chunkings = st.lists(st.integers(1, 5000), min_size=1, max_size=12)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    request_sizes=chunkings,
    answer_sizes=chunkings,
    is_request_chunked=st.booleans(),
    is_answer_chunked=st.booleans(),
    cuts=st.lists(st.integers(1, 4000), max_size=6),
)
async def test_bodies_of_any_size_and_chunking_are_the_same_on_the_other_side(
    request_sizes: list[int],
    answer_sizes: list[int],
    is_request_chunked: bool,
    is_answer_chunked: bool,
    cuts: list[int],
) -> None:
    sent = [_filler(size, seed) for seed, size in enumerate(request_sizes)]
    answered = [_filler(size, seed + 7) for seed, size in enumerate(answer_sizes)]
    request = b"POST /gateway/work/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    request += _framed(sent, is_request_chunked)
    answer = b"HTTP/1.1 200 OK\r\n" + _framed(answered, is_answer_chunked)
    seen: list[Message] = []

    async def handle(wire: Wire) -> None:
        seen.append(await wire.read_message())
        await _send_in_pieces(wire, answer, cuts)
        await wire.reader.read()

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        await _send_in_pieces(client, request, cuts)
        got = await client.read_message()

    assert (seen[0].body, seen[0].is_whole) == (b"".join(sent), True)
    assert (got.body, got.is_whole) == (b"".join(answered), True)


def _filler(size: int, seed: int) -> bytes:
    return bytes((index * 31 + seed) % 256 for index in range(size))


def _framed(pieces: list[bytes], is_chunked: bool) -> bytes:
    if is_chunked:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    body = b"".join(pieces)
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


async def _send_in_pieces(wire: Wire, data: bytes, cuts: list[int]) -> None:
    """Send each piece before the next is written."""
    for size in cuts:
        wire.send(data[:size])
        await wire.writer.drain()
        await asyncio.sleep(0)
        data = data[size:]
    wire.send(data)
    await wire.writer.drain()


@pytest.mark.parametrize(
    "target",
    [
        b"http://127.0.0.1:9/stolen",
        b"https://api.other.example/v1",
        b"//other.example/v1",
        b"/\\other.example/v1",
        b"/\t/other.example/v1",
        b"\\\\other.example",
        b"other:8080/v1",
    ],
)
@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"303 See Other", b"307 Temporary", b"308 Permanent"])
async def test_no_redirect_leads_a_client_with_our_token_to_another_server(status: bytes, target: bytes) -> None:
    answer = b"HTTP/1.1 %b\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, target)

    _, got = await exchanged(post(CALL), answer)

    assert got.first_line == b"HTTP/1.1 502 Bad Gateway"
    assert got.all(b"location") == []
    assert b"redirects to another server" in got.body


@pytest.mark.parametrize("target", [b"/v1/messages/", b"?page=2", b"../v2/messages", b"/a?next=http://other.example"])
async def test_a_redirect_that_stays_at_the_gateway_is_passed_on(target: bytes) -> None:
    answer = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % target

    _, got = await exchanged(post(CALL), answer)

    assert (got.first_line, got.all(b"location")) == (b"HTTP/1.1 307 Temporary Redirect", [target])


async def test_not_modified_is_passed_on_whatever_its_location() -> None:
    answer = b"HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n"

    _, got = await exchanged(post(CALL), answer)

    assert got.first_line == b"HTTP/1.1 304 Not Modified"


@pytest.mark.parametrize(
    "model", ["claude-", "anthropic.", "claude-[1m]", "", "/", "\u00e9", "\ud800", "x" * 5000], ids=ascii
)
async def test_any_name_of_a_model_gets_an_answer(model: str) -> None:
    async with (
        RawUpstream(answering(ok(), [])) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(json.dumps({"model": model}).encode()))
        got = await client.read_message()

    assert got.status == 200


async def test_a_fault_of_the_gateway_is_a_500_in_the_shape_of_the_provider(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        RawUpstream(answering(ok(), [])) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        harness.gateway.model_names._unserved = None  # type: ignore[assignment]
        client.send(post())
        got = await client.read_message()

    expected = {"type": "error", "error": {"type": "api_error", "message": "internal error; see paceline.log"}}
    assert (got.status, json.loads(got.body)) == (500, expected)


async def test_a_large_body_with_many_members_is_parsed_off_the_loop_and_counts_for_its_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    class Reader(RequestReader):
        def read_whole(self, body: bytes) -> None:
            threads.append(threading.current_thread())
            super().read_whole(body)

    monkeypatch.setattr("paceline.protocols.RequestReader", Reader)
    body = b'{"messages": [%b], "model": "claude-opus-4-6"}' % b",".join([b"{}"] * 200_000)

    seen, got = await exchanged(post(body), ok())

    assert (got.header(b"x-paceline-scope"), seen.body == body) == (b"anthropic/work/opus-4-6", True)
    assert [each is threading.current_thread() for each in threads] == [False]
