"""The cost of a slot over HTTP, compared with an empty handler on the same server (`/healthz`).

    python -m benchmarks.api_slots              the table, at 1 and 32 connections
    python -m benchmarks.api_slots --seconds 5  with longer rounds

The server is the whole daemon in its own process, with its database in the temporary folder. Every grant and every
release is stored before its response. A pair is an acquire and its release, two requests on one keep-alive
connection. Rounds of both kinds take turns, so that both meet the same load of the machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import serve
from paceline.api.tokens import load_tokens
from paceline.cli.wiring import leading_engine, open_home

ROUNDS = 5
TARGET = 0.25
TAKE = json.dumps({"scope": "acme/main/large", "wait": 5}).encode()


# -- the server --------------------------------------------------------------------------------------


async def run_server(folder: Path) -> None:
    """Run the daemon until its standard input is closed."""
    variables = {"HOME": str(folder), "PATH": os.environ["PATH"], "PACELINE_HOME": str(folder / "home")}
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


Step = Callable[[Connection], Awaitable[None]]


async def rate(connections: list[Connection], step: Step, seconds: float) -> float:
    """Return the steps per second over all connections."""
    done = 0
    begun = time.perf_counter()
    until = begun + seconds

    async def work(connection: Connection) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await step(connection)
            done += 1

    await asyncio.gather(*(work(connection) for connection in connections))
    return done / (time.perf_counter() - begun)


async def measure(port: int, token: str, count: int, seconds: float) -> float:
    """Print a line. Returns the ratio."""
    connections = [Connection(*(await asyncio.open_connection("127.0.0.1", port)), token) for _ in range(count)]
    await rate(connections, Connection.pair, seconds / 4)  # the first few fill caches
    empties, pairs = [], []
    for _ in range(ROUNDS):
        empties.append(await rate(connections, Connection.empty, seconds))
        pairs.append(await rate(connections, Connection.pair, seconds))
    for connection in connections:
        await connection.close()
    plain, slots = statistics.median(empties), statistics.median(pairs)
    ratio = statistics.median(pair / bare for pair, bare in zip(pairs, empties, strict=True))
    print(f"{count:>11}{plain:>17,.0f}/s{slots:>17,.0f}/s{ratio:>9.2f}")
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each round takes")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        uvloop.run(run_server(given.serve))
        return
    print(f"{'connections':>11}{'empty handler':>19}{'take + release':>19}{'ratio':>9}   (at least {TARGET})")
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.api_slots", "--serve", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server,
    ):
        assert server.stdout is not None
        assert server.stdin is not None
        port, token = server.stdout.readline().decode().split()
        for count in (1, 32):
            uvloop.run(measure(int(port), token, count, given.seconds))
        server.stdin.close()


if __name__ == "__main__":
    main()
