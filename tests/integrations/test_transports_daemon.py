"""The transport with a Client: the slots are the daemon's, and signals are reported there."""

import asyncio

import pytest
from tests.daemon import Daemon, RunDaemon
from tests.integrations.sdk_clients import SDKS, connected

from paceline.client.daemon_client import Client
from paceline.integrations.httpx2 import SlotTransport
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

SDK = SDKS[0]
SCOPE = "anthropic/work-key"


def in_flight(served: Daemon) -> int:
    status = served.engine.limiter.scope_status(SCOPE)
    return 0 if status is None else status.in_flight


async def test_requests_take_the_daemons_slots_and_report_to_it(daemon: Daemon) -> None:
    async with (
        Client(daemon.url, daemon.tokens.full) as gate,
        FakeProvider(Scenario(latency=0.2)) as provider,
        connected(SDK, provider.url, SlotTransport(gate, SCOPE)) as client,
    ):
        provider.script("429_retry_after", retry_after=1.0)

        asking = asyncio.ensure_future(SDK.ask(client, SDK.model))
        await daemon.until(lambda: in_flight(daemon) == 1)
        assert await asking

        assert [request.status for request in provider.requests] == [429, 200]
        await daemon.until(lambda: in_flight(daemon) == 0)
        assert [stored.event.scope for stored in daemon.store.events() if stored.event.name == "scope.paused"] == [
            f"{SCOPE}/opus-4-6"
        ]


async def test_a_stream_that_is_cut_off_releases_the_daemons_slot(daemon: Daemon) -> None:
    scenario = Scenario(tokens_per_second=100.0, reply_tokens=400)
    async with (
        Client(daemon.url, daemon.tokens.full) as gate,
        FakeProvider(scenario) as provider,
        connected(SDK, provider.url, SlotTransport(gate, SCOPE)) as client,
    ):
        stream = SDK.stream(client, SDK.model)
        await anext(stream)
        assert in_flight(daemon) == 1

        await stream.aclose()  # type: ignore[attr-defined]

        assert in_flight(daemon) == 0


async def test_a_wait_that_runs_out_names_its_reason(daemon: Daemon) -> None:
    daemon.engine.limiter.set_limit(SCOPE, 1)
    held = await daemon.engine.limiter.acquire(f"{SCOPE}/opus-4-6")
    async with (
        Client(daemon.url, daemon.tokens.full) as gate,
        FakeProvider() as provider,
        connected(SDK, provider.url, SlotTransport(gate, SCOPE, max_wait=0.2)) as client,
    ):
        with pytest.raises(SDK.rate_limit_error, match="at its limit"):
            await SDK.ask(client, SDK.model)
    held.release()


async def test_a_response_survives_a_daemon_that_goes_away(run_daemon: RunDaemon) -> None:
    scenario = Scenario(tokens_per_second=100.0, reply_tokens=60)
    async with FakeProvider(scenario) as provider:
        async with run_daemon() as served:
            gate = Client(served.url, served.tokens.full)
            client = SDK.connect(provider.url, SlotTransport(gate, SCOPE))
            stream = SDK.stream(client, SDK.model)
            pieces = [await anext(stream)]
        pieces += [piece async for piece in stream]
        await client.close()
        await gate.aclose()

        assert provider.requests[0].ending == "served"
    assert len(pieces) == 60
