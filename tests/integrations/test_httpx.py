"""The transport in plain clients of both libraries, with bodies and responses that the SDKs do not produce."""

import gzip
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import pytest
from aiohttp import web

import paceline.integrations.httpx
import paceline.integrations.httpx2
from paceline import Limiter
from paceline.testing import FakeProvider

BOTH = pytest.mark.parametrize(
    ("library", "transports"),
    [(httpx, paceline.integrations.httpx), (httpx2, paceline.integrations.httpx2),
     (httpx2, paceline.integrations.httpx)],
    ids=["httpx", "httpx2", "httpx2-by-the-other-name"],
)  # fmt: skip
CALL = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def in_flight(limiter: Limiter) -> int:
    return sum(status.in_flight for status in limiter.statuses())


@BOTH
async def test_a_plain_client_waits_out_a_refusal(library: Any, transports: Any) -> None:
    limiter = Limiter()
    transport = transports.SlotTransport(limiter, "anthropic/work-key")
    async with FakeProvider() as provider, library.AsyncClient(transport=transport) as client:
        provider.script("429_retry_after", retry_after=0.5)

        answer = await client.post(f"{provider.url}/v1/messages", json=CALL, headers={"x-api-key": "k"})

        assert [request.status for request in provider.requests] == [429, 200]
    assert (answer.status_code, answer.json()["type"], in_flight(limiter)) == (200, "message", 0)


@BOTH
def test_a_plain_blocking_client_gets_its_response(library: Any, transports: Any) -> None:
    limiter = Limiter()
    transport = transports.SyncSlotTransport(limiter, "anthropic/work-key")
    with FakeProvider() as provider, library.Client(transport=transport) as client:
        answer = client.post(f"{provider.url}/v1/messages", json=CALL)

    assert answer.json()["type"] == "message"
    limiter.from_thread.close()


@BOTH
async def test_a_body_that_is_streamed_is_sent_once_and_not_kept(library: Any, transports: Any) -> None:
    limiter = Limiter()
    transport = transports.SlotTransport(limiter, "anthropic/work-key")

    async def body() -> AsyncIterator[bytes]:
        yield b'{"model": "claude-opus-4-6", "max_tokens": 9,'
        yield b'"messages": [{"role": "user", "content": "hi"}]}'

    async with FakeProvider() as provider, library.AsyncClient(transport=transport) as client:
        provider.script("429_retry_after")

        answer = await client.post(f"{provider.url}/v1/messages", content=body())

        assert [request.status for request in provider.requests] == [429]
    assert (answer.status_code, in_flight(limiter)) == (429, 0)


@BOTH
async def test_a_compressed_refusal_is_read_and_forwarded_as_it_came(library: Any, transports: Any) -> None:
    limiter = Limiter()
    body = gzip.compress(b'{"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "quota"}}')

    async def refuse(request: web.Request) -> web.Response:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        return web.Response(status=429, body=body, headers=headers)

    app = web.Application()
    app.router.add_post("/v1/responses", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    transport = transports.SlotTransport(limiter, "openai/work-key")
    async with library.AsyncClient(transport=transport) as client:
        answer = await client.post(f"http://{host}:{port}/v1/responses", json={"model": "gpt-5"})
    await runner.cleanup()

    assert answer.json()["error"]["code"] == "insufficient_quota"
    status = limiter.scope_status("openai/work-key")
    assert status is not None
    assert status.held is not None


async def test_a_request_of_another_library_is_rejected_with_a_message() -> None:
    transport = paceline.integrations.httpx.SlotTransport(Limiter(), "openai/work-key")

    with pytest.raises(ValueError, match="requests of httpx and httpx2"):
        await transport.handle_async_request(object())
