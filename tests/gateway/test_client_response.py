"""Responses written to clients that may have left."""

import asyncio

from tests.gateway.gateway_harness import until

from paceline.gateway.client_response import ClientResponse
from paceline.gateway.upstream_pool import ResponseHead


async def test_a_response_to_a_client_that_has_just_left_is_dropped() -> None:
    loop = asyncio.get_running_loop()
    left: list[Exception | None] = []

    class Client(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            left.append(exc)

    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        transport, _ = await loop.create_connection(Client, *server.sockets[0].getsockname())
        answer = ClientResponse(transport, is_for_head=False, is_old=False, keep_alive=True)
        transport.abort()
        await until(lambda: left == [None])
        answer.begin(ResponseHead(200, b"OK", [], []), b"")
        answer.write(b"too late")
        answer.flush()
        answer.end([])

    assert transport.is_closing()
