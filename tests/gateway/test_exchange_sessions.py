"""Calls of sessions, named in the path or a header and counted as their runs; and configured rates."""

import asyncio
import json

import httpx
import pytest
from tests.gateway.gateway_harness import TOKEN, GatewayHarness, account, until
from tests.gateway.raw_http import RawUpstream, answering, connect, ok
from tests.gateway.raw_http import post as raw_post

from paceline import Limiter, Rate
from paceline.core.values.scopes import SESSIONS
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

CALL = {"model": "claude-opus-4-6", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]}


async def post(client: httpx.AsyncClient, url: str, **headers: str) -> httpx.Response:
    return await client.post(f"{url}/v1/messages", json=CALL, headers={"x-api-key": TOKEN, **headers})


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/~s1", {}), ("/~s%31", {}), ("", {"x-paceline-session": "s1"}), ("/~other", {"x-paceline-session": "s1"})],
)
async def test_a_call_of_a_session_shares_the_sessions_place(path: str, headers: dict[str, str]) -> None:
    limiter = Limiter(limits={"anthropic/work": 1})
    limiter.acquire_session("s1", scope="anthropic/work")
    async with (
        FakeProvider() as provider,
        GatewayHarness(account(provider.url), limiter=limiter) as harness,
        httpx.AsyncClient() as client,
    ):
        own = await post(client, f"{harness.url}/gateway/work{path}", **headers)
        other = await post(client, f"{harness.url}/gateway/work", **{"x-paceline-max-wait": "0.05"})

        assert (own.status_code, other.status_code) == (200, 429)
        assert own.headers["x-paceline-scope"] == "anthropic/work/opus-4-6"


async def test_a_second_call_of_the_session_takes_a_place_of_its_own() -> None:
    limiter = Limiter(limits={"anthropic/work": 2})
    limiter.acquire_session("s1", scope="anthropic/work")
    scenario = Scenario(latency=0.2)
    async with (
        FakeProvider(scenario) as provider,
        GatewayHarness(account(provider.url), limiter=limiter) as harness,
        httpx.AsyncClient() as client,
    ):
        calls = [asyncio.create_task(post(client, f"{harness.url}/gateway/work/~s1")) for _ in range(3)]
        await until(lambda: provider.in_flight == 2)
        status = limiter.scope_status("anthropic/work")
        assert status is not None
        assert (status.in_flight, status.queued) == (2, 1)

        assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200, 200, 200]
        status = limiter.scope_status("anthropic/work")
        assert status is not None
        assert (status.in_flight, provider.peak_concurrency) == (1, 2)
    assert limiter.scope_status(SESSIONS) is not None


@pytest.mark.parametrize("name", ["", "s" * 201, "a%00b"])
async def test_a_session_in_the_path_must_be_a_name(name: str) -> None:
    async with (
        FakeProvider() as provider,
        GatewayHarness(account(provider.url)) as harness,
        httpx.AsyncClient() as client,
    ):
        answer = await post(client, f"{harness.url}/gateway/work/~{name}")

        assert (answer.status_code, answer.json()["type"], provider.requests) == (400, "error", [])


async def test_the_tokens_that_calls_ask_for_count_against_the_tokens_per_minute() -> None:
    limiter = Limiter(rates={"anthropic/work": Rate(tpm=1000)})
    async with (
        FakeProvider() as provider,
        GatewayHarness(account(provider.url), limiter=limiter) as harness,
        httpx.AsyncClient() as client,
    ):
        held = await limiter.acquire("anthropic/work", tokens=900)
        big = {**CALL, "max_tokens": 500}
        refused = await client.post(
            f"{harness.url}/gateway/work/v1/messages",
            content=json.dumps(big),
            headers={"x-api-key": TOKEN, "x-paceline-max-wait": "0.05"},
        )
        held.release()

        assert refused.status_code == 429
        assert "has used 900 tokens in the last minute (tpm 1,000)" in refused.json()["error"]["message"]
        assert 50 <= int(refused.headers["retry-after"]) <= 60
        assert (await post(client, f"{harness.url}/gateway/work")).status_code == 200


@pytest.mark.parametrize(("longest", "statuses"), [(b"", [200, 200, 429]), (b', "max_tokens": 600', [200, 429, 429])])
async def test_a_minute_exceeds_its_tokens_at_most_by_answers_in_flight_that_named_no_longest_one(
    longest: bytes, statuses: list[int]
) -> None:
    limiter = Limiter(rates={"anthropic/work": Rate(tpm=1000)})
    call = raw_post(b'{"model": "claude-opus-4-6"%b}' % longest, b"x-paceline-max-wait: 0.05")
    async with (
        RawUpstream(answering(ok(b'{"usage": {"input_tokens": 10, "output_tokens": 590}}'))) as upstream,
        GatewayHarness(account(upstream.url), limiter=limiter) as harness,
        await connect(harness.port) as client,
    ):
        answers = []
        for _ in range(3):
            client.send(call)
            answers.append(await client.read_message())

    assert [got.status for got in answers] == statuses
    used = 1200 if not longest else 600
    assert f"has used {used:,} tokens in the last minute (tpm 1,000)".encode() in answers[-1].body
