"""HTTP by hand, both sides: an upstream that sends exactly the bytes a test wants, and a client that reads them."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import msgspec

LOOPBACK = "127.0.0.1"
PATIENCE_SECONDS = 60.0
GET_API = b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n"
"""A request to the application beside the gateway."""


class Message(msgspec.Struct, kw_only=True):
    """A request or a response as it came over the wire."""

    first_line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = []
    is_whole: bool = True
    """Whether the body has the length that its head promised."""

    @property
    def status(self) -> int:
        return int(self.first_line.split(b" ")[1])

    def header(self, name: bytes) -> bytes | None:
        """Return the value of the header, in any case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]


class Wire:
    """One connection, read as HTTP/1.1 and written as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_head(self) -> Message:
        """Read the next head. Skips informational responses."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                raw = await self.reader.readuntil(b"\r\n\r\n")
                first, *lines = raw[:-4].split(b"\r\n")
                if not first.startswith(b"HTTP/1.1 1"):
                    return Message(first_line=first, headers=[_header(line) for line in lines])

    async def read_message(self, *, is_for_head: bool = False) -> Message:
        """Read the next message with its body, or as much of it as came."""
        message = await self.read_head()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._read_body(message, is_for_head)
        except (asyncio.IncompleteReadError, ConnectionError):
            message.is_whole = False
        return message

    async def _read_body(self, message: Message, is_for_head: bool) -> None:
        is_answer = message.first_line.startswith(b"HTTP/")
        if is_for_head or (is_answer and message.status in (204, 304)):
            return
        if (message.header(b"transfer-encoding") or b"").endswith(b"chunked"):
            await self._read_chunks(message)
        elif (length := message.header(b"content-length")) is not None:
            await self._read_exactly(message, int(length))
        elif is_answer:
            message.body = await self.reader.read()

    async def _read_chunks(self, message: Message) -> None:
        while True:
            size = int((await self.reader.readuntil(b"\r\n"))[:-2].split(b";")[0], 16)
            if size == 0:
                break
            await self._read_exactly(message, size)
            assert await self.reader.readexactly(2) == b"\r\n"
        while (line := (await self.reader.readuntil(b"\r\n"))[:-2]) != b"":
            message.trailers = [*message.trailers, _header(line)]

    async def _read_exactly(self, message: Message, size: int) -> None:
        try:
            message.body += await self.reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            message.body += error.partial
            raise

    async def until_closed(self) -> bytes:
        """Return all remaining bytes. A reset counts as an end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def reset(self) -> None:
        """Reset the connection."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.transport.abort()


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.lstrip()


async def connect(port: int, *, receive_buffer: int | None = None) -> Wire:
    """Open a client's connection. A small receive buffer makes it a slow reader."""
    if receive_buffer is None:
        return Wire(*await asyncio.open_connection(LOOPBACK, port))
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (LOOPBACK, port))
    return Wire(*await asyncio.open_connection(sock=connection, limit=receive_buffer))


Handler = Callable[[Wire], Awaitable[None]]


class RawUpstream:
    """A server that runs the test's `handler` on each connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        wire = Wire(reader, writer)
        try:
            await self._handler(wire)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the gateway hung up
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()


def answering(answer: bytes, seen: list[Message] | None = None) -> Handler:
    """Return a handler that responds to every request with these bytes."""

    async def handle(wire: Wire) -> None:
        while True:
            request = await wire.read_message()
            if seen is not None:
                seen.append(request)
            wire.send(answer)
            await wire.writer.drain()

    return handle


def ok(body: bytes = b"{}", *headers: bytes) -> bytes:
    """Return a small JSON response."""
    lines = b"".join(b"%b\r\n" % line for line in headers)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        lines,
        len(body),
        body,
    )


def post(
    body: bytes = b'{"model": "claude-opus-4-6"}',
    *headers: bytes,
    path: bytes = b"/gateway/work/v1/messages",
    key: bytes = b"x-api-key: paceline-token-1",
) -> bytes:
    """Return a model call to the gateway."""
    lines = b"".join(b"%b\r\n" % line for line in (key, *headers) if line)
    return b"POST %b HTTP/1.1\r\nHost: gateway\r\n%bContent-Length: %d\r\n\r\n%b" % (path, lines, len(body), body)
