"""A connection to a server far away: a proxy that holds back every byte for a while, in a process of its own.

python -m benchmarks.postgres.slow_link SOCKET SECONDS     prints the port that it listens on
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

from psycopg.conninfo import conninfo_to_dict, make_conninfo


@contextlib.contextmanager
def slow_link(url: str, seconds: float) -> Iterator[str]:
    """Give an address of the same database where every answer comes `seconds` later."""
    parts = conninfo_to_dict(url)
    target = f"{parts.get('host')}/.s.PGSQL.{parts.get('port') or 5432}"
    command = [sys.executable, "-m", "benchmarks.postgres.slow_link", target, str(seconds / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        port = proxy.stdout.readline().strip()
        try:
            yield make_conninfo(url, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        finally:
            proxy.terminate()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(seconds, writer.write, data)
    loop.call_later(seconds, writer.close)


async def _serve(target: str, seconds: float) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_unix_connection(target)
        await asyncio.gather(_pump(reader, there[1], seconds), _pump(there[0], writer, seconds))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], float(sys.argv[2])))
