"""Commands of other processes over PostgreSQL: they take effect although no heartbeat is due.

Time stands still in these tests, so a heartbeat of 30 seconds comes only where a test moves time.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from tests.postgres_server import empty_schema, running_server

from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import UnitSpec
from paceline.store.postgres import PostgresStore
from paceline.testing.engine_harness import EngineHarness

PATIENCE_SECONDS = 60.0
HEARTBEAT = 30.0
OPEN = "import sys; from paceline.store.postgres import PostgresStore; store = PostgresStore(sys.argv[1]);"
ADD = OPEN + (
    "from paceline.engine.command_log import event_of; from paceline.store import Campaign, UnitSpec;"
    "store.add_campaign(Campaign(name='night', command=('work',)), [UnitSpec(id=sys.argv[2])], update=False, now=1.0,"
    " events=[event_of('campaigns', now=1.0)])"
)
LIMIT = OPEN + (
    "from paceline.engine import command_log; command_log.send(store, 'limit', now=1.0, scope='sessions', limit=2)"
)


class Launches:
    """The units that were started, in order, as they start."""

    def __init__(self) -> None:
        self._units: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, launch: Launch) -> Run:
        self._units.put_nowait(launch.env["PACELINE_UNIT"])
        return Run(seconds=1e6)

    async def next(self) -> str:
        return await asyncio.wait_for(self._units.get(), PATIENCE_SECONDS)

    async def next_with_heartbeats(self, harness: EngineHarness) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self._units.empty():
                await harness.run(HEARTBEAT)
        return self._units.get_nowait()


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with empty_schema(postgres_url) as found:
        yield found


async def in_another_process(code: str, *arguments: str) -> None:
    command = [sys.executable, "-c", code, *arguments]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=PATIENCE_SECONDS)


async def test_units_that_another_process_adds_start_at_once(url: str) -> None:
    launches = Launches()
    with contextlib.closing(PostgresStore(url)) as store:
        async with EngineHarness(launches, store=store, heartbeat=HEARTBEAT) as harness:
            await harness.run(0.0)
            await in_another_process(ADD, url, "a")

            assert await launches.next() == "night/a"


async def test_a_limit_that_another_process_sets_holds_at_once(url: str) -> None:
    launches = Launches()
    with contextlib.closing(PostgresStore(url)) as store:
        async with EngineHarness(launches, store=store, pool=1, heartbeat=HEARTBEAT) as harness:
            harness.add("night", [UnitSpec(id="a"), UnitSpec(id="b")])
            await harness.run(0.0)
            first = await launches.next()
            await in_another_process(LIMIT, url)

            assert (first, await launches.next()) == ("night/a", "night/b")


async def test_an_engine_hears_of_commands_again_after_its_connection_was_ended(url: str) -> None:
    launches = Launches()
    with contextlib.closing(PostgresStore(url)) as store:
        async with EngineHarness(launches, store=store, heartbeat=HEARTBEAT) as harness:
            await harness.run(0.0)
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
            await in_another_process(ADD, url, "a")
            first = await launches.next()
            await in_another_process(ADD, url, "b")

            assert (first, await launches.next()) == ("night/a", "night/b")


async def test_an_engine_hears_of_commands_again_after_a_restart_of_the_server() -> None:
    launches = Launches()
    with running_server() as server, contextlib.closing(PostgresStore(server.url)) as store:
        async with EngineHarness(launches, store=store, heartbeat=HEARTBEAT) as harness:
            await harness.run(0.0)
            server.stop("immediate")
            server.start()
            await in_another_process(ADD, server.url, "a")
            first = await launches.next_with_heartbeats(harness)  # the listener may be back before the store is
            await in_another_process(ADD, server.url, "b")

            assert (first, await launches.next()) == ("night/a", "night/b")
