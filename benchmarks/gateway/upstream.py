"""The provider of the benchmark. It answers every call at once, as fast as one Python process can, or after a while.

A body with `"stream": true` gets server-sent events, `TOKENS_PER_SECOND` per second for `STREAM_SECONDS`. Each has
the time at which it was written, on the clock that all processes of a machine share.
"""

import asyncio
import re
import sys
import time
from typing import cast

import httptools
import uvloop

LATENCY_SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
TOKENS_PER_SECOND = 100
STREAM_SECONDS = re.compile(rb'"seconds": ?([0-9.]+)')
COMPLETION = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-5","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"' + b"word " * 40 + b'"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-request-id: req_1\r\n"
    b"x-ratelimit-limit-requests: 10000\r\nx-ratelimit-remaining-requests: 9999\r\n"
    b"x-ratelimit-reset-requests: 6ms\r\nContent-Length: %d\r\n\r\n%b" % (len(COMPLETION), COMPLETION)
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Upstream(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not instances of it
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._streams: set[asyncio.Task[None]] = set()

    def connection_lost(self, exc: Exception | None) -> None:
        for stream in self._streams:
            stream.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        if len(self._body) < 4096:
            self._body += body

    def on_message_complete(self) -> None:
        seconds = STREAM_SECONDS.search(self._body)
        if b'"stream"' in self._body and seconds is not None:
            stream = asyncio.get_running_loop().create_task(self._stream(float(seconds[1])))
            self._streams.add(stream)
            stream.add_done_callback(self._streams.discard)
        elif LATENCY_SECONDS:
            asyncio.get_running_loop().call_later(LATENCY_SECONDS, self._transport.write, ANSWER)
        else:
            self._transport.write(ANSWER)

    async def _stream(self, seconds: float) -> None:
        self._transport.write(STREAM_HEAD)
        began = time.monotonic()
        for number in range(int(seconds * TOKENS_PER_SECOND)):
            await asyncio.sleep(began + number / TOKENS_PER_SECOND - time.monotonic())
            event = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}],"sent":%.6f}\n\n' % time.monotonic()
            self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))
        self._transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the benchmark ends


if __name__ == "__main__":
    uvloop.run(serve())
