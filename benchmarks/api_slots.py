"""The cost of a slot over HTTP, compared with an empty handler on the same server (`/healthz`).

    python -m benchmarks.api_slots                                    the table, at 1 and 32 connections
    python -m benchmarks.api_slots --seconds 5                        with longer rounds
    python -m benchmarks.api_slots --store postgres --clients 1000    a thousand clients, over a PostgreSQL server

The server is the whole daemon in its own process, with its database in the temporary folder (or below `--place`).
Every grant and every release is stored before its response. A pair is an acquire and its release, two requests on one
keep-alive connection. Rounds of both kinds take turns, so that both meet the same load of the machine. Times are those
of one request as its client sees it, so they grow with the number of clients: all of them share one server.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import uvloop

from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import serve
from paceline.api.tokens import load_tokens
from paceline.daemon.engines import leading_engine
from paceline.daemon.home import open_home

ROUNDS = 5
TARGET = 0.25
TAKE = json.dumps({"scope": "acme/main/large", "wait": 5}).encode()


# -- the server --------------------------------------------------------------------------------------


async def run_server(folder: Path, store_url: str | None = None) -> None:
    """Run the daemon until its standard input is closed."""
    variables = {"HOME": str(folder), "PATH": os.environ["PATH"], "PACELINE_HOME": str(folder / "home")}
    if store_url is not None:
        variables["PACELINE_STORE_URL"] = store_url
    with open_home(variables, folder) as home, leading_engine(home) as engine:
        tokens = load_tokens(home.path)
        engine.start()
        context = ApiContext(
            engine,
            settings=home.settings,
            spool=home.spool(),
            zone=home.zone,
            environ=variables,
            folder=folder,
            since=time.time(),
        )
        running = asyncio.create_task(engine.run())
        async with serve(create_app(context, tokens=tokens, host="127.0.0.1")) as served:
            print(served.port, tokens.full, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        context.close()
        engine.stop()
        await running


# -- the load ----------------------------------------------------------------------------------------


class Connection:
    """A keep-alive connection that sends raw bytes and reads whole responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = f"HTTP/1.1\r\nhost: 127.0.0.1:{writer.get_extra_info('peername')[1]}\r\n".encode()
        self._head += f"authorization: Bearer {token}\r\n".encode()

    async def ask(self, line: bytes, body: bytes = b"") -> tuple[int, bytes]:
        length = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body) if body else b""
        self._writer.write(line + b" " + self._head + length + b"\r\n" + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(size)

    async def empty(self) -> None:
        status, _ = await self.ask(b"GET /healthz")
        assert status == 200

    async def pair(self) -> None:
        status, answer = await self.ask(b"POST /v1/slots", TAKE)
        assert status == 201, answer
        status, answer = await self.ask(b"DELETE /v1/slots/" + json.loads(answer)["id"].encode())
        assert status == 200, answer

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


Step = Callable[[Connection], Awaitable[None]]


class Load(msgspec.Struct, frozen=True):
    """What all connections did in one round: steps per second, and the seconds of each step in order."""

    per_second: float
    seconds: list[float]

    def milliseconds(self, percent: int, requests: int) -> float:
        """Return the time of one of the `requests` of a step."""
        return percentile(self.seconds, percent) / requests * 1000


async def load(connections: list[Connection], step: Step, seconds: float) -> Load:
    """Let every connection make steps, one after the other."""
    times: list[float] = []
    begun = time.perf_counter()
    until = begun + seconds

    async def work(connection: Connection) -> None:
        now = time.perf_counter()
        while now < until:
            before = now
            await step(connection)
            now = time.perf_counter()
            times.append(now - before)

    await asyncio.gather(*(work(connection) for connection in connections))
    return Load(len(times) / (time.perf_counter() - begun), sorted(times))


async def measure(port: int, token: str, count: int, seconds: float) -> float:
    """Print a line. Returns the ratio."""
    connections = [Connection(*(await asyncio.open_connection("127.0.0.1", port)), token) for _ in range(count)]
    await load(connections, Connection.pair, seconds / 4)  # the first few fill caches
    empties, pairs = [], []
    for _ in range(ROUNDS):
        empties.append(await load(connections, Connection.empty, seconds))
        pairs.append(await load(connections, Connection.pair, seconds))
    for connection in connections:
        await connection.close()
    plain, slots = (sorted(each, key=lambda one: one.per_second)[ROUNDS // 2] for each in (empties, pairs))
    ratio = statistics.median(pair.per_second / bare.per_second for pair, bare in zip(pairs, empties, strict=True))
    figures = [
        f"{each.per_second:>8,.0f}/s {each.milliseconds(50, requests):6.1f} {each.milliseconds(99, requests):6.1f} ms"
        for each, requests in ((plain, 1), (slots, 2))
    ]
    print(f"{count:>11}   {figures[0]}   {figures[1]} {ratio:>7.2f}")
    return ratio


@contextlib.contextmanager
def new_store(kind: str, place: str | None) -> Iterator[str | None]:
    """Give the address of an empty PostgreSQL database, or None for SQLite."""
    if kind == "sqlite":
        yield None
        return
    from benchmarks.postgres.server import as_address, durable_server

    with durable_server(place) as url:
        yield as_address(url)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each round takes")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32], help="connections at once")
    parser.add_argument("--place", help="the folder for the database")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        uvloop.run(run_server(given.serve, given.url))
        return
    print(f"{given.store}: requests per second with p50 and p99; a pair is two requests (ratio at least {TARGET})")
    print(f"{'clients':>11}   {'empty handler':>26}   {'take + release':>26} {'ratio':>7}")
    with tempfile.TemporaryDirectory(dir=given.place) as folder, new_store(given.store, given.place) as url:
        command = [sys.executable, "-m", "benchmarks.api_slots", "--serve", folder, *(["--url", url] if url else [])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            port, token = server.stdout.readline().decode().split()
            for count in given.clients:
                uvloop.run(measure(int(port), token, count, given.seconds))
            server.stdin.close()


if __name__ == "__main__":
    main()
