"""The server as its clients find it."""

from typing import Any

import httpx
import httpx2

from paceline.api.serving import serve


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Starts and stops; nobody asks it anything."""
    for told in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
        await receive()
        await send({"type": told})


async def test_clients_give_idle_connections_up_before_the_server_does() -> None:
    async with serve(application) as served:
        kept = served._server.config.timeout_keep_alive

    given_up = (httpx.Limits().keepalive_expiry, httpx2.Limits().keepalive_expiry)
    assert [seconds is not None and seconds < kept for seconds in given_up] == [True, True]
