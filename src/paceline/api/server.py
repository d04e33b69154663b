"""A listening socket and an HTTP server on it, with its certificate: for `up`, tests and benchmarks.

Never here: routes, authentication, what a client trusts, or signals of the process.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import uvicorn

from paceline.errors import InvalidInput, InvalidSettings
from paceline.settings.model import ApiTable

log = logging.getLogger("paceline.api")

EXPOSED: Final = (
    "{host} can be reached from other machines, and without TLS they could read the token and everything else: "
    "set tls_cert and tls_key in [api] of paceline.toml; or listen on 127.0.0.1, behind an ssh tunnel or a reverse "
    "proxy with TLS; or give --insecure to serve it unencrypted"
)


class ServerCertificate:
    """The certificate of the settings, as a server uses it. It follows its files: certificates are renewed often."""

    def __init__(self, api: ApiTable) -> None:
        self._api = api
        self._seen = _file_times(api)
        self.context = _loaded(api)

    def refresh(self) -> None:
        """Use the certificate in the files from now on, if they have changed and can be used."""
        found = _file_times(self._api)
        if found == self._seen:
            return
        self._seen = found
        try:
            _loaded(self._api)  # apart: a failure must not leave half of it in use
            self.context.load_cert_chain(str(self._api.tls_cert), self._api.tls_key, password=_no_password)
        except (InvalidSettings, ssl.SSLError, OSError) as error:
            log.warning("the certificate was changed and cannot be used, so the present one stays: %s", error)


def load_certificate(api: ApiTable) -> ServerCertificate | None:
    """Return the certificate that the settings name, or None if they name none."""
    return None if api.tls_cert is None else ServerCertificate(api)


def _loaded(api: ApiTable) -> ssl.SSLContext:
    for key, path in (("api.tls_cert", api.tls_cert), ("api.tls_key", api.tls_key)):
        if path is not None:
            _check_readable(key, Path(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(api.tls_cert), api.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidSettings(_load_error(api, error)) from error
    return context


def _file_times(api: ApiTable) -> list[tuple[int, int] | None]:
    """Return when each file was changed, and its number: a renewal may replace a link to the file."""
    times: list[tuple[int, int] | None] = []
    for path in (api.tls_cert, api.tls_key):
        try:
            found = None if path is None else os.stat(path)
        except OSError:
            found = None  # a renewal is under way
        times.append(None if found is None else (found.st_mtime_ns, found.st_ino))
    return times


def _check_readable(key: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InvalidSettings(f"{key}: {path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Refuse a key with a password: a daemon has nobody to ask for it."""
    raise InvalidSettings("api.tls_key: the key has a password; remove it with: openssl pkey -in KEY -out NEW_KEY")


def _load_error(api: ApiTable, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"api.tls_key: {api.tls_key or api.tls_cert} is not the key of the certificate {api.tls_cert}"
    if api.tls_key is None:
        return f"api.tls_cert: {api.tls_cert} does not hold a certificate and its key in PEM form; set tls_key"
    return f"api.tls_cert: {api.tls_cert} with {api.tls_key} is not a certificate and its key in PEM form"


def check_exposure(host: str, tls: ServerCertificate | None, *, insecure: bool) -> str | None:
    """Refuse an address that other machines can reach without TLS, unless `insecure`. Returns a warning or None."""
    if tls is not None or not is_exposed(host):
        return None
    if not insecure:
        raise InvalidInput(EXPOSED.format(host=host))
    return f"{host} is served without TLS: whoever reads the network reads the token too"


def is_exposed(host: str) -> bool:
    """Return whether other machines can reach the address. One that nobody can bind to is not exposed."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return not host
    return not all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


GRACE_SECONDS = 2
"""At the end, responses that take longer are cut off."""
POLL_SECONDS = 0.002
"""How often the end checks whether all requests are answered: uvicorn offers no event for it."""
DATE_SECONDS = 1.0
"""How often uvicorn updates the Date header, which has seconds."""
BACKLOG = 2048
KEEP_IDLE_SECONDS = 120
"""Longer than clients keep idle connections (httpx 5 s, Go 90 s).

A server that closes first may close while a request is on its way."""


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. The error says what to change."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only if the protocol is named
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"cannot listen on {host!r:.80}: {error}; give an address of this machine") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        raise InvalidInput(_bind_error(host, port, error)) from error
    return made


def _bind_error(host: str, port: int, error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another program; give another one with --port"
    if number == errno.EACCES:
        return f"port {port} needs special rights; give one above 1023 with --port"
    reason = os.strerror(number) if number else str(error)
    return f"cannot listen on {host}, port {port}: {reason}; give an address of this machine and a free port"


class Server(uvicorn.Server):
    """A uvicorn server that is ready when it says so, stops without delay, and installs no signal handlers.

    `url` has no path.
    """

    def __init__(self, config: uvicorn.Config, tls: ServerCertificate | None, host: str, port: int) -> None:
        super().__init__(config)
        self._tls = tls
        self.port = port
        self.url = f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
        self.ready = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Accept no more requests. Those in progress are finished, or cut off after `GRACE_SECONDS`."""
        self.should_exit = True
        self._stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.ssl = None if self._tls is None else self._tls.context
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait for `stop`, where uvicorn polls ten times a second."""
        while not await self.on_tick(0):  # updates the Date header
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DATE_SECONDS)
            if self._tls is not None:
                self._tls.refresh()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but notice the end of the last response at once, not after up to 0.1 s."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._wait_for_responses()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()

    async def _wait_for_responses(self) -> None:
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 (plain sets)
            await asyncio.sleep(POLL_SECONDS)
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
    tls: ServerCertificate | None = None,
) -> AsyncIterator[Server]:
    """Serve the app until the block ends. Port 0 picks a free port; `http` may be a protocol class."""
    bound = bind(host, port) if listening is None else listening
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        interface="asgi3",  # it would take a method for an older kind
        http=http,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # the log would contain the token of the printed URL
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_IDLE_SECONDS,
    )
    server = Server(config, tls, host, bound.getsockname()[1])
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    ready = asyncio.ensure_future(server.ready.wait())
    try:
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        yield server
    finally:
        server.stop()
        ready.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        bound.close()
