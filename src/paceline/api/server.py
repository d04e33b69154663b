"""A socket and a server on it, in the running loop: for `up`, for tests and for benchmarks.

Never here: routes, who may come in, or signals of the process.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

from paceline.errors import InvalidInput

GRACE_SECONDS = 2
"""Answers that take longer at the end are cut off."""
LOOK_SECONDS = 0.002
"""How often it is looked, at the end, whether all are answered."""
DATE_SECONDS = 1.0
BACKLOG = 2048
KEEP_IDLE_SECONDS = 120
"""Longer than the clients keep theirs (httpx 5, Go 90): where the server closes first, a request may be on its way."""


def bind(host: str, port: int) -> socket.socket:
    """A socket to listen on; what keeps it from being had is said in words."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)  # asyncio sends at once only where TCP is named
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"cannot listen on {host!r:.80}: {error}; give an address of this machine") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        raise InvalidInput(_bind_trouble(host, port, error)) from error
    return made


def _bind_trouble(host: str, port: int, error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another program; give another one with --port"
    if number == errno.EACCES:
        return f"port {port} is not for everybody; give one above 1023 with --port"
    reason = os.strerror(number) if number else str(error)
    return f"cannot listen on {host}, port {port}: {reason}; give an address of this machine and a free port"


class Served:
    """A server that answers. `url` has no path."""

    def __init__(self, server: "_Server", host: str, port: int) -> None:
        self._server = server
        self.host = host
        self.port = port
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def stop(self) -> None:
        """No more requests are taken; those that run are finished, or cut off after a moment."""
        self._server.stop()


class _Server(uvicorn.Server):
    """Tells when it is ready, stops without rests of its own, and leaves the signals of the process to who runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Uvicorn looks ten times a second whether it should stop; here it is told."""
        while not await self.on_tick(0):  # which writes the date that answers carry
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DATE_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it, but the end of the last answer is seen at once and not a tenth of a second later."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._all_answered()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()

    async def _all_answered(self) -> None:
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 (plain sets)
            await asyncio.sleep(LOOK_SECONDS)
        for server in self.servers:
            await server.wait_closed()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve(
    app: Any,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    listening: socket.socket | None = None,
    http: Any = "httptools",
) -> AsyncIterator[Served]:
    """Serve the app until the block ends; port 0 takes a free one. `http` may be a protocol class of our own."""
    taken = bind(host, port) if listening is None else listening
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would hold the token of the printed URL
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_IDLE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[taken]))
    ready = asyncio.ensure_future(server.ready.wait())
    try:
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        yield Served(server, host, taken.getsockname()[1])
    finally:
        server.stop()
        ready.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        taken.close()
