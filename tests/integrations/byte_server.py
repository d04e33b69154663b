"""A server that sends given bytes and closes the connection."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
BROKEN_BODY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata: \r\n"
BROKEN_REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 50\r\ncontent-length: 999\r\n\r\n{"


@asynccontextmanager
async def serving_bytes(answer: bytes) -> AsyncIterator[str]:
    """Yield the URL of a server that sends this response to every request and closes the connection."""

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)  # to close before it comes is to reset the connection
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()
