"""The vendors' own SDKs through the gateway, with its base URL and the token as their key."""

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from google import genai
from google.genai import types as genai_types
from openai import AsyncOpenAI
from tests.gateway.gateway_harness import KEY, TOKEN, GatewayHarness, account
from tests.gateway.raw_http import RawUpstream, Wire, ok

from paceline import Limiter
from paceline.agents.account import Account
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Step

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

ANSWER = "Answer 1 to message 1 of this conversation: Say hi"


def accounts_at(url: str) -> tuple[Account, ...]:
    return (account(url, "claude"), account(url, "gpt", "openai"), account(url, "gem", "google"))


class Bench:
    """A client of each SDK, connected to the gateway."""

    def __init__(self, harness: GatewayHarness) -> None:
        url = f"{harness.url}/gateway"
        self.anthropic = AsyncAnthropic(api_key=TOKEN, base_url=f"{url}/claude", max_retries=0)
        self.openai = AsyncOpenAI(api_key=TOKEN, base_url=f"{url}/gpt/v1", max_retries=0)
        self.google = genai.Client(api_key=TOKEN, http_options=genai_types.HttpOptions(base_url=f"{url}/gem"))

    async def close(self) -> None:
        await self.anthropic.close()
        await self.openai.close()
        await self.google.aio.aclose()
        self.google.close()


async def ask_anthropic(bench: Bench) -> str:
    message = await bench.anthropic.messages.create(
        model="claude-opus-4-6", max_tokens=50, messages=[{"role": "user", "content": "Say hi"}]
    )
    block = message.content[0]
    assert block.type == "text"
    return block.text


async def stream_anthropic(bench: Bench) -> str:
    async with bench.anthropic.messages.stream(
        model="claude-opus-4-6", max_tokens=50, messages=[{"role": "user", "content": "Say hi"}]
    ) as stream:
        return "".join([text async for text in stream.text_stream])


async def ask_openai_chat(bench: Bench) -> str:
    completion = await bench.openai.chat.completions.create(
        model="gpt-5", messages=[{"role": "user", "content": "Say hi"}]
    )
    return completion.choices[0].message.content or ""


async def stream_openai_chat(bench: Bench) -> str:
    stream = await bench.openai.chat.completions.create(
        model="gpt-5", messages=[{"role": "user", "content": "Say hi"}], stream=True
    )
    return "".join([part.choices[0].delta.content or "" async for part in stream if part.choices])


async def ask_openai_responses(bench: Bench) -> str:
    response = await bench.openai.responses.create(model="gpt-5", input="Say hi")
    return response.output_text


async def stream_openai_responses(bench: Bench) -> str:
    stream = await bench.openai.responses.create(model="gpt-5", input="Say hi", stream=True)
    return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])


async def ask_google(bench: Bench) -> str:
    response = await bench.google.aio.models.generate_content(model="gemini-2.5-pro", contents="Say hi")
    return response.text or ""


async def stream_google(bench: Bench) -> str:
    stream = await bench.google.aio.models.generate_content_stream(model="gemini-2.5-pro", contents="Say hi")
    return "".join([part.text or "" async for part in stream])


MODELS = {"anthropic": "claude-opus-4-6", "openai": "gpt-5", "google": "gemini-2.5-pro"}
ASKING = {
    "anthropic": (ask_anthropic, "anthropic/claude/opus-4-6"),
    "anthropic stream": (stream_anthropic, "anthropic/claude/opus-4-6"),
    "openai chat": (ask_openai_chat, "openai/gpt/gpt-5"),
    "openai chat stream": (stream_openai_chat, "openai/gpt/gpt-5"),
    "openai responses": (ask_openai_responses, "openai/gpt/gpt-5"),
    "openai responses stream": (stream_openai_responses, "openai/gpt/gpt-5"),
    "google": (ask_google, "google/gem/gemini-2.5-pro"),
    "google stream": (stream_google, "google/gem/gemini-2.5-pro"),
}


