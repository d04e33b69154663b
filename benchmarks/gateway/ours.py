"""Our gateway in its own process, with the limiter, the signals and the metrics it has in production."""

import asyncio
import sys

import uvicorn
import uvloop

from paceline import Limiter
from paceline.clock import SystemClock
from paceline.gateway import Gateway, RequestAccess, make_server_protocol
from paceline.metrics import MetricsRegistry
from paceline.settings import AccountSettings


async def nothing(scope: object, receive: object, send: object) -> None:
    """Serve no API."""


async def serve(base_url: str, token: str) -> None:
    clock = SystemClock()
    account = AccountSettings(name="work", provider="openai", kind="metered", base_url=base_url, key_env="KEY")
    gateway = Gateway(
        Limiter(max_parallel_runs=None, limits={"openai/*/*": 5000}, clock=clock),
        RequestAccess([account], token=token, environ={"KEY": "sk-benchmark"}),
        clock=clock,
        metrics=MetricsRegistry(),
    )
    config = uvicorn.Config(
        nothing,
        http=make_server_protocol(gateway),
        loop="none",
        lifespan="off",
        log_level="error",
        port=0,
        backlog=2048,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2]))
