"""What people use: procrastinate and pgqueuer, each with the driver and the settings that its documentation recommends.

procrastinate: psycopg with a pool, tasks are coroutines, LISTEN/NOTIFY on, jobs stay in their table (its default).
pgqueuer: asyncpg, one connection for each queue manager, `pgq autovac` applied, durable tables (its default), uvloop.
Neither is asked for a result. Both fetch jobs, run a coroutine that does nothing, and record that it is done.
"""

import asyncio
import importlib
import importlib.util
import logging
import time
from typing import Any

import uvloop
from psycopg.conninfo import conninfo_to_dict

AT_ONCE = 1_000


def are_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("procrastinate", "pgqueuer", "asyncpg"))


def versions() -> str:
    metadata = importlib.import_module("importlib.metadata")
    return ", ".join(f"{name} {metadata.version(name)}" for name in ("procrastinate", "pgqueuer", "asyncpg", "psycopg"))


def drain_procrastinate(url: str, jobs: int, *, concurrency: int) -> float:
    """Return the jobs per second of one worker."""
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    return uvloop.run(_drain_procrastinate(url, jobs, concurrency))


async def _drain_procrastinate(url: str, jobs: int, concurrency: int) -> float:
    library = importlib.import_module("procrastinate")
    app = library.App(connector=library.PsycopgConnector(conninfo=url, min_size=4, max_size=concurrency + 4))
    done = 0

    @app.task(name="do_nothing")  # type: ignore[untyped-decorator]
    async def do_nothing(prompt: str) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for _ in range(0, jobs, AT_ONCE):
            await do_nothing.batch_defer_async(*[{"prompt": "do it"}] * AT_ONCE)
        started = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=concurrency, install_signal_handlers=False)
        seconds = time.perf_counter() - started
    assert done == jobs
    return jobs / seconds


def drain_pgqueuer(url: str, jobs: int, *, managers: int, batch: int) -> float:
    """Return the jobs per second of some queue managers in one process."""
    logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)
    return uvloop.run(_drain_pgqueuer(url, jobs, managers, batch))


async def _drain_pgqueuer(url: str, jobs: int, managers: int, batch: int) -> float:
    library = importlib.import_module("pgqueuer")
    drain = importlib.import_module("pgqueuer.types").QueueExecutionMode.drain
    queries = importlib.import_module("pgqueuer.queries").Queries(await _driver(url))
    await queries.install()
    await queries.optimize_autovacuum()
    for _ in range(0, jobs, AT_ONCE):
        await queries.enqueue(["do_nothing"] * AT_ONCE, [b"do it"] * AT_ONCE, [0] * AT_ONCE)
    done = 0

    async def do_nothing(job: object) -> None:
        nonlocal done
        done += 1

    queues = [library.PgQueuer(await _driver(url)) for _ in range(managers)]
    for queue in queues:
        queue.entrypoint("do_nothing")(do_nothing)
    started = time.perf_counter()
    await asyncio.gather(*(queue.run(batch_size=batch, mode=drain) for queue in queues))
    seconds = time.perf_counter() - started
    assert done == jobs
    return jobs / seconds


async def _driver(url: str) -> Any:
    parts = conninfo_to_dict(url)
    asyncpg = importlib.import_module("asyncpg")
    connection = await asyncpg.connect(
        host=parts.get("host"),
        port=int(parts.get("port") or 5432),
        user=parts.get("user"),
        password=parts.get("password"),
        database=parts["dbname"],
    )
    return importlib.import_module("pgqueuer.db").AsyncpgDriver(connection)
