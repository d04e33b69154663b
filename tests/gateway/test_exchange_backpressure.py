"""Back-pressure and memory: nothing is read faster than it is forwarded, and large bodies need no memory."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, run_loop, until
from tests.gateway.raw_http import RawUpstream, Wire, connect, ok, post

from paceline import Limiter

MEGABYTE = 2**20
PIECE = os.urandom(65_536)
LONG_TEXT = b"x" * (64 * MEGABYTE)
STILL_TURNS = 2_000
SYSTEM_BUFFERS = 16 * MEGABYTE
"""The bytes that the sockets of three parties on loopback may buffer."""


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


async def stands_still(count: Callable[[], int]) -> None:
    """Return once a counter has not moved for many turns of the loop."""
    last = -1
    while count() != last:
        last = count()
        await run_loop(STILL_TURNS)


async def test_a_client_that_does_not_read_holds_the_upstream_back() -> None:
    sent = [0]

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
            await wire.writer.drain()
            sent[0] += len(PIECE)

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port, receive_buffer=4096) as client,
    ):
        client.send(post())
        await until(lambda: sent[0] > 0)
        await stands_still(lambda: sent[0])
        held_at = sent[0]
        await client.reader.readexactly(held_at)  # and it goes on once the client reads
        await until(lambda: sent[0] > held_at)

    assert held_at < SYSTEM_BUFFERS


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model": "opus", "x": "%b"}' % LONG_TEXT, id="sent on from its beginning"),
        pytest.param(b'{"x": "%b", "model": "opus"}' % LONG_TEXT, id="looked through for its model first"),
    ],
)
async def test_an_upstream_that_does_not_read_holds_the_client_back(body: bytes) -> None:
    sent = [0]
    read_on = asyncio.Event()

    async def handle(wire: Wire) -> None:
        head = await wire.read_head()
        await read_on.wait()
        await wire.reader.readexactly(int(head.header(b"content-length") or 0))
        wire.send(ok())

    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        sending = asyncio.create_task(_send_counted(client, post(body), sent))
        await until(lambda: sent[0] > 0)
        await stands_still(lambda: sent[0])
        held_at = sent[0]
        read_on.set()
        got = await client.read_message()
        await sending

    assert held_at < SYSTEM_BUFFERS
    assert (got.status, harness.in_flight) == (200, 0)


async def test_a_body_that_waits_for_a_slot_is_not_read_to_its_end() -> None:
    sent = [0]
    limiter = Limiter(limits={"anthropic/work": 1})

    async def handle(wire: Wire) -> None:
        await wire.read_message()
        wire.send(ok())

    body = b'{"model": "opus", "x": "%b"}' % LONG_TEXT
    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        slot = await limiter.acquire("anthropic/work/opus")
        sending = asyncio.create_task(_send_counted(client, post(body), sent))
        await until(lambda: sent[0] > 0)
        await stands_still(lambda: sent[0])
        held_at = sent[0]
        slot.release()
        got = await client.read_message()
        await sending

    assert held_at < SYSTEM_BUFFERS
    assert got.status == 200


async def test_little_is_kept_of_a_waiting_body_whose_model_is_in_the_path() -> None:
    limiter = Limiter(limits={"google/work": 1})
    path = b"/gateway/work/v1beta/models/gemini-2.5-pro:generateContent"
    async with (
        GatewayHarness(account("http://127.0.0.1:9", provider="google"), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        await limiter.acquire("google/work/gemini-2.5-pro")
        client.send(post(b'{"x": "%b"}' % LONG_TEXT, path=path))
        await until(lambda: any(exchange.request_body.size for exchange in harness.gateway.live))
        (waiting,) = harness.gateway.live
        await stands_still(lambda: waiting.request_body.size)
        kept = waiting.request_body.size

    assert kept < MEGABYTE


async def _send_counted(wire: Wire, data: bytes, sent: list[int]) -> None:
    for start in range(0, len(data), 65_536):
        wire.send(data[start : start + 65_536])
        await wire.writer.drain()
        sent[0] += 65_536


async def test_a_hundred_megabytes_up_and_down_cost_no_memory() -> None:
    pieces = 1600  # of 64 KiB
    digests: list[bytes] = []

    async def handle(wire: Wire) -> None:
        """Read the whole body, then send as many pieces back."""
        await wire.read_head()
        digest = hashlib.sha256()
        for _ in range(pieces):
            digest.update(await wire.reader.readexactly(len(PIECE)))
        digests.append(digest.digest())
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (pieces * len(PIECE)))
        for _ in range(pieces):
            wire.send(PIECE)
            await wire.writer.drain()
        await wire.reader.read()

    head = b"POST /gateway/work/v1/files HTTP/1.1\r\nHost: x\r\nx-api-key: paceline-token-1\r\n"
    async with (
        RawUpstream(handle) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        before = most = resident_bytes()
        client.send(head + b"Content-Length: %d\r\n\r\n" % (pieces * len(PIECE)))
        for _ in range(pieces):
            client.send(PIECE)
            await client.writer.drain()
            most = max(most, resident_bytes())
        await client.read_head()
        digest = hashlib.sha256()
        for _ in range(pieces):
            digest.update(await client.reader.readexactly(len(PIECE)))
            most = max(most, resident_bytes())

    assert digests == [digest.digest()]
    assert (most - before) / MEGABYTE < 24
