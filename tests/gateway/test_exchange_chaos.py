"""Clients that leave, and upstreams that refuse, reset and stall, all at random.

Every complete response is right, and no slot is left in the end.
"""

import asyncio
import random
import re

import pytest
from tests.gateway.gateway_harness import GatewayHarness, account, run_loop, until
from tests.gateway.raw_http import Message, RawUpstream, Wire, connect, post

from paceline import Limiter

CLIENTS = 24
SUITE_REQUESTS = 600
SOAK_REQUESTS = 10_000
NUMBER = re.compile(rb'"n": (\d+)')
REFUSALS = (
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after-ms: 3\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 529 Overloaded\r\nretry-after-ms: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 503 Unavailable\r\nretry-after-ms: 3\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
)


def answer_to(number: int) -> bytes:
    """Return the only right body for a request."""
    return random.Random(number).randbytes(number * 37 % 3000)


class WildUpstream:
    """An upstream that responds correctly, or fails in one of the ways of real upstreams."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def handle(self, wire: Wire) -> None:
        while True:
            request = await wire.read_message()
            found = NUMBER.search(request.body)
            if not request.is_whole or found is None:
                return
            if not await self._answer(wire, answer_to(int(found[1]))):
                return

    async def _answer(self, wire: Wire, body: bytes) -> bool:
        """Respond. Returns whether the connection stays open."""
        roll = self._random.random()
        if roll < 0.15:
            wire.send(self._random.choice(REFUSALS))
            return True
        if roll < 0.20:
            wire.reset()
            return False
        framed = self._framed(body)
        if roll < 0.28:
            wire.send(framed[: self._random.randrange(1, len(framed))])
            await wire.writer.drain()
            wire.close() if roll < 0.24 else wire.reset()
            return False
        for start in range(0, len(framed), 700):
            wire.send(framed[start : start + 700])
            await wire.writer.drain()
            if self._random.random() < 0.2:
                await run_loop(20)
        return True

    def _framed(self, body: bytes) -> bytes:
        if self._random.random() < 0.5:
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        chunks = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % chunks


class WildClient:
    """A client with sequential calls, some of which it leaves in the middle."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._wire: Wire | None = None
        self.whole = 0

    async def call(self, number: int) -> None:
        wire = self._wire = self._wire or await connect(self._port)
        request = post(b'{"model": "claude-opus-4-6", "n": %d}' % number)
        roll = self._random.random()
        if roll < 0.1:
            wire.send(request[: self._random.randrange(len(request))])
            await self._leave()
            return
        wire.send(request)
        if roll < 0.25:
            await run_loop(self._random.randrange(200))
            await self._leave()
            return
        try:
            got = await wire.read_message()
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._leave()
            return
        self._check(got, number)
        if not got.is_whole or got.header(b"connection") == b"close":
            await self._leave()

    def _check(self, got: Message, number: int) -> None:
        if got.is_whole:
            assert got.status in (200, 502), got
            self.whole += 1
        if got.is_whole and got.status == 200:
            assert got.body == answer_to(number)

    async def _leave(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.reset() if self._random.random() < 0.5 else wire.close()

    async def run(self, numbers: list[int]) -> None:
        for number in numbers:
            await self.call(number)
        await self._leave()


async def wild_run(requests: int, seed: int) -> None:
    limiter = Limiter(limits={"anthropic/work": 8}, headroom="off")
    async with (
        RawUpstream(WildUpstream(seed).handle) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
    ):
        clients = [WildClient(harness.port, seed * 1000 + index) for index in range(CLIENTS)]
        numbers = list(range(requests))
        await asyncio.gather(*(client.run(numbers[index::CLIENTS]) for index, client in enumerate(clients)))
        await until(lambda: not harness.gateway.live and not harness.gateway.connections)

        assert harness.in_flight == 0
        status = limiter.scope_status("anthropic/work")
        assert status is not None
        assert (status.in_flight, status.queued) == (0, 0)
        assert sum(client.whole for client in clients) > requests / 2


@pytest.mark.parametrize("seed", [1, 2])
async def test_under_random_failures_complete_responses_are_right_and_no_slot_is_left(seed: int) -> None:
    await wild_run(SUITE_REQUESTS, seed)


@pytest.mark.soak
async def test_ten_thousand_requests_under_random_failures() -> None:
    await wild_run(SOAK_REQUESTS, seed=3)
