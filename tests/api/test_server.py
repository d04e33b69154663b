"""The server as its clients find it."""

import asyncio
import socket
from typing import Any

import httpx
import httpx2
import pytest

from paceline.api import server as serving
from paceline.api.server import serve


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Starts and stops; nobody asks it anything."""
    for message in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
        await receive()
        await send({"type": message})


async def test_clients_give_idle_connections_up_before_the_server_does() -> None:
    async with serve(application) as served:
        kept = served.config.timeout_keep_alive

    given_up = (httpx.Limits().keepalive_expiry, httpx2.Limits().keepalive_expiry)
    assert [seconds is not None and seconds < kept for seconds in given_up] == [True, True]


class Slow:
    """Answers on request of the test."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.was_cut_off = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await application(scope, receive, send)
            return
        self.is_asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.was_cut_off = True
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"at last"})


async def ask(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(url)).text


async def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    """Which a client does after 40 ms."""
    slow = Slow()
    async with serve(slow) as served:
        asking = asyncio.create_task(ask(served.url))
        await slow.is_asked.wait()
        (connection,) = served.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        is_sent_at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        slow.may_answer.set()

    assert (await asking, is_sent_at_once) == ("at last", 1)


async def test_an_answer_that_is_under_way_is_finished_before_the_server_ends() -> None:
    slow = Slow()
    async with serve(slow) as served:
        asking = asyncio.create_task(ask(served.url))
        await slow.is_asked.wait()
        served.stop()
        slow.may_answer.set()

    assert (await asking, slow.was_cut_off) == ("at last", False)


async def test_an_answer_that_takes_too_long_is_cut_off_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.05)
    slow = Slow()
    async with serve(slow) as served:
        asking = asyncio.create_task(ask(served.url))
        await slow.is_asked.wait()

    assert (await asking, slow.was_cut_off) == ("Internal Server Error", True)