@pytest.mark.parametrize("way", ASKING)
async def test_an_sdk_works_through_the_gateway_with_the_token_as_its_key(way: str) -> None:
    ask, scope = ASKING[way]
    async with FakeProvider() as provider, GatewayHarness(*accounts_at(provider.url)) as harness:
        bench = Bench(harness)
        answer = await ask(bench)
        await bench.close()

        assert answer == ANSWER
        assert [(record.key, record.ending) for record in provider.requests] == [(KEY, "served")]
        assert harness.in_flight == 0
        assert sum(harness.metrics.tokens.values.values()) > 0
        assert {labels[0] for labels in harness.metrics.tokens.values} == {scope}
        (listed,) = harness.gateway.calls.requests(10).recent
        assert (listed.scope, listed.status, listed.model) == (scope, 200, MODELS[scope.partition("/")[0]])
        assert listed.tokens is not None
        assert min(listed.tokens.input, listed.tokens.output) > 0
        assert (listed.cost.billed or 0.0) > 0.0


@pytest.mark.parametrize("way", ASKING)
async def test_an_sdk_does_not_see_a_429_that_the_gateway_waited_out(way: str) -> None:
    ask, _ = ASKING[way]
    scenario = Scenario(script=(Step(error="429_retry_after", retry_after=0.1),))
    async with FakeProvider(scenario) as provider, GatewayHarness(*accounts_at(provider.url)) as harness:
        bench = Bench(harness)
        answer = await ask(bench)
        await bench.close()

        assert answer == ANSWER
        assert [record.status for record in provider.requests] == [429, 200]
        assert harness.in_flight == 0


async def test_an_sdk_retries_by_itself_after_an_upstream_failure() -> None:
    async def handle(wire: Wire) -> None:
        await wire.read_message()
        if upstream.connections == 1:
            wire.close()
        else:
            wire.send(ok(b'{"id": "1", "choices": [{"message": {"content": "at last"}}]}'))

    async with RawUpstream(handle) as upstream, GatewayHarness(*accounts_at(upstream.url)) as harness:
        bench = Bench(harness)
        bench.openai.max_retries = 1
        answer = await ask_openai_chat(bench)
        await bench.close()

        assert (answer, upstream.connections, harness.in_flight) == ("at last", 2, 0)


async def test_an_unreachable_upstream_is_the_sdks_own_server_error() -> None:
    async with GatewayHarness(*accounts_at("http://127.0.0.1:9")) as harness:
        bench = Bench(harness)
        with pytest.raises(anthropic.InternalServerError, match="no connection"):
            await ask_anthropic(bench)
        with pytest.raises(openai.InternalServerError, match="no connection"):
            await ask_openai_chat(bench)
        with pytest.raises(genai.errors.ServerError, match="no connection"):
            await ask_google(bench)
        await bench.close()


async def test_each_sdk_raises_its_own_error_when_the_wait_runs_out() -> None:
    limiter = Limiter(limits={"anthropic": 1, "openai": 1, "google": 1})
    wait = {"x-paceline-max-wait": "0.05"}
    async with FakeProvider() as provider, GatewayHarness(*accounts_at(provider.url), limiter=limiter) as harness:
        bench = Bench(harness)
        for provider_name in ("anthropic", "openai", "google"):
            await limiter.acquire(provider_name)
        with pytest.raises(anthropic.RateLimitError, match="at its limit"):
            await bench.anthropic.messages.create(
                model="opus-4-6", max_tokens=5, messages=[{"role": "user", "content": "hi"}], extra_headers=wait
            )
        with pytest.raises(openai.RateLimitError, match="at its limit"):
            await bench.openai.responses.create(model="gpt-5", input="hi", extra_headers=wait)
        with pytest.raises(genai.errors.ClientError, match=r"429 RESOURCE_EXHAUSTED.*at its limit"):
            await bench.google.aio.models.generate_content(
                model="gemini-2.5-pro",
                contents="hi",
                config={"http_options": {"headers": wait}},
            )
        await bench.close()

        assert provider.requests == []
