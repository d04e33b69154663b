"""A home in which only the gateway is used: a daemon of its own, an upstream with prices, keys of clients."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from tests.gateway.daemon_process import Daemon
from tests.gateway.raw_http import RawUpstream, Wire, ok

ANSWER = json.dumps({"content": [], "usage": {"input_tokens": 1_000_000, "output_tokens": 1000}}).encode()
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
CALL_DOLLARS = 3.0
SETTINGS = """
[accounts.work-key]
provider = "anthropic"
kind = "metered"
base_url = "URL"
key_env = "WORK_KEY"
[prices]
"m" = { input = 2.0, output = 1000.0 }
"""


class GatewayHome:
    """The address of the page, and calls to the gateway."""

    def __init__(self, daemon: Daemon, client: httpx.Client) -> None:
        token = client.headers["authorization"].removeprefix("Bearer ")
        self.page = f"{client.base_url}?token={token}"
        self.daemon = daemon
        self._client = client
        self.refusals_left = 0

    def refuse_next(self) -> None:
        """Let the upstream answer the next call with a 429."""
        self.refusals_left += 1

    async def send(self, method: str, path: str, body: object = None) -> Any:
        answer = await asyncio.to_thread(self._client.request, method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def make_key(self, name: str, **settings: object) -> str:
        made = await self.send("POST", "/v1/keys", {"name": name, **settings})
        key: str = made["key"]
        return key

    async def call(self, key: str, model: str = "m", address: str = "work-key") -> int:
        """Send one call with a client's key to an account or a pool. Returns the status of the answer."""
        async with httpx.AsyncClient(
            base_url=self._client.base_url, headers={"x-api-key": key}, trust_env=False
        ) as http:
            answer = await http.post(f"/gateway/{address}/v1/messages", json={"model": model}, timeout=60)
        return answer.status_code


@contextlib.asynccontextmanager
async def gateway_home(folder: Path, extra: str = "") -> AsyncIterator[GatewayHome]:
    """Run the daemon and its upstream, whose address replaces `URL` in `extra`. A call costs `CALL_DOLLARS`."""

    homes: list[GatewayHome] = []

    async def answer(wire: Wire) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the upstream is closed
            while True:
                await wire.read_message()
                is_refused = homes[0].refusals_left > 0
                homes[0].refusals_left -= is_refused
                wire.send(REFUSAL if is_refused else ok(ANSWER))

    with contextlib.ExitStack() as stack:
        async with RawUpstream(answer) as provider:
            settings = (SETTINGS + extra).replace("URL", provider.url)
            daemon = Daemon(folder, settings, "", {"HOME": str(folder), "PATH": "/usr/bin:/bin"})
            client = await asyncio.to_thread(stack.enter_context, daemon.up())
            homes.append(GatewayHome(daemon, client))
            yield homes[0]
