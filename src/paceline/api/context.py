"""What the routes work on: the engine of this process with its settings and spool, and the background readers.

In a process that stands by, a reader of the store takes the engine's place.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

from litestar.di import NamedDependency

from paceline.api.background import BackgroundReaders
from paceline.api.standby import StandbyEngine
from paceline.core import Governor, ScopeStatus
from paceline.engine.dispatch.ticket_queues import backlog
from paceline.engine.engine import Engine
from paceline.engine.store_outage import store_trouble
from paceline.errors import StoreError
from paceline.executors.spool import Spool
from paceline.hosts.values import HostState, stored_host_states
from paceline.leadership.fleet import present_leader
from paceline.settings import Settings
from paceline.store import Balances, Store
from paceline.views.capacity import FleetState, is_busy, read_fleet
from paceline.views.gateway_calls import GatewayCalls, GatewayCounts
from paceline.views.status import EngineProcess, Throughput
from paceline.views.units import SessionView, session_view, stored_session_view

log = logging.getLogger("paceline.api")


class ApiContext:
    """Everything that a request may need. `folder` is the base of relative paths in posted plans.

    `since` is when the engine took the lead, or began to stand by.
    """

    def __init__(
        self,
        engine: Engine | StandbyEngine,
        *,
        settings: Settings,
        spool: Spool,
        zone: ZoneInfo,
        environ: Mapping[str, str],
        folder: Path,
        since: float,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.spool = spool
        self.zone = zone
        self.environ = environ
        self.folder = folder
        self.leads = isinstance(engine, Engine)
        self._since = since
        self.throughput = Throughput(engine.store)
        self.background = BackgroundReaders(engine, environ)
        self.calls = GatewayCalls()
        """The calls of the gateway beside this API."""
        self.transfers: set[str] = set()
        """The calls for which a worker sends or fetches commits now."""
        self.import_lock = asyncio.Lock()
        """Held while a plan is imported: two imports into one campaign would conflict in the store."""

    def close(self) -> None:
        """End all event streams, fail pending slot requests with "try again", and answer workers that wait."""
        self.background.close()
        if isinstance(self.engine, Engine):
            self.engine.leases.close()
            self.engine.hosts.answer_all()

    def apply_commands(self) -> None:
        """Carry out the stored commands now. If the store fails, the engine's next pass carries them out."""
        try:
            self.engine.apply_commands()
        except StoreError as error:
            log.warning("a command is delayed to the next pass: %s", error)

    def read_fleet(self) -> FleetState:
        """Read what views are built from, and bring the throughput up to date."""
        now = self.now
        self.throughput.catch_up(now)
        return read_fleet(
            self.store,
            self.governor,
            self.settings,
            self.zone,
            statuses=self.statuses(),
            now=now,
        )

    def statuses(self) -> list[ScopeStatus]:
        """Return the scopes that people see: without models that clients have named and no provider has served."""
        return [
            each for each in self.engine.limiter.statuses() if not self.calls.is_unserved(each.scope) or is_busy(each)
        ]

    @property
    def process(self) -> EngineProcess:
        """This process, and who leads if it stands by."""
        host = socket.gethostname() if self.store.is_shared else None
        leader = None if self.leads else str(present_leader(self.store) or "nobody")
        return EngineProcess(
            pid=os.getpid(), since=self._since, leads=self.leads, host=host, leader=leader, trouble=self.trouble
        )

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored now."""
        return store_trouble(self.settings.home)

    @property
    def leaderless(self) -> str | None:
        """The store, by a name for people, if nobody leads it now."""
        if self.leads:
            return None
        lease = self.store.leader(now=self.now)
        return "this database" if lease is None or lease.seconds <= 0 else None

    @property
    def balances(self) -> Balances:
        """What keys and accounts have spent. The leader knows it, others read it."""
        known = self.calls.balances()
        return Balances(self.store.spend(by_model=False)) if known is None else known

    @property
    def call_counts(self) -> GatewayCounts | None:
        """How many calls the gateway has. Only the leader knows."""
        return self.calls.counts() if self.leads else None

    def sessions(self) -> list[SessionView]:
        """Return the live sessions. A process that stands by knows of them what the store has."""
        if isinstance(self.engine, Engine):
            return [session_view(session) for session in self.engine.live_sessions()]
        campaigns = {campaign.name: campaign for campaign in self.store.campaigns()}
        running = [unit for unit in self.store.running_units() if unit.campaign in campaigns]
        return [stored_session_view(unit, campaigns[unit.campaign]) for unit in running]

    def backlog(self) -> dict[str, int]:
        """Return how many units wait in each scope, beyond those that a ticket waits there for.

        A process that stands by does not know for which units the leader's tickets wait.
        """
        if not isinstance(self.engine, Engine):
            return {}
        return backlog(self.engine.cycle.queues.queues.values(), self.store.claimable())

    def host_states(self) -> list[HostState]:
        """Return the other machines. A process that stands by knows of them what the store has."""
        if isinstance(self.engine, Engine):
            return self.engine.hosts.remote_states()
        return stored_host_states(self.store, self.settings.hosts)

    @property
    def store(self) -> Store:
        return self.engine.store

    @property
    def governor(self) -> Governor:
        """For reading only: changes go through stored commands."""
        return self.engine.governor

    @property
    def now(self) -> float:
        return self.engine.clock.now()


Context = NamedDependency[ApiContext]
"""The type of the parameter `context` by which a route receives it."""
