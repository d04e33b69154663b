"""The daemon: engine, HTTP API, gateway and dashboard in one process and one event loop, with one port.

In a fleet on one shared store it stands by until it can lead, and leads until it cannot. Here: when a process takes the
lead, what it serves until then, and what while it leads. Never here: what a leader does.
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
import uvloop

from paceline.agents.account import GatewayAddress
from paceline.api.app import create_app, create_standby_app
from paceline.api.bodies import App
from paceline.api.context import ApiContext, StandbyEngine
from paceline.api.leader_proxy import LeaderProxy
from paceline.api.server import ServerCertificate, bind, check_exposure, load_certificate, serve
from paceline.api.tokens import AccessTokens, host_token_of, join_fleet
from paceline.client.home_daemon import URL_FILE, written_url
from paceline.clock import SystemClock
from paceline.daemon.contact import ALL_INTERFACES, HomeEndpoints, dashboard_url, fleet_url, server_url
from paceline.daemon.engines import fleet_engine, leading_engine, session_variables
from paceline.daemon.home import Home, engine_settings, open_store
from paceline.daemon.process import log_to_file, on_stop_signals
from paceline.detect import compile_patterns
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.engine import Engine, collect_seldom
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES, EngineBusy, LeadLost, PacelineError
from paceline.events import Event
from paceline.gateway import BackgroundStore, ClientKeys, Gateway, RequestAccess, SpendLedger, make_server_protocol
from paceline.hosts.leader.worker_supervision import WorkerSupervision
from paceline.hosts.messages import local_machine
from paceline.hosts.worker.worker import WorkerRequest, add_own_host, open_worker, own_host, sole_user
from paceline.leadership.election import Leader, known_leaders, neighbours, new_leader, present_leader, want_lead
from paceline.metrics import MetricsRegistry
from paceline.settings.model import price_list
from paceline.settings.preflight import check_stored
from paceline.store import Store, Topic

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
        self.app: App
        """What it serves. It changes when the process takes or loses the lead, and is set before the server starts."""
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
            app: App = lambda *call: self.app(*call)  # noqa: E731 (the application of now, whichever that is)
            async with serve(app, listener.host, listening=listener.socket, http=protocol, tls=listener.tls):
                try:
                    compile_patterns()
                    collect_seldom()
                    _print_ready(listener, self.tokens, as_json=as_json)
                    yield
                    if gateway.is_stopping:  # else the engine ended by itself, and nothing counts slots any more
                        await self._finish_calls()
                finally:
                    await gateway.close()
                    self._background.close()

    def begin_term(self, engine: Engine) -> None:
        """Start the engine, and serve its API and its slots from now on."""
        engine.start(gateway=GatewayAddress(self.listener.url, self.tokens.session_secret))
        context = self.context(engine)
        context.calls = self._gateway.calls
        self._gateway.spend.use_store(self.home.store)
        self.app = create_app(context, tokens=self.tokens, host=self.listener.host)
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

    def context(self, engine: Engine | StandbyEngine) -> ApiContext:
        """Return what the routes work on. The engine leads, or stands by, from now on."""
        home = self.home
        return ApiContext(
            engine,
            settings=home.settings,
            spool=home.spool(),
            zone=home.zone,
            environ=home.environ,
            folder=Path.cwd(),
            since=time.time(),
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
        await self._finish_calls()
        engine.stop()

    async def _finish_calls(self) -> None:
        seconds = self.home.settings.api.drain
        if (calls := len(self._gateway.live)) and seconds:
            what = "a running call" if calls == 1 else f"{calls} running calls"
            sys.stderr.write(f"Waiting for {what}, up to {seconds:g} s; Ctrl-C again stops now.\n")
        await self._gateway.drain(self._hurry)


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
        if written_url(home.path) == url:  # else another daemon of the home has written it
            path.unlink(missing_ok=True)


def _print_ready(listener: Listener, tokens: AccessTokens, *, as_json: bool) -> None:
    url = dashboard_url(listener.url, tokens.full)
    if as_json:
        print(msgspec.json.encode({"url": url, "pid": os.getpid()}).decode(), flush=True)
    else:
        print(f"Paceline is up: {url}", flush=True)


# -- one leader ---------------------------------------------------------------------------------------


def run_daemon(home: Home, *, host: str | None, port: int | None, insecure: bool, as_json: bool) -> None:
    """Serve until a stop signal. Everything that can fail is checked before anything is started."""
    tokens = join_fleet(home.store, home.path, [account.name for account in home.settings.accounts.values()])
    check_stored(home.store, home.settings)
    host = home.settings.api.host if host is None else host
    port = home.settings.api.port if port is None else port
    tls = load_certificate(home.settings.api)
    warning = check_exposure(host, tls, insecure=insecure)
    with contextlib.ExitStack() as opened:
        engine = None if home.store.is_shared else opened.enter_context(leading_engine(home))
        listening = opened.enter_context(contextlib.closing(bind(host, port)))
        opened.enter_context(log_to_file(home))
        if warning is not None:
            log.warning("%s", warning)
        port = listening.getsockname()[1]
        url = server_url(host, port, home.settings.api)
        listener = Listener(host=host, port=port, url=url, socket=listening, tls=tls)
        uvloop.run(_run(home, engine, tokens, listener, insecure=insecure, as_json=as_json))


async def _run(
    home: Home, engine: Engine | None, tokens: AccessTokens, listener: Listener, *, insecure: bool, as_json: bool
) -> None:
    """Run the engine of a home of its own, or a member of a fleet."""
    server = DaemonServer(home, tokens, listener)
    if engine is None:
        member = FleetMember(server, insecure=insecure)
        async with contextlib.aclosing(member), server.serving(as_json=as_json):
            await member.run()
        return
    server.begin_term(engine)
    async with server.serving(as_json=as_json):
        await server.run_term()
    with contextlib.suppress(*OUTAGES):
        save_governor(home.store, engine.governor)  # again: the last calls may have taught it something


# -- a process of a fleet -----------------------------------------------------------------------------


SERVE_RETRY_SECONDS = 5.0
"""Between two tries to serve a leader that has refused this machine, or whose home another process serves."""
LEAD_POLL_SECONDS = 0.5
"""How often a process that stands by looks whether it can lead: the time is added to every take-over."""


class FleetMember:
    """One process of the fleet, with its server. It stands by from the beginning."""

    def __init__(self, server: DaemonServer, *, insecure: bool) -> None:
        self._server = server
        self._home = server.home
        self._store = server.home.store
        listener = server.listener
        self._url = fleet_url(listener.host, listener.port, self._home.settings.api)
        self._settings = engine_settings(self._home.settings, self._home.zone, self._home.path)
        self._outage = StoreOutage(SystemClock())
        self._own, _ = own_host(self._store, self._home.settings.hosts, self._home.path, self._home.environ)
        self._serving: asyncio.Task[None] | None = None
        """The worker for the leader on another machine."""
        self._served: str | None = None
        """Its address."""
        self._serve_at = 0.0
        self._leader: Leader | None = None
        """Who led when it was last read."""
        self._proxy = LeaderProxy(lambda: self._leader, server.tokens, plain=insecure)
        self._context: ApiContext | None = None
        self._stand_by()

    def _stand_by(self) -> None:
        """Serve reads, and pass everything else on, from now on."""
        server = self._server
        reader = StandbyEngine(self._store, self._settings, SystemClock())
        self._context = server.context(reader)
        server.app = create_standby_app(self._context, self._proxy, tokens=server.tokens, host=server.listener.host)

    def _stop_standing_by(self) -> None:
        if self._context is not None:
            self._context.close()
            self._context = None

    async def aclose(self) -> None:
        """End what the server has needed until now."""
        await self._proxy.aclose()

    async def run(self) -> None:
        """Stand by and lead in turns until a stop signal."""
        loop = asyncio.get_running_loop()
        resigned = asyncio.Event()

        def on_change(topic: Topic) -> None:
            if topic == "leader":
                loop.call_soon_threadsafe(resigned.set)

        unsubscribe = self._store.subscribe(on_change)
        stopping = asyncio.ensure_future(self._server.stopping.wait())
        try:
            while not self._server.stopping.is_set():
                resigned.clear()
                try:
                    await self._step()
                    self._outage.end()
                except OUTAGES as error:
                    self._outage.begin(error)
                waiting = asyncio.ensure_future(resigned.wait())
                await asyncio.wait({stopping, waiting}, timeout=LEAD_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            stopping.cancel()
            unsubscribe()
            await self._serve(None)
            self._stop_standing_by()

    async def _step(self) -> None:
        """Lead if nobody does. Else serve the leader."""
        if self._context is None:
            self._stand_by()
        lease = self._store.leader(now=time.time())
        if lease is None or lease.seconds <= 0:
            self._leader = None
            await self._serve(None)
            await self._try_to_lead()
            return
        if not (self._home.path / URL_FILE).exists():  # another process of this home has ended
            self._write_address()
        leader = self._leader = present_leader(self._store)
        if leader is not None and leader.only_slots:
            want_lead(self._store)
        is_here = self._own == local_machine(self._store)  # then the leader serves this machine itself
        await self._serve(None if leader is None or is_here else self._proxy.address(leader))

    async def _serve(self, address: str | None) -> None:
        """Run sessions of the leader at this address on this machine, as a worker does; None: no longer."""
        if self._serving is not None and (self._served != address or self._serving.done()):
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
            self._serving = None
        if self._serving is None and address is not None and time.monotonic() >= self._serve_at:
            self._served, self._serve_at = address, time.monotonic() + SERVE_RETRY_SECONDS
            self._serving = asyncio.create_task(self._run_worker(address))

    async def _run_worker(self, address: str) -> None:
        home, store = self._home, self._store
        try:
            with sole_user(home.path):
                add_own_host(store, home.settings.hosts, self._own)
                request = WorkerRequest(
                    home=home.path,
                    addresses=[address],
                    token=host_token_of(store, home.path, self._own),
                    neighbours=neighbours(known_leaders(store), home.path),
                )
                async with open_worker(request, session_variables(home.environ), home.zone.key) as worker:
                    await worker.run()
        except PacelineError as error:
            log.info("this machine runs no sessions for the leader now: %s", error)
        except Exception:
            log.exception("this machine cannot run sessions for the leader; it is tried again")

    def _write_address(self) -> None:
        """Let commands and clients of this home find the server. Without a file they go by the settings."""
        with contextlib.suppress(OSError):
            (self._home.path / URL_FILE).write_text(f"{self._server.listener.url}\n")

    async def _try_to_lead(self) -> None:
        """Lead until another process does. Do nothing if one was faster."""
        leader = new_leader(self._home.path, url=self._url)
        with fleet_engine(self._home, leader) as engine, contextlib.closing(engine):
            try:
                self._server.begin_term(engine)
            except (EngineBusy, *OUTAGES) as error:
                log.info("this process stands by: %s", error)
                return
            self._leader = leader
            self._stop_standing_by()
            log.warning("this process leads now")
            try:
                self._write_address()
                await self._server.run_term()
            except LeadLost as error:
                log.warning("this process stands by: %s", error)
