"""The clients of the benchmark in one process: sequential calls on each connection, or open streams.

Prints one JSON line. Times are seconds on the clock that all processes of a machine share.
"""

import asyncio
import re
import sys
import time
from typing import cast

import httptools
import msgspec
import uvloop

SENT = re.compile(rb'"sent":([0-9.]+)')
PROMPT = b"Tell me, in a few words, what a limiter is for. " * 8


class Task(msgspec.Struct, kw_only=True):
    """The load to create. With `stream_seconds`, each connection makes one call that streams for that long."""

    port: int
    path: str
    headers: dict[str, str]
    model: str
    connections: int
    seconds: float = 0.0
    calls: int | None = None
    stream_seconds: float = 0.0


class Figures(msgspec.Struct, kw_only=True):
    calls: int
    failed: int
    seconds: float
    p50: float
    p99: float
    """For calls: from the request to the end of its response. For streams: from writing a token to reading it."""
    first_byte_p50: float = 0.0


class Client(asyncio.Protocol):
    """One connection, one call at a time."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def start(self) -> None:
        self._began = time.monotonic()
        self._first = 0.0
        self.transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        if not self._first:
            self._first = time.monotonic()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if self._load.is_streaming:
            now = time.monotonic()
            self._load.delays.extend(now - float(sent) for sent in SENT.findall(body))

    def on_message_complete(self) -> None:
        self._load.first_bytes.append(self._first - self._began)
        self._load.count(self._parser.get_status_code(), time.monotonic() - self._began)
        if self._load.goes_on():
            self.start()
        elif not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self._load.failed += 1
            self.ended.set_result(None)


class Load:
    def __init__(self, task: Task) -> None:
        self._task = task
        self.is_streaming = task.stream_seconds > 0
        self.calls = self.failed = 0
        self.delays: list[float] = []
        self.first_bytes: list[float] = []
        self._ends_at = 0.0
        fields: dict[str, object] = {"model": task.model, "messages": [{"role": "user", "content": PROMPT.decode()}]}
        if self.is_streaming:
            fields = {"model": task.model, "stream": True, "seconds": task.stream_seconds, **fields}
        body = msgspec.json.encode(fields)
        headers = "".join(f"{name}: {value}\r\n" for name, value in task.headers.items())
        head = (
            f"POST {task.path} HTTP/1.1\r\nHost: 127.0.0.1:{task.port}\r\nContent-Type: application/json\r\n{headers}"
        )
        self.request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def count(self, status: int, seconds: float) -> None:
        self.calls += 1
        self.failed += status != 200
        if not self.is_streaming:
            self.delays.append(seconds)

    def goes_on(self) -> bool:
        if self.is_streaming:
            return False
        if self._task.calls is not None:
            return self.calls < self._task.calls
        return time.monotonic() < self._ends_at

    async def run(self) -> Figures:
        loop = asyncio.get_running_loop()
        clients = [
            (await loop.create_connection(lambda: Client(self), "127.0.0.1", self._task.port))[1]
            for _ in range(self._task.connections)
        ]
        began = time.monotonic()
        self._ends_at = began + self._task.seconds
        for client in clients:
            client.start()
        await asyncio.gather(*(client.ended for client in clients))
        seconds = time.monotonic() - began
        delays = sorted(self.delays) or [0.0]
        first_bytes = sorted(self.first_bytes) or [0.0]
        return Figures(
            calls=self.calls,
            failed=self.failed,
            seconds=seconds,
            p50=delays[len(delays) // 2],
            p99=delays[int(len(delays) * 0.99)],
            first_byte_p50=first_bytes[len(first_bytes) // 2],
        )


if __name__ == "__main__":
    figures = uvloop.run(Load(msgspec.json.decode(sys.argv[1], type=Task)).run())
    print(msgspec.json.encode(figures).decode(), flush=True)
