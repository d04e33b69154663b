"""The fake provider over real HTTP: every protocol with and without streaming, limits on a virtual clock."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from paceline.errors import InvalidInput
from paceline.testing import FakeProvider, VirtualClock
from paceline.testing.provider import Burst, Episode, Scenario, Step, Window

KEY = {"x-api-key": "k1"}
ANSWER = "Answer 1 to message 1 of this conversation: hi"


def call_of(protocol: str, *, stream: bool, prompt: str = "hi") -> tuple[str, dict[str, Any]]:
    """Path and body of a request in that protocol."""
    message = {"role": "user", "content": prompt}
    match protocol:
        case "anthropic":
            return "/v1/messages?beta=true", {"model": "claude-opus-4-6", "messages": [message], "stream": stream}
        case "openai-chat":
            return "/v1/chat/completions", {"model": "gpt-5", "messages": [message], "stream": stream}
        case "openai-responses":
            return "/v1/responses", {"model": "gpt-5", "input": [{"type": "message", **message}], "stream": stream}
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/gemini-2.5-pro:{method}", {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}


def text_in(protocol: str, body: dict[str, Any]) -> str:
    match protocol:
        case "anthropic":
            return str(body["content"][0]["text"])
        case "openai-chat":
            return str(body["choices"][0]["message"]["content"])
        case "openai-responses":
            return str(body["output"][0]["content"][0]["text"])
    return str(body["candidates"][0]["content"]["parts"][0]["text"])


def events_in(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def streamed_text(protocol: str, events: list[dict[str, Any]]) -> str:
    match protocol:
        case "anthropic":
            return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
        case "openai-chat":
            return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
        case "openai-responses":
            return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    return "".join(event["candidates"][0]["content"]["parts"][0]["text"] for event in events)


PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")


class Client:
    """A client of one provider."""

    def __init__(self, provider: FakeProvider, http: httpx.AsyncClient) -> None:
        self.provider = provider
        self.http = http

    async def ask(
        self, protocol: str = "anthropic", *, stream: bool = False, prompt: str = "hi", key: str = "k1"
    ) -> httpx.Response:
        path, body = call_of(protocol, stream=stream, prompt=prompt)
        return await self.http.post(self.provider.url + path, json=body, headers={"x-api-key": key})

    async def statuses(self, times: int) -> list[int]:
        return [(await self.ask()).status_code for _ in range(times)]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        yield client


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_answer_in_one_piece(protocol: str, http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        response = await Client(provider, http).ask(protocol)
    assert (response.status_code, text_in(protocol, response.json())) == (200, ANSWER)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_answer_as_a_stream(protocol: str, http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        response = await Client(provider, http).ask(protocol, stream=True)
    assert response.headers["content-type"] == "text/event-stream"
    assert streamed_text(protocol, events_in(response.text)) == ANSWER


async def test_a_request_is_recorded_with_its_facts(http: httpx.AsyncClient) -> None:
    clock = VirtualClock(start=1000.0)
    async with FakeProvider(clock=clock) as provider:
        path, body = call_of("anthropic", stream=False)
        body["metadata"] = {"user_id": "user_1_account__session_abc"}
        await http.post(provider.url + path, json=body, headers=KEY | {"x-request-source": "test"})
    record = provider.requests[0]
    assert (record.path, record.protocol, record.key, record.model, record.session) == (
        "/v1/messages?beta=true",
        "anthropic",
        "k1",
        "claude-opus-4-6",
        "abc",
    )
    assert (record.prompts, record.status, record.ending, record.started_at, record.ended_at) == (
        ("hi",),
        200,
        "served",
        1000.0,
        1000.0,
    )
    assert record.headers["x-request-source"] == "test"
    assert "x-api-key" not in record.headers


async def test_the_answer_shows_that_a_conversation_was_resumed(http: httpx.AsyncClient) -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": [{"type": "text", "text": "second"}]},
    ]
    async with FakeProvider() as provider:
        response = await http.post(provider.url + "/v1/messages", json={"model": "m", "messages": messages})
    assert text_in("anthropic", response.json()) == "Answer 2 to message 2 of this conversation: second"
    assert (provider.requests[0].prompts, provider.requests[0].answers) == (("first", "second"), 1)


async def test_capacity_and_lag_as_a_client_meets_them(http: httpx.AsyncClient) -> None:
    clock = VirtualClock()
    async with FakeProvider(Scenario(concurrency=2, lag=5.0, latency=10.0), clock=clock) as provider:
        client = Client(provider, http)
        running = [asyncio.create_task(client.ask()) for _ in range(2)]
        await provider.until(lambda: provider.in_flight == 2)
        assert await usage(provider, http) == 2

        refused = await client.ask()
        await clock.advance(10.0)
        answers = await asyncio.gather(*running)
        still_refused = await client.ask()
        counted_in_lag = await usage(provider, http)
        await clock.advance(5.0)

        assert [answer.status_code for answer in answers] == [200, 200]
        assert (refused.status_code, still_refused.status_code, counted_in_lag) == (429, 429, 2)
        assert await usage(provider, http) == 0
    assert (provider.peak_concurrency, provider.rate_limited, provider.usage_polls) == (2, 2, 3)


async def usage(provider: FakeProvider, http: httpx.AsyncClient) -> int:
    response = await http.get(provider.url + "/usage", headers={"authorization": "Bearer k1"})
    return int(response.json()["usage"]["concurrent_sessions"])


async def test_usage_tells_the_count_and_the_limit_of_the_key(http: httpx.AsyncClient) -> None:
    async with FakeProvider(Scenario(concurrency=4)) as provider:
        response = await http.get(provider.url + "/usage", headers={"authorization": "Bearer k1"})
    assert response.json() == {
        "usage": {"concurrent_sessions": 0},
        "limits": {"concurrency": {"limit": 4, "hard_cap": 4}},
    }


async def test_usage_may_fail_by_script_or_be_missing(http: httpx.AsyncClient) -> None:
    async with FakeProvider(Scenario(script=(Step(error="500", endpoint="usage"),))) as provider:
        failed = await http.get(provider.url + "/usage")
        mended = await http.get(provider.url + "/usage")
    async with FakeProvider(Scenario(usage=False)) as provider:
        missing = await http.get(provider.url + "/usage")
    assert [failed.status_code, mended.status_code, missing.status_code] == [500, 200, 404]


async def test_a_client_that_hangs_up_frees_its_place_at_once(http: httpx.AsyncClient) -> None:
    clock = VirtualClock()
    async with FakeProvider(Scenario(concurrency=1, tokens_per_second=1.0), clock=clock) as provider:
        client = Client(provider, http)
        leaving = asyncio.create_task(client.ask(stream=True))
        await provider.until(lambda: provider.in_flight == 1)

        leaving.cancel()
        await provider.until(lambda: provider.in_flight == 0)

        assert provider.requests[0].ending == "client_left"


async def test_tokens_come_at_their_speed(http: httpx.AsyncClient) -> None:
    clock = VirtualClock()
    async with FakeProvider(Scenario(latency=3.0, tokens_per_second=2.0, reply_tokens=4), clock=clock) as provider:
        asking = asyncio.create_task(Client(provider, http).ask(stream=True))
        await provider.until(lambda: provider.in_flight == 1)
        await clock.advance(3.0)
        await provider.until(lambda: provider.requests[0].status == 200)
        await clock.advance(2.0)
        response = await asking
    assert streamed_text("anthropic", events_in(response.text)) == "Answer 1 to message"
    assert provider.requests[0].ended_at == 5.0


async def test_a_spent_window_says_so_in_each_protocols_own_way(http: httpx.AsyncClient) -> None:
    clock = VirtualClock(start=1_800_000_000.0)
    scenario = Scenario(windows=(Window(name="5h", requests=1), Window(name="7d", seconds=604800.0, requests=100)))
    async with FakeProvider(scenario, clock=clock) as provider:
        client = Client(provider, http)
        served = await client.ask("anthropic", key="a")
        spent = await client.ask("anthropic", key="a")
        codex = [await client.ask("openai-responses", key="b") for _ in range(2)][1]
        google = [await client.ask("gemini", key="c") for _ in range(2)][1]
        await clock.advance(5 * 3600.0)
        reopened = await client.ask("anthropic", key="a")
    reset = "1800018000"
    unified = {name: value for name, value in spent.headers.items() if "unified-5h" in name}
    assert unified == {
        "anthropic-ratelimit-unified-5h-status": "rejected",
        "anthropic-ratelimit-unified-5h-reset": reset,
        "anthropic-ratelimit-unified-5h-utilization": "1.00",
    }
    assert (
        served.headers["anthropic-ratelimit-unified-status"],
        spent.headers["anthropic-ratelimit-unified-status"],
    ) == (
        "allowed_warning",
        "rejected",
    )
    assert (spent.headers["retry-after"], spent.headers["anthropic-ratelimit-unified-7d-status"]) == (
        "18000",
        "allowed",
    )
    assert codex.json()["error"]["resets_at"] == int(reset)
    assert {name: value for name, value in codex.headers.items() if name.startswith("x-codex-secondary")} == {
        "x-codex-secondary-used-percent": "1.0",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": "1800604800",
        "x-codex-secondary-reset-after-seconds": "604800",
    }
    details = {detail["@type"].rpartition(".")[2]: detail for detail in google.json()["error"]["details"]}
    assert "PerDay" in details["QuotaFailure"]["violations"][0]["quotaId"]
    assert details["RetryInfo"]["retryDelay"] == "18000s"
    assert reopened.status_code == 200


async def test_rate_headers_in_both_dialects(http: httpx.AsyncClient) -> None:
    clock = VirtualClock(start=1_800_000_000.0)
    async with FakeProvider(Scenario(requests_per_minute=2), clock=clock) as provider:
        client = Client(provider, http)
        anthropic = await client.ask("anthropic", key="a")
        openai = await client.ask("openai-chat", key="b")
        refused = [await client.ask("anthropic", key="a") for _ in range(2)][1]
    assert {name: value for name, value in anthropic.headers.items() if "ratelimit" in name} == {
        "anthropic-ratelimit-requests-limit": "2",
        "anthropic-ratelimit-requests-remaining": "1",
        "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:30Z",
    }
    assert {name: value for name, value in openai.headers.items() if "ratelimit" in name} == {
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "30s",
    }
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")


async def test_a_provider_that_announces_nothing(http: httpx.AsyncClient) -> None:
    async with FakeProvider(Scenario(requests_per_minute=1, announce=False)) as provider:
        client = Client(provider, http)
        responses = [await client.ask() for _ in range(2)]
    told = [name for response in responses for name in response.headers if "limit" in name or "retry" in name]
    assert ([response.status_code for response in responses], told) == ([200, 429], [])


async def test_an_overload_and_a_burst_limit(http: httpx.AsyncClient) -> None:
    clock = VirtualClock()
    scenario = Scenario(overloads=(Episode(start=10.0, seconds=5.0),), burst=Burst(starts=2, seconds=1.0))
    async with FakeProvider(scenario, clock=clock) as provider:
        client = Client(provider, http)
        at_start = await client.statuses(3)
        await clock.advance(10.0)
        overloaded = await client.statuses(1)
        await clock.advance(5.0)
        after = await client.statuses(1)
    assert (at_start, overloaded, after) == ([200, 200, 429], [529], [200])


async def test_a_script_is_used_up_in_order_and_then_all_is_normal(http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        provider.script("429_retry_after", times=2, retry_after=7.0)
        provider.script("ok")
        provider.script("529")
        client = Client(provider, http)
        responses = [await client.ask() for _ in range(5)]
    assert [response.status_code for response in responses] == [429, 429, 200, 529, 200]
    assert responses[0].headers["retry-after"] == "7"
    assert [record.error for record in provider.requests] == ["429_retry_after", "429_retry_after", None, "529", None]


async def test_a_request_that_a_spent_window_refuses_uses_up_no_step_with_an_answer(http: httpx.AsyncClient) -> None:
    clock = VirtualClock()
    scenario = Scenario(
        windows=(Window(requests=1, seconds=60.0),), script=(Step(error="ok"), Step(error="ok", text="B"))
    )
    async with FakeProvider(scenario, clock=clock) as provider:
        client = Client(provider, http)
        answers = [await client.ask(), await client.ask()]
        await clock.advance(60.0)
        answers.append(await client.ask())

        endings = [record.ending for record in provider.requests]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert endings == ["served", "refused", "served"]
    assert text_in("anthropic", answers[2].json()) == "B"


async def test_a_script_may_concern_one_key_or_model_only(http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        provider.script("401", times=None, keys="bad*")
        provider.script("429_unified", times=None, models="*opus*")
        client = Client(provider, http)
        answers = [
            await client.ask("openai-chat", key="bad-1"),
            await client.ask("openai-chat"),
            await client.ask("anthropic"),
        ]
    assert [answer.status_code for answer in answers] == [401, 200, 429]


async def test_a_name_that_nobody_knows_is_refused_at_once() -> None:
    provider = FakeProvider()
    with pytest.raises(InvalidInput, match="no error is called 'teapot'"):
        provider.script("teapot")


async def test_only_known_keys_are_let_in(http: httpx.AsyncClient) -> None:
    async with FakeProvider(Scenario(keys=("k1",))) as provider:
        client = Client(provider, http)
        answers = [await client.ask(key="k1"), await client.ask(key="k2")]
    assert [answer.status_code for answer in answers] == [200, 401]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_that_fails_half_way(protocol: str, http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        provider.script("midstream_overloaded")
        response = await Client(provider, http).ask(protocol, stream=True)
    events = events_in(response.text)
    text = streamed_text(protocol, events[:-1])
    assert (response.status_code, text, provider.requests[0].ending) == (200, "Answer 1 to message ", "cut")
    assert "verloaded" in json.dumps(events[-1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_connection_that_is_reset_half_way(protocol: str, http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        provider.script("midstream_rst")
        client = Client(provider, http)
        with pytest.raises(httpx.ReadError):
            await client.ask(protocol, stream=True)
        again = await client.ask(protocol, stream=True)
    assert (again.status_code, [record.ending for record in provider.requests]) == (200, ["cut", "served"])
    assert provider.in_flight == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_connection_that_is_reset_before_the_first_byte(stream: bool, http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        provider.script("rst")
        client = Client(provider, http)
        with pytest.raises(httpx.TransportError):
            await client.ask(stream=stream)
        assert (await client.ask(stream=stream)).status_code == 200


async def test_a_stream_that_simply_ends(http: httpx.AsyncClient) -> None:
    async with FakeProvider() as provider:
        provider.script("midstream_end")
        response = await Client(provider, http).ask(stream=True)
    assert [event["type"] for event in events_in(response.text)][-1] == "content_block_delta"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_body_that_is_no_request_is_refused_in_the_protocols_shape(
    protocol: str, http: httpx.AsyncClient
) -> None:
    path, _ = call_of(protocol, stream=False)
    async with FakeProvider() as provider:
        bodies = (b"", b"[]", b"{", b"\xff\xfe", b'{"model": 3}')
        responses = [await http.post(provider.url + path, content=body) for body in bodies]
    assert {(response.status_code, sorted(response.json()["error"])[-1]) for response in responses} == {
        (400, "type" if protocol != "gemini" else "status")
    }


async def test_the_small_routes_that_clients_ask_first(http: httpx.AsyncClient) -> None:
    async with FakeProvider(Scenario(models=("m1",))) as provider:
        head = await http.head(provider.url + "/")
        models = (await http.get(provider.url + "/v1/models")).json()
        google_models = (await http.get(provider.url + "/v1beta/models")).json()
        counted = await http.post(provider.url + "/v1/messages/count_tokens", content=b"x" * 40)
        google_counted = await http.post(provider.url + "/v1beta/models/m1:countTokens", content=b"x" * 40)
    assert head.status_code == 200
    assert [model["id"] for model in models["data"]] == ["m1"]
    assert [model["name"] for model in google_models["models"]] == ["models/m1"]
    assert (counted.json(), google_counted.json()) == ({"input_tokens": 10}, {"totalTokens": 10})


def test_from_plain_code_it_runs_on_a_thread_of_its_own() -> None:
    with FakeProvider() as provider:
        path, body = call_of("anthropic", stream=False)
        answers = [httpx.post(provider.url + path, json=body, trust_env=False) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    with pytest.raises(RuntimeError, match="not running"):
        _ = provider.url


def test_as_a_process_it_prints_its_url_and_then_each_request() -> None:
    command = [sys.executable, "-m", "paceline.testing.provider", "--script", "429_plain:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        path, body = call_of("openai-chat", stream=False)
        answers = [httpx.post(url + path, json=body, trust_env=False).status_code for _ in range(2)]
        told = [json.loads(process.stdout.readline())["error"] for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert (answers, told) == ([429, 200], ["429_plain", None])
