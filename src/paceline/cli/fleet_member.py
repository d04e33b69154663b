"""A process of a fleet on one shared store: it stands by until it can lead, and leads until it cannot.

Here: when a process takes the lead, and what it serves until then. Never here: what a leader does.
"""

import asyncio
import contextlib
import logging
import time

from paceline.api.app import create_standby_app
from paceline.api.context import ApiContext
from paceline.api.leader_proxy import LeaderProxy
from paceline.api.standby import StandbyEngine
from paceline.cli.daemon_address import fleet_url
from paceline.cli.daemon_server import DaemonServer
from paceline.cli.home_engine import fleet_engine, session_keeper
from paceline.cli.wiring import engine_settings
from paceline.client.home_daemon import URL_FILE
from paceline.clock import SystemClock
from paceline.engine.session_keeper import SessionKeeper
from paceline.engine.store_outage import OUTAGES, StoreOutage
from paceline.errors import EngineBusy, LeadLost
from paceline.leadership import Leader
from paceline.shared_leadership import new_leader, present_leader, this_machine, want_lead
from paceline.store import Topic

log = logging.getLogger("paceline.cli")

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
        self._keeping = contextlib.ExitStack()
        self._keeper: SessionKeeper | None = None
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
            self._keeping.close()
            self._stop_standing_by()

    async def _step(self) -> None:
        """Lead if nobody does. Else do what the leader leaves to this process."""
        if self._context is None:
            self._stand_by()
        left = self._store.lease_left(now=time.time())
        if left is None or left <= 0:
            self._leader = None
            self._stop_keeping()
            await self._try_to_lead()
            return
        if not (self._home.path / URL_FILE).exists():  # another process of this home has ended
            self._write_address()
        leader = self._leader = present_leader(self._store)
        if leader is not None and not leader.is_engine:
            want_lead(self._store)
        if leader is None or leader.machine == this_machine():
            self._stop_keeping()
        else:
            await self._keep_sessions(leader)

    async def _keep_sessions(self, leader: Leader) -> None:
        """Bring sessions of this home to their ends: the leader is on another machine."""
        try:
            if self._keeper is None:
                self._stop_keeping()
                self._keeper = self._keeping.enter_context(session_keeper(self._home))
            if self._keeper is not None and self._keeper.has_work:
                for _ in self._keeper.make_pass(leader.owner):
                    await asyncio.sleep(0)
        except Exception as error:
            self._stop_keeping()  # the next one starts from what is stored
            if isinstance(error, OUTAGES):
                raise
            if not isinstance(error, LeadLost):
                log.exception("sessions of this home could not be read; they are read again")

    def _write_address(self) -> None:
        """Let commands and clients of this home find the server. Without a file they go by the settings."""
        with contextlib.suppress(OSError):
            (self._home.path / URL_FILE).write_text(f"{self._server.listener.url}\n")

    def _stop_keeping(self) -> None:
        self._keeping.close()
        self._keeper = None

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
