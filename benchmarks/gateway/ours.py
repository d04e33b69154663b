"""Our gateway in its own process, with the limiter, the keys, the books and the store it has in production.

Prints its port, a client's key without rules, and one with all of them.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import uvicorn
import uvloop

from paceline import Limiter
from paceline.agents.account import Account
from paceline.clock import SystemClock
from paceline.engine.commands import KeyRequest, create_key, scope_of_key
from paceline.engine.engine import collect_seldom
from paceline.gateway import ClientKeys, Gateway, RequestAccess, make_server_protocol
from paceline.metrics import MetricsRegistry
from paceline.settings import KeyPoolSettings, Settings
from paceline.store import SqliteStore

MOST = 10**9
"""A limit that is never reached."""
PLAIN = KeyRequest(name="plain")
RULED = KeyRequest(name="ruled", models=("gpt-*",), parallel=MOST, rpm=MOST, tpm=MOST, budget="$900000000/month")
"""A key with every rule, none of which is ever reached."""


async def nothing(scope: object, receive: object, send: object) -> None:
    """Serve no API."""


async def serve(base_url: str, token: str, folder: Path) -> None:
    clock, store = SystemClock(), SqliteStore(folder / "paceline.db")
    accounts = [
        Account(name=name, provider="openai", kind="metered", base_url=base_url, key_env="KEY")
        for name in ("work", "second")
    ]
    scope = scope_of_key(RULED.name)
    access = RequestAccess(accounts, token=token, environ={"KEY": "sk-benchmark"})
    gateway = Gateway(
        Limiter(
            max_parallel_runs=None,
            limits={"openai/*/*": 5000, scope: MOST},
            rates={scope: {"rpm": MOST, "tpm": MOST}},
            clock=clock,
        ),
        access,
        clock=clock,
        metrics=MetricsRegistry(),
    )
    access.keys = ClientKeys(store.client_keys)
    access.use_pools({"team": KeyPoolSettings(name="team", accounts=("work", "second"))})
    gateway.calls.spend.use_store(store)
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
    collect_seldom()
    settings = Settings(home=folder, store_url="sqlite://")
    keys = [create_key(store, settings, request, now=clock.now())[1] for request in (PLAIN, RULED)]
    print(server.servers[0].sockets[0].getsockname()[1], *keys, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        uvloop.run(serve(sys.argv[1], sys.argv[2], Path(folder)))
