"""The server of the daemon: one port, one gateway, and what is served there now.

Here: what a process serves while it leads, and until when. Never here: who leads.
"""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec

from paceline.agents.account import GatewayAddress
from paceline.api.app import SwitchedApp, create_app
from paceline.api.context import ApiContext
from paceline.api.server import ServerCertificate, serve
from paceline.api.standby import StandbyEngine
from paceline.api.tokens import AccessTokens
from paceline.client.home_daemon import URL_FILE
from paceline.clock import SystemClock
from paceline.daemon.contact import ALL_INTERFACES, dashboard_url, fleet_url
from paceline.daemon.home import Home, open_store
from paceline.daemon.host_access import HomeEndpoints
from paceline.daemon.process import on_stop_signals
from paceline.detect import compile_patterns
from paceline.engine.engine import Engine, collect_seldom
from paceline.errors import PacelineError
from paceline.events import Event
from paceline.gateway import BackgroundStore, ClientKeys, Gateway, RequestAccess, SpendLedger, make_server_protocol
from paceline.hosts.leader.worker_supervision import WorkerSupervision
from paceline.metrics import MetricsRegistry
from paceline.settings.model import price_list
from paceline.store import Store

log = logging.getLogger("paceline.daemon")

FILES_WANTED = 65_536
"""Open files: a connection of a client and one to its upstream each need one, for tens of thousands of calls."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Where the daemon is served. `url` is how programs on this machine reach it."""

    host: str
    port: int
    url: str
    socket: socket.socket
    tls: ServerCertificate | None


class DaemonServer:
    """The server of one process. It is created on the loop that it serves on."""

    def __init__(self, home: Home, tokens: AccessTokens, listener: Listener) -> None:
        self.home = home
        self.tokens = tokens
        self.listener = listener
        self.app = SwitchedApp()
        self.stopping = asyncio.Event()
        """Set by the first stop signal."""
        self._hurry = asyncio.Event()
        self._background = BackgroundStore(lambda: open_store(home.settings))
        self._gateway = _gateway(home, self._background, tokens, listener)
        self._term: tuple[Engine, ApiContext] | None = None
        self._draining: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def serving(self, *, as_json: bool) -> AsyncIterator[None]:
        """Serve while the block runs, and until the calls that it leaves behind are answered."""
        listener, gateway = self.listener, self._gateway
        protocol = make_server_protocol(gateway, most_connections=_open_files() // 2)
        with on_stop_signals(_stop_handler(self._stop, self._hurry)), _url_file(self.home, listener.url):
            async with serve(self.app, listener.host, listening=listener.socket, http=protocol, tls=listener.tls):
                try:
                    compile_patterns()
                    collect_seldom()
                    _print_ready(listener, self.tokens, as_json=as_json)
                    yield
                    if gateway.is_stopping:  # else the engine ended by itself, and nothing counts slots any more
                        await _finish_calls(gateway, self._hurry, self.home.settings.api.drain)
                finally:
                    await gateway.close()
                    self._background.close()

    def begin_term(self, engine: Engine) -> None:
        """Start the engine, and serve its API and its slots from now on."""
        engine.start(gateway=GatewayAddress(self.listener.url, self.tokens.session_secret))
        context = self.context(engine, since=time.time())
        context.calls = self._gateway.calls
        self._gateway.spend.use_store(self.home.store)
        self.app.current = create_app(context, tokens=self.tokens, host=self.listener.host)
        self._gateway.use_limiter(engine.limiter, engine.metrics)
        self._gateway.access.keys.on_new = context.apply_commands
        self._term = engine, context

    async def run_term(self) -> None:
        """Run the engine until it stops or fails. Calls that are being served continue."""
        assert self._term is not None
        engine, context = self._term
        supervising = asyncio.ensure_future(self._supervision(engine).run())
        try:
            await engine.run()
        finally:
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)
            self._term = None
            context.close()
            self._gateway.spend.save()
            self._gateway.use_limiter(None, MetricsRegistry())

    def _supervision(self, engine: Engine) -> WorkerSupervision:
        listener, api = self.listener, self.home.settings.api
        url = fleet_url(listener.host, listener.port, api)
        name = "127.0.0.1" if listener.host in ALL_INTERFACES else listener.host
        address = f"{f'[{name}]' if ':' in name else name}:{listener.port}"
        endpoints = HomeEndpoints(self.home, address=address, url=url, has_tls=listener.tls is not None)
        return WorkerSupervision(engine.hosts.remote_states, engine.hosts.problems, endpoints, now=time.monotonic)

    def context(self, engine: Engine | StandbyEngine, *, since: float) -> ApiContext:
        """Return what the routes work on. The engine leads, or stands by, since that time."""
        home = self.home
        return ApiContext(
            engine,
            settings=home.settings,
            spool=home.spool(),
            zone=home.zone,
            environ=home.environ,
            folder=Path.cwd(),
            since=since,
        )

    def _stop(self) -> None:
        self.stopping.set()
        self._gateway.stop_accepting(self.home.settings.api.drain)
        if self._term is None:
            return
        if self.home.store.is_shared:  # the next leader would not count the calls that still run
            self._draining = asyncio.ensure_future(self._drain_and_stop(self._term[0]))
        else:
            self._term[0].stop()

    async def _drain_and_stop(self, engine: Engine) -> None:
        await _finish_calls(self._gateway, self._hurry, self.home.settings.api.drain)
        engine.stop()


