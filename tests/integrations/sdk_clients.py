"""The official SDKs with `SlotTransport`, each set up with the one line that the documentation shows."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
from google import genai
from google.genai.types import HttpOptions

from paceline.integrations.httpx2 import SlotTransport, SyncSlotTransport

HI: Any = [{"role": "user", "content": "Say hello."}]


class Sdk(msgspec.Struct, frozen=True):
    """One SDK in asyncio: `ask` returns the text, `stream` yields it in pieces."""

    name: str
    provider: str
    model: str
    rate_limit_error: type[Exception]
    connect: Callable[[str, SlotTransport], Any]
    ask: Callable[[Any, str], Awaitable[str]]
    stream: Callable[[Any, str], AsyncIterator[str]]


def connect_anthropic(url: str, transport: SlotTransport) -> Any:
    return anthropic.AsyncAnthropic(
        api_key="k", base_url=url, http_client=httpx2.AsyncClient(transport=transport), max_retries=0
    )


async def ask_anthropic(client: Any, model: str) -> str:
    message = await client.messages.create(model=model, max_tokens=100, messages=HI)
    return str(message.content[0].text)


async def stream_anthropic(client: Any, model: str) -> AsyncIterator[str]:
    async with client.messages.stream(model=model, max_tokens=100, messages=HI) as stream:
        async for text in stream.text_stream:
            yield text


def connect_openai(url: str, transport: SlotTransport) -> Any:
    return openai.AsyncOpenAI(
        api_key="k", base_url=f"{url}/v1", http_client=httpx2.AsyncClient(transport=transport), max_retries=0
    )


async def ask_chat(client: Any, model: str) -> str:
    completion = await client.chat.completions.create(model=model, messages=HI)
    return str(completion.choices[0].message.content)


async def stream_chat(client: Any, model: str) -> AsyncIterator[str]:
    stream = await client.chat.completions.create(
        model=model, messages=HI, stream=True, stream_options={"include_usage": True}
    )
    async with stream:
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


async def ask_responses(client: Any, model: str) -> str:
    response = await client.responses.create(model=model, input="Say hello.")
    return str(response.output_text)


async def stream_responses(client: Any, model: str) -> AsyncIterator[str]:
    async with client.responses.stream(model=model, input="Say hello.") as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta


def connect_gemini(url: str, transport: SlotTransport) -> Any:
    options = HttpOptions(base_url=url, httpx_async_client=httpx2.AsyncClient(transport=transport))
    return genai.Client(api_key="k", http_options=options).aio


async def ask_gemini(client: Any, model: str) -> str:
    answer = await client.models.generate_content(model=model, contents="Say hello.")
    return str(answer.text)


async def stream_gemini(client: Any, model: str) -> AsyncIterator[str]:
    stream = await client.models.generate_content_stream(model=model, contents="Say hello.")
    try:
        async for chunk in stream:
            if chunk.text:
                yield chunk.text
    finally:
        await stream.aclose()


SDKS = [
    Sdk("anthropic", "anthropic", "claude-opus-4-6", anthropic.RateLimitError, connect_anthropic, ask_anthropic,
        stream_anthropic),
    Sdk("chat", "openai", "gpt-5", openai.RateLimitError, connect_openai, ask_chat, stream_chat),
    Sdk("responses", "openai", "gpt-5", openai.RateLimitError, connect_openai, ask_responses, stream_responses),
    Sdk("gemini", "gemini", "gemini-2.5-pro", genai.errors.ClientError, connect_gemini, ask_gemini, stream_gemini),
]  # fmt: skip


@asynccontextmanager
async def connected(sdk: Sdk, url: str, transport: SlotTransport) -> AsyncIterator[Any]:
    client = sdk.connect(url, transport)
    try:
        yield client
    finally:
        await (client.aclose() if sdk.name == "gemini" else client.close())
        await transport.aclose()


# -- the same, blocking ------------------------------------------------------------------------------


class SyncSdk(msgspec.Struct, frozen=True):
    name: str
    provider: str
    model: str
    ask: Callable[[str, SyncSlotTransport, str], str]
    stream: Callable[[str, SyncSlotTransport, str], Iterator[str]]


def _sync_anthropic(url: str, transport: SyncSlotTransport) -> anthropic.Anthropic:
    http_client = httpx2.Client(transport=transport)
    return anthropic.Anthropic(api_key="k", base_url=url, http_client=http_client, max_retries=0)


def ask_sync_anthropic(url: str, transport: SyncSlotTransport, model: str) -> str:
    with _sync_anthropic(url, transport) as client:
        message: Any = client.messages.create(model=model, max_tokens=100, messages=HI)
        return str(message.content[0].text)


def stream_sync_anthropic(url: str, transport: SyncSlotTransport, model: str) -> Iterator[str]:
    with (
        _sync_anthropic(url, transport) as client,
        client.messages.stream(model=model, max_tokens=100, messages=HI) as stream,
    ):
        yield from stream.text_stream


def ask_sync_openai(url: str, transport: SyncSlotTransport, model: str) -> str:
    http_client = httpx2.Client(transport=transport)
    with openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http_client, max_retries=0) as client:
        return str(client.responses.create(model=model, input="Say hello.").output_text)


def stream_sync_openai(url: str, transport: SyncSlotTransport, model: str) -> Iterator[str]:
    http_client = httpx2.Client(transport=transport)
    with (
        openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http_client, max_retries=0) as client,
        client.chat.completions.create(model=model, messages=HI, stream=True) as stream,
    ):
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


@contextmanager
def _sync_gemini(url: str, transport: SyncSlotTransport) -> Iterator[genai.Client]:
    """Close the HTTP client too: this SDK leaves it open."""
    with httpx2.Client(transport=transport) as http_client:
        options = HttpOptions(base_url=url, httpx_client=http_client)
        with genai.Client(api_key="k", http_options=options) as client:
            yield client


def ask_sync_gemini(url: str, transport: SyncSlotTransport, model: str) -> str:
    with _sync_gemini(url, transport) as client:
        return str(client.models.generate_content(model=model, contents="Say hello.").text)


def stream_sync_gemini(url: str, transport: SyncSlotTransport, model: str) -> Iterator[str]:
    with _sync_gemini(url, transport) as client:
        for chunk in client.models.generate_content_stream(model=model, contents="Say hello."):
            yield chunk.text or ""


SYNC_SDKS = [
    SyncSdk("anthropic", "anthropic", "claude-opus-4-6", ask_sync_anthropic, stream_sync_anthropic),
    SyncSdk("openai", "openai", "gpt-5", ask_sync_openai, stream_sync_openai),
    SyncSdk("gemini", "gemini", "gemini-2.5-pro", ask_sync_gemini, stream_sync_gemini),
]
