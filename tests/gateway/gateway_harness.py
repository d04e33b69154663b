"""A gateway behind a real server on loopback, with an application beside it, for tests."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import uvicorn

from paceline import Limiter
from paceline.agents.account import Account
from paceline.clock import Clock, SystemClock
from paceline.gateway import ClientKeys, Gateway, RequestAccess, SpendLedger, Timeouts, make_server_protocol
from paceline.metrics import MetricsRegistry
from paceline.settings import KeyPoolSettings

TOKEN = "paceline-token-1"
KEY = "sk-account-key"
ENVIRON = {"WORK_KEY": KEY}
PATIENCE_SECONDS = 60.0
QUICK_TIMEOUTS = Timeouts(head=0.2, body_idle=0.2, first_byte=0.2, upstream_idle=0.2, pooled=0.2, check_interval=0.02)
CLOSING_SECONDS = 0.1
"""Connections that are still busy after this are left open."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the request: a stand-in for the API."""
    assert scope["type"] == "http"
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    said = b"app %s %s %s" % (scope["method"].encode(), scope["path"].encode(), body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


Application = Callable[[Any, Any, Any], Awaitable[None]]


def account(base_url: str, name: str = "work", provider: str = "anthropic", **fields: Any) -> Account:
    fields = {"kind": "metered", "key_env": "WORK_KEY"} | fields
    return Account(name=name, provider=provider, base_url=base_url, **fields)


class GatewayHarness:
    """A served gateway: `async with GatewayHarness(account(url)) as harness` serves on `harness.port`."""

    def __init__(
        self,
        *accounts: Account,
        limiter: Limiter | None = None,
        clock: Clock | None = None,
        timeouts: Timeouts | None = None,
        environ: dict[str, str] | None = None,
        hosts: frozenset[str] | None = None,
        is_token: Callable[[bytes], bool] | None = None,
        is_session_key: Callable[[str, bytes], bool] | None = None,
        most_connections: int = 1000,
        spend: SpendLedger | None = None,
        keys: ClientKeys | None = None,
        pools: dict[str, KeyPoolSettings] | None = None,
        beside: Application = application,
    ) -> None:
        self.accounts = accounts
        self.clock = clock or SystemClock()
        self.limiter = limiter or Limiter(clock=self.clock)
        self.metrics = MetricsRegistry()
        self._timeouts = timeouts
        self._environ = ENVIRON if environ is None else environ
        self._hosts = hosts
        self._is_token = is_token
        self._is_session_key = is_session_key
        self._most_connections = most_connections
        self._spend = spend
        self._keys = keys or ClientKeys()
        self._pools = pools or {}
        self._beside = beside

    async def __aenter__(self) -> Self:
        self.gateway = Gateway(
            self.limiter,
            RequestAccess(
                self.accounts,
                token=TOKEN,
                environ=self._environ,
                hosts=self._hosts,
                is_token=self._is_token,
                is_session_key=self._is_session_key,
            ),
            clock=self.clock,
            metrics=self.metrics,
            timeouts=self._timeouts,
            spend=self._spend,
        )
        self.gateway.access.keys = self._keys
        self.gateway.access.use_pools(self._pools)
        config = uvicorn.Config(
            self._beside,
            http=make_server_protocol(self.gateway, most_connections=self._most_connections),
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            port=0,
            timeout_keep_alive=2,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup()
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.gateway.close()
        await self._close_server()
        await self.limiter.aclose()

    async def _close_server(self) -> None:
        """Close the server without the tenth of a second that uvicorn always waits."""
        for server in self._server.servers:
            server.close()
        connections = self._server.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await until(lambda: not connections)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def in_flight(self) -> int:
        """The number of live slots."""
        return self.limiter.status().active_runs


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds. Fail if it never does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in iter(condition, True):
            await asyncio.sleep(0)


async def run_loop(turns: int) -> None:
    """Let the event loop run for `turns` turns. All parties of a test share it, so bytes on the way arrive."""
    for _ in range(turns):
        await asyncio.sleep(0)
