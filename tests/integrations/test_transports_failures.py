"""Connections that break: the signals of a call without a response, or with an incomplete one."""

import asyncio
import time
from typing import Any

import httpx2
import pytest
from tests.daemon import Daemon
from tests.integrations.byte_server import BROKEN_BODY, BROKEN_REFUSAL, WHOLE, serving_bytes

from paceline import Client, Limiter
from paceline.core.signals import QuotaClosed
from paceline.integrations.httpx2 import SlotTransport, SyncSlotTransport
from paceline.testing import VirtualClock

SCOPE = "anthropic/work-key"
CALL = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
BREAKS = pytest.mark.parametrize("answer", [b"", BROKEN_BODY], ids=["before the head", "in the body"])


async def with_a_canary_to_send() -> Limiter:
    """Return a limiter whose next call is the canary of a closed window."""
    clock = VirtualClock()
    limiter = Limiter(clock=clock)
    limiter.report(SCOPE, QuotaClosed(resets_at=100.0, window="5h"))
    await clock.advance(103.0)  # the first look is one to three seconds after the reset
    return limiter


def window(limiter: Limiter) -> tuple[int, str]:
    """Return the slots in flight, and the state of the window."""
    status = limiter.scope_status(SCOPE)
    assert status is not None
    return status.in_flight, status.windows[0].state


async def post(limiter: Limiter | Client, url: str) -> Any:
    async with httpx2.AsyncClient(transport=SlotTransport(limiter, SCOPE)) as client:
        return await client.post(f"{url}/v1/messages", json=CALL)


async def post_blocking(limiter: Limiter, url: str) -> Any:
    def ask() -> Any:
        with httpx2.Client(transport=SyncSlotTransport(limiter, SCOPE)) as client:
            return client.post(f"{url}/v1/messages", json=CALL)

    return await asyncio.to_thread(ask)


EACH = pytest.mark.parametrize("ask", [post, post_blocking], ids=["asyncio", "blocking"])


@EACH
@BREAKS
async def test_a_call_that_breaks_is_no_success(ask: Any, answer: bytes) -> None:
    limiter = await with_a_canary_to_send()
    async with serving_bytes(answer) as url:
        with pytest.raises(httpx2.RemoteProtocolError):
            await ask(limiter, url)
    broken = window(limiter)

    async with serving_bytes(WHOLE) as url:
        await ask(limiter, url)

    assert (broken, window(limiter)) == ((0, "closed"), (0, "wave"))
    await limiter.aclose()


@EACH
async def test_a_provider_that_cannot_be_reached_is_no_success(ask: Any) -> None:
    limiter = await with_a_canary_to_send()

    with pytest.raises(httpx2.ConnectError):
        await ask(limiter, "http://127.0.0.1:9")

    assert window(limiter) == (0, "closed")
    await limiter.aclose()


@EACH
async def test_a_refusal_whose_body_breaks_off_is_reported(ask: Any) -> None:
    clock = VirtualClock()
    limiter = Limiter(clock=clock)
    async with serving_bytes(BROKEN_REFUSAL) as url:
        with pytest.raises(httpx2.RemoteProtocolError):
            await ask(limiter, url)

    status = limiter.scope_status(f"{SCOPE}/opus-4-6")
    assert status is not None
    assert (status.in_flight, status.paused_until) == (0, 50.0)
    await limiter.aclose()


async def test_a_stream_that_is_closed_early_counts_as_a_success() -> None:
    limiter = await with_a_canary_to_send()
    transport = SlotTransport(limiter, SCOPE)
    async with serving_bytes(BROKEN_BODY) as url, httpx2.AsyncClient(transport=transport) as client:
        async with client.stream("POST", f"{url}/v1/messages", json=CALL):
            pass

        assert window(limiter) == (0, "wave")
    await limiter.aclose()


async def test_a_broken_call_is_reported_to_the_daemon(daemon: Daemon) -> None:
    daemon.engine.limiter.report(SCOPE, QuotaClosed(resets_at=time.time() + 0.1, window="5h"))
    async with Client(daemon.url, daemon.tokens.full) as gate:
        async with serving_bytes(BROKEN_BODY) as url:
            with pytest.raises(httpx2.RemoteProtocolError):
                await post(gate, url)
        broken = window(daemon.engine.limiter)

        async with serving_bytes(WHOLE) as url:
            await post(gate, url)

        assert (broken, window(daemon.engine.limiter)) == ((0, "closed"), (0, "wave"))