def _gateway(home: Home, background: BackgroundStore, tokens: AccessTokens, listener: Listener) -> Gateway:
    """Return the gateway. It listens on the same port, in front of the application, and uses the limits of engines."""
    host, port = listener.host, listener.port
    own = [f"{name}:{port}" for name in (host, "127.0.0.1", "localhost", "[::1]")]
    others = [name for each in home.settings.api.hosts for name in (each, f"{each}:{port}")]
    # A server on all addresses has more names than are known here.
    hosts = None if host in ALL_INTERFACES else frozenset((*own, *others))
    access = RequestAccess(
        home.settings.accounts.values(),
        token=tokens.full,
        environ=home.environ,
        hosts=hosts,
        is_token=tokens.has_full_rights,
        is_session_key=tokens.is_session_key,
    )
    access.keys = ClientKeys(background.client_keys)
    access.use_pools(home.settings.key_pools)
    clock = SystemClock()
    spend = SpendLedger(price_list(home.settings.prices), clock)
    gateway = Gateway(None, access, clock=clock, metrics=MetricsRegistry(), spend=spend)
    gateway.spend.emit = lambda event: _keep_event(home.store, event)
    return gateway


def _keep_event(store: Store, event: Event) -> None:
    try:
        store.append_events([event])
    except PacelineError as error:
        log.warning("%s of %s is not stored: %s", event.name, event.scope, error)


def _open_files() -> int:
    """Raise the limit of open files as far as allowed, and return it.

    Clients get half of it: the engine needs the rest for sessions, the gateway for upstream connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def _finish_calls(gateway: Gateway, hurry: asyncio.Event, seconds: float) -> None:
    if (calls := len(gateway.live)) and seconds:
        what = "a running call" if calls == 1 else f"{calls} running calls"
        sys.stderr.write(f"Waiting for {what}, up to {seconds:g} s; Ctrl-C again stops now.\n")
    await gateway.drain(hurry)


def _stop_handler(stop: Callable[[], object], hurry: asyncio.Event) -> Callable[[signal.Signals], None]:
    """Return a handler for stop signals. The first one lets running calls finish, the second ends them."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def handle(number: signal.Signals) -> None:
        received.append(number)
        if len(received) == 1:
            stop()
        else:
            loop.remove_signal_handler(number)  # a third one ends the process at once
            hurry.set()

    return handle


@contextlib.contextmanager
def _url_file(home: Home, url: str) -> Iterator[None]:
    """Write the address to a file, where commands and clients find it: the port may differ from the settings."""
    path = home.path / URL_FILE
    if not (home.store.is_shared and path.exists()):  # that of the leader stays
        path.write_text(f"{url}\n")
    try:
        yield
    finally:
        if path.exists() and path.read_text().strip() == url:  # else another daemon of the home has written it
            path.unlink(missing_ok=True)


def _print_ready(listener: Listener, tokens: AccessTokens, *, as_json: bool) -> None:
    url = dashboard_url(listener.url, tokens.full)
    if as_json:
        print(msgspec.json.encode({"url": url, "pid": os.getpid()}).decode(), flush=True)
    else:
        print(f"Paceline is up: {url}", flush=True)
