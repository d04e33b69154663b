"""The official SDKs with `SlotTransport`: bursts wait, 429s stay invisible, and no slot is left."""

import asyncio
import gc
import threading

import anthropic
import httpx2
import pytest

from paceline import Limiter
from paceline.core.signals import BillingStop, RateLimited, Signal, Succeeded
from paceline.errors import InvalidInput
from paceline.integrations.httpx2 import SlotTransport, SyncSlotTransport
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import Scenario

from .sdk_clients import SDKS, SYNC_SDKS, Sdk, SyncSdk, connected

EACH = pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.name)
EACH_SYNC = pytest.mark.parametrize("sdk", SYNC_SDKS, ids=lambda sdk: sdk.name)
SLOW = Scenario(tokens_per_second=200.0, reply_tokens=400)


class ListeningLimiter(Limiter):
    """A limiter that records the reported signals."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Signal] = []

    def report(self, scope: str, signal: Signal) -> None:
        self.told.append(signal)
        super().report(scope, signal)


def account(sdk: Sdk | SyncSdk) -> str:
    return f"{sdk.provider}/work-key"


def in_flight(limiter: Limiter) -> dict[str, int]:
    return {status.scope: status.in_flight for status in limiter.statuses() if status.in_flight}


@EACH
async def test_a_response_and_a_stream_arrive_and_release_their_slots(sdk: Sdk) -> None:
    limiter = Limiter()
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        whole = await sdk.ask(client, sdk.model)
        streamed = [piece async for piece in sdk.stream(client, sdk.model)]

    assert whole
    assert "".join(streamed) == whole
    assert len(streamed) > 1
    assert in_flight(limiter) == {}


@EACH
async def test_a_refusal_is_waited_out_and_the_program_does_not_notice(sdk: Sdk) -> None:
    limiter = Limiter()
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        for _ in range(2):
            provider.script("429_retry_after", retry_after=1.0)

        answer = await sdk.ask(client, sdk.model)
        streamed = "".join([piece async for piece in sdk.stream(client, sdk.model)])

        statuses = [request.status for request in provider.requests]

    assert streamed == answer
    assert statuses == [429, 429, 200, 200]
    assert in_flight(limiter) == {}


@EACH
async def test_many_tasks_against_a_cap_with_a_lagging_count_see_no_429(sdk: Sdk) -> None:
    limiter = Limiter(limits={account(sdk): 4}, cooldown=0.1)
    scenario = Scenario(concurrency=4, lag=0.05, latency=0.01)
    async with (
        FakeProvider(scenario) as provider,
        connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client,
    ):
        answers = await asyncio.gather(*(sdk.ask(client, sdk.model) for _ in range(20)))

        assert (len(answers), provider.rate_limited, provider.peak_concurrency) == (20, 0, 4)
    assert in_flight(limiter) == {}


@EACH
async def test_a_wait_that_runs_out_is_the_sdks_own_rate_limit_error(sdk: Sdk) -> None:
    limiter = Limiter(limits={account(sdk): 1})
    held = await limiter.acquire(account(sdk))
    transport = SlotTransport(limiter, account(sdk), max_wait=0.05)
    async with FakeProvider() as provider, connected(sdk, provider.url, transport) as client:
        with pytest.raises(sdk.rate_limit_error) as raised:
            await sdk.ask(client, sdk.model)

        assert "at its limit (1/1)" in str(raised.value)
        assert provider.requests == []
    held.release()


@EACH
async def test_a_retry_time_after_the_deadline_is_forwarded_at_once(sdk: Sdk) -> None:
    limiter = Limiter()
    transport = SlotTransport(limiter, account(sdk), max_wait=2.0)
    async with FakeProvider() as provider, connected(sdk, provider.url, transport) as client:
        provider.script("429_retry_after", retry_after=3600.0)

        with pytest.raises(sdk.rate_limit_error):
            await sdk.ask(client, sdk.model)

        assert len(provider.requests) == 1
    assert limiter.scope_status(f"{account(sdk)}/{sdk.model}") is not None
    assert in_flight(limiter) == {}


@EACH
async def test_the_tokens_of_a_response_are_reported(sdk: Sdk) -> None:
    limiter = ListeningLimiter()
    scenario = Scenario(reply_tokens=7, announce=False)
    async with (
        FakeProvider(scenario) as provider,
        connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client,
    ):
        await sdk.ask(client, sdk.model)
        async for _ in sdk.stream(client, sdk.model):
            pass

    used = [signal.tokens for signal in limiter.told if isinstance(signal, Succeeded)]
    assert len(used) == 2
    assert all(tokens is not None and tokens > 7 for tokens in used)


@EACH
async def test_a_task_that_is_cancelled_in_mid_stream_leaves_no_slot(sdk: Sdk) -> None:
    limiter = Limiter()
    first = asyncio.Event()

    async def read() -> None:
        async for _ in sdk.stream(client, sdk.model):
            first.set()

    async with (
        FakeProvider(SLOW) as provider,
        connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client,
    ):
        reading = asyncio.create_task(read())
        await first.wait()
        assert in_flight(limiter) != {}

        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        assert in_flight(limiter) == {}


@EACH
async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue(sdk: Sdk) -> None:
    queued = asyncio.Event()
    limiter = Limiter(
        limits={account(sdk): 1}, on_event=lambda event: queued.set() if event.name == "slot.deferred" else None
    )
    held = await limiter.acquire(account(sdk))
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        asking = asyncio.ensure_future(sdk.ask(client, sdk.model))
        await queued.wait()

        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        held.release()

        assert provider.requests == []
        status = limiter.scope_status(account(sdk))
        assert status is not None
        assert (status.queued, in_flight(limiter)) == (0, {})


async def test_a_response_that_is_dropped_without_being_closed_releases_its_slot() -> None:
    limiter = Limiter()
    sdk = SDKS[1]
    async with (
        FakeProvider(SLOW) as provider,
        connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client,
    ):
        stream = await client.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert in_flight(limiter) != {}

        del stream
        gc.collect()  # the SDK's own stream is part of a cycle
        for _ in range(100):
            await asyncio.sleep(0)

        assert in_flight(limiter) == {}


async def test_a_stream_that_breaks_releases_its_slot_and_is_not_sent_again() -> None:
    limiter = Limiter()
    sdk = SDKS[0]
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        provider.script("midstream_rst")

        with pytest.raises(httpx2.ReadError):
            async for _ in sdk.stream(client, sdk.model):
                pass

        assert len(provider.requests) == 1
    assert in_flight(limiter) == {}


async def test_a_provider_that_cannot_be_reached_leaves_no_slot() -> None:
    limiter = Limiter()
    sdk = SDKS[0]
    async with connected(sdk, "http://127.0.0.1:9", SlotTransport(limiter, account(sdk))) as client:
        with pytest.raises(Exception, match="Connection error"):
            await sdk.ask(client, sdk.model)

    assert in_flight(limiter) == {}


async def test_wrong_keys_and_unpaid_accounts_are_forwarded_at_once() -> None:
    sdk = SDKS[1]
    for error, is_held in (("401", False), ("429_insufficient_quota", True)):  # a login is asked again first
        limiter = Limiter()
        async with (
            FakeProvider() as provider,
            connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client,
        ):
            provider.script(error, times=None)
            with pytest.raises(Exception, match=r"key|quota"):
                await sdk.ask(client, sdk.model)
            assert len(provider.requests) == 1
        status = limiter.scope_status(account(sdk))
        assert status is not None
        assert (status.held is not None, status.paused) == (is_held, not is_held)


async def test_a_held_account_fails_at_once() -> None:
    limiter = Limiter()
    limiter.report("anthropic/work-key", BillingStop(detail="no credit left"))
    sdk = SDKS[0]
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        with pytest.raises(anthropic.PermissionDeniedError, match="no credit left"):
            await sdk.ask(client, sdk.model)

        assert provider.requests == []


def test_a_held_account_fails_a_blocking_client_at_once_too() -> None:
    limiter = Limiter()
    limiter.report("anthropic/work-key", BillingStop(detail="no credit left"))
    with pytest.raises(anthropic.PermissionDeniedError, match="no credit left"):
        SYNC_SDKS[0].ask("http://127.0.0.1:9", SyncSlotTransport(limiter, "anthropic/work-key"), "m")
    limiter.from_thread.close()


async def test_lists_and_counts_take_no_slot() -> None:
    limiter = Limiter(limits={"anthropic/work-key": 1})
    held = await limiter.acquire("anthropic/work-key")
    sdk = SDKS[0]
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        counted = await client.messages.count_tokens(model=sdk.model, messages=[{"role": "user", "content": "hi"}])

    assert counted.input_tokens > 0
    held.release()


async def test_a_subscriptions_login_is_refused() -> None:
    limiter = Limiter()
    transport = SlotTransport(limiter, "anthropic/work-key")
    async with FakeProvider() as provider:
        client = anthropic.AsyncAnthropic(
            auth_token="sk-ant-oat01-x",
            base_url=provider.url,
            http_client=httpx2.AsyncClient(transport=transport),
        )
        with pytest.raises(anthropic.PermissionDeniedError, match="paceline run"):
            await client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}])
        await client.close()

        assert provider.requests == []


async def test_a_session_holds_one_place_for_its_first_call() -> None:
    limiter = Limiter(limits={"anthropic/work-key": 1})
    limiter.acquire_session("s1", scope="anthropic/work-key")
    sdk = SDKS[0]
    transport = SlotTransport(limiter, account(sdk), session="s1", max_wait=1.0)
    async with FakeProvider() as provider, connected(sdk, provider.url, transport) as client:
        assert await sdk.ask(client, sdk.model)

    limiter.release_session("s1")
    assert in_flight(limiter) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        {"account": "work-key"},
        {"account": "anthropic/a/opus-4-6"},
        {"account": ""},
        {"account": "anthropic/a", "max_wait": -1.0},
        {"account": "anthropic/a", "max_wait": True},
        {"account": "anthropic/a", "priority": "high"},
        {"account": "anthropic/a", "session": ""},
        {"account": "a b", "provider": "anthropic"},
    ],
)
def test_invalid_arguments_raise_when_the_transport_is_created(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        SlotTransport(Limiter(), **arguments)  # type: ignore[arg-type]


def test_an_object_that_is_no_limiter_is_rejected() -> None:
    for kind in (SlotTransport, SyncSlotTransport):
        with pytest.raises(InvalidInput, match="takes a Limiter"):
            kind(object(), "anthropic/a")  # type: ignore[arg-type]


# -- blocking ----------------------------------------------------------------------------------------


@EACH_SYNC
def test_blocking_clients_wait_out_refusals_and_release_their_slots(sdk: SyncSdk) -> None:
    limiter = Limiter()
    with FakeProvider() as provider:
        provider.script("429_retry_after", retry_after=1.0)
        transport = SyncSlotTransport(limiter, "work-key", provider=sdk.provider)

        answer = sdk.ask(provider.url, transport, sdk.model)
        streamed = "".join(sdk.stream(provider.url, transport, sdk.model))

        assert [request.status for request in provider.requests] == [429, 200, 200]
    assert streamed == answer
    assert limiter.from_thread.call(lambda: in_flight(limiter)) == {}
    limiter.from_thread.close()


@EACH_SYNC
def test_the_tokens_of_a_blocking_stream_are_reported_even_if_it_is_closed_after_its_last_event(sdk: SyncSdk) -> None:
    limiter = ListeningLimiter()
    with FakeProvider(Scenario(reply_tokens=7, tokens_per_second=200.0, announce=False)) as provider:
        transport = SyncSlotTransport(limiter, "work-key", provider=sdk.provider)
        streamed = "".join(sdk.stream(provider.url, transport, sdk.model))

    used = [signal.tokens for signal in limiter.told if isinstance(signal, Succeeded)]
    assert streamed
    assert len(used) == 1
    assert used[0] is not None
    assert used[0] > 7
    limiter.from_thread.close()


@EACH_SYNC
def test_many_threads_keep_to_one_limit(sdk: SyncSdk) -> None:
    limiter = Limiter(limits={sdk.provider: 3}, cooldown=0.1)
    answers: list[str] = []
    with FakeProvider(Scenario(concurrency=3, lag=0.05, latency=0.02)) as provider:

        def ask() -> None:
            transport = SyncSlotTransport(limiter, "work-key", provider=sdk.provider)
            answers.append(sdk.ask(provider.url, transport, sdk.model))

        threads = [threading.Thread(target=ask) for _ in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(answers), provider.rate_limited) == (9, 0)
        assert 1 <= provider.peak_concurrency <= 3
    limiter.from_thread.close()


def test_a_blocking_stream_that_is_closed_early_releases_its_slot() -> None:
    limiter = Limiter()
    sdk = SYNC_SDKS[1]
    with FakeProvider(SLOW) as provider:
        stream = sdk.stream(provider.url, SyncSlotTransport(limiter, "openai/work-key"), sdk.model)
        next(stream)
        assert limiter.from_thread.call(lambda: in_flight(limiter)) != {}

        stream.close()  # type: ignore[attr-defined]

        assert limiter.from_thread.call(lambda: in_flight(limiter)) == {}
    limiter.from_thread.close()


async def test_a_pause_reported_by_others_holds_for_the_sdk_too() -> None:
    clock, queued = VirtualClock(1_700_000_000.0), asyncio.Event()
    limiter = Limiter(clock=clock, on_event=lambda event: queued.set() if event.name == "slot.deferred" else None)
    sdk = SDKS[0]
    async with FakeProvider() as provider, connected(sdk, provider.url, SlotTransport(limiter, account(sdk))) as client:
        limiter.report(account(sdk), RateLimited(retry_after=400.0))
        request = client.messages.with_raw_response.create(
            model=sdk.model, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
        asking = asyncio.create_task(request)
        await queued.wait()
        await clock.advance(500.0)
        response = await asking

    assert 400_000 <= int(response.headers["x-paceline-waited-ms"]) <= 500_000
    assert response.headers["x-paceline-scope"] == f"{account(sdk)}/claude-opus-4-6"
