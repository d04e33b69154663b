"""The daemon: engine, HTTP API, gateway and dashboard in one process and one event loop.

In a fleet on one shared store it stands by until it can lead, and leads until it cannot. Here: when a process takes the
lead, and what it serves until then. Never here: what a leader does.
"""

import asyncio
import contextlib
import logging
import time

import uvloop

from paceline.api.app import create_standby_app
from paceline.api.context import ApiContext
from paceline.api.leader_proxy import LeaderProxy
from paceline.api.server import bind, check_exposure, load_certificate
from paceline.api.standby import StandbyEngine
from paceline.api.tokens import AccessTokens, host_token_of, join_fleet
from paceline.client.home_daemon import URL_FILE
from paceline.clock import SystemClock
from paceline.daemon.contact import fleet_url, server_url
from paceline.daemon.engines import fleet_engine, leading_engine, session_variables
from paceline.daemon.home import Home, engine_settings
from paceline.daemon.process import log_to_file
from paceline.daemon.server import DaemonServer, Listener
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.engine import Engine
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES, EngineBusy, LeadLost, PacelineError
from paceline.hosts.messages import local_machine
from paceline.hosts.worker.link import HostToken
from paceline.hosts.worker.worker import WorkerRequest, add_own_host, open_worker, own_host, sole_user
from paceline.leadership.election import Leader, known_leaders, neighbours, new_leader, present_leader, want_lead
from paceline.settings.preflight import check_stored
from paceline.store import Topic

log = logging.getLogger("paceline.daemon")


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
        self._context = server.context(reader, since=time.time())
        server.app.current = create_standby_app(
            self._context, self._proxy, tokens=server.tokens, host=server.listener.host
        )

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
                    token=HostToken(self._own, host_token_of(store, home.path, self._own)),
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
