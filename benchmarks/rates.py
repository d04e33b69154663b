"""Rates and budgets of a provider, met through the real gateway: how long calls take, and how many are refused.

    python -m benchmarks.rates

The fake provider and the gateway run in this process, on loopback, in real time. It takes about a minute.

- *A bucket of 60 requests per minute*, told in headers: 70 calls at once. The bucket holds 60 and refills one a second,
  so ten seconds are the least.
- *One refusal after idle time*: four calls with pauses between them, one 429 for tokens with `retry-after: 1`, then 12
  calls at once. The provider has no token limit.
- *Short calls after a refusal*: three places, calls of some milliseconds, one 429 with `retry-after: 1`. Counts the
  calls that were served in the four seconds after the pause.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import msgspec
import uvicorn

from paceline import Limiter
from paceline.agents.account import Account
from paceline.clock import SystemClock
from paceline.gateway import Gateway, RequestAccess, make_server_protocol
from paceline.metrics import MetricsRegistry
from paceline.testing.provider import FakeProvider, Scenario, Step

TOKEN = "benchmark-token"
PLACES = 4
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
MODELS = {"anthropic": "claude-opus-4-6", "openai": "gpt-5"}
IDEAL_SECONDS = 10.0
MOST_TIMES_IDEAL = 1.2
MOST_SECONDS_MORE = 1.5


class Figure(msgspec.Struct, frozen=True):
    """One line of the report."""

    name: str
    measured: str
    wanted: str
    is_met: bool


async def nothing(scope: object, receive: object, send: object) -> None:
    """Serve no API."""


class Client:
    """Calls through the gateway, as an SDK makes them."""

    def __init__(self, http: httpx.AsyncClient, provider: str) -> None:
        self._http = http
        self._path = f"/gateway/work{PATHS[provider]}"
        self._body = {
            "model": MODELS[provider],
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "What is a limiter for?"}],
        }

    async def call(self) -> None:
        answer = await self._http.post(self._path, json=self._body, headers={"authorization": f"Bearer {TOKEN}"})
        answer.raise_for_status()

    async def burst(self, calls: int) -> float:
        """Make the calls at once. Returns how long all of them took."""
        began = time.monotonic()
        await asyncio.gather(*(self.call() for _ in range(calls)))
        return time.monotonic() - began


@asynccontextmanager
async def gateway(provider: FakeProvider, kind: str, places: int) -> Any:
    """Serve a gateway in front of the provider."""
    clock = SystemClock()
    account = Account(name="work", provider=kind, kind="metered", base_url=provider.url, key_env="KEY")
    limiter = Limiter(max_parallel_runs=None, limits={f"{kind}/*/*": places}, clock=clock)
    served = Gateway(
        limiter,
        RequestAccess([account], token=TOKEN, environ={"KEY": "sk-benchmark"}),
        clock=clock,
        metrics=MetricsRegistry(),
    )
    config = uvicorn.Config(
        nothing, http=make_server_protocol(served), loop="none", lifespan="off", log_level="error", port=0
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    limits = httpx.Limits(max_connections=None)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=180.0, limits=limits) as http:
            yield Client(http, kind)
    finally:
        await served.close()
        await server.shutdown()
        await limiter.aclose()


def refusals(provider: FakeProvider) -> int:
    return sum(record.status == 429 for record in provider.requests)


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    began, seconds = time.monotonic(), [0.0]
    yield seconds
    seconds[0] = time.monotonic() - began


async def bucket(kind: str) -> list[Figure]:
    async with (
        FakeProvider(Scenario(requests_per_minute=60, latency=0.2)) as provider,
        gateway(provider, kind, PLACES) as client,
    ):
        seconds = await client.burst(70)
        refused = refusals(provider)
    most = IDEAL_SECONDS * MOST_TIMES_IDEAL
    return [
        Figure(f"{kind}: 70 calls, bucket of 60/min", f"{seconds:.1f} s", f"{most:.0f} s", seconds <= most),
        Figure(f"{kind}: refusals of these", str(refused), "0", refused == 0),
    ]


async def refusal_after_idle(kind: str) -> list[Figure]:
    async with FakeProvider(Scenario(latency=0.2)) as provider, gateway(provider, kind, PLACES) as client:
        before = await client.burst(12)
    async with FakeProvider(Scenario(latency=0.2)) as provider, gateway(provider, kind, PLACES) as client:
        for _ in range(4):
            await asyncio.sleep(4.0)
            await client.call()
        provider.add_step(Step(error="429_tokens", retry_after=1.0))
        with stopwatch() as alone:
            await client.call()
        after = await client.burst(12)
    more = after - before
    return [
        Figure(f"{kind}: the call that met a 429, retry-after 1", f"{alone[0]:.1f} s", "3 s", alone[0] <= 3.0),
        Figure(
            f"{kind}: 12 calls after it, {before:.1f} s before",
            f"{after:.1f} s",
            f"{before + MOST_SECONDS_MORE:.1f} s",
            more <= MOST_SECONDS_MORE,
        ),
    ]


async def short_calls(kind: str) -> list[Figure]:
    async with FakeProvider(Scenario(latency=0.002)) as provider, gateway(provider, kind, 3) as client:

        async def keep_calling(until: float) -> None:
            while time.monotonic() < until:
                await client.call()

        began = time.monotonic()
        await asyncio.gather(*(keep_calling(began + 4.0) for _ in range(6)))
        before = len(provider.requests)
        provider.add_step(Step(error="429_retry_after", retry_after=1.0))
        began = time.monotonic()
        await asyncio.gather(*(keep_calling(began + 5.0) for _ in range(6)))
        after = len(provider.requests) - before
    return [Figure(f"{kind}: calls in 4 s after a 429, {before} before", str(after), "most", after >= before / 2)]


async def main() -> int:
    figures = [
        figure
        for measure in (bucket, refusal_after_idle, short_calls)
        for kind in PATHS
        for figure in await measure(kind)
    ]
    for figure in figures:
        print(f"{figure.name:<60} {figure.measured:>9}  wanted: {figure.wanted:<7} {'' if figure.is_met else 'MISSED'}")
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
