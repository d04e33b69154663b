"""What the routes work on: the engine of this process with its settings and spool, and the background readers.

In a process that stands by, a reader of the store takes the engine's place. The background readers run all the time:
they read the engine's events.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from litestar.di import NamedDependency
from prometheus_client.core import Metric

from paceline.api.event_stream import EventStream, EventTail
from paceline.api.prometheus import EngineMetrics
from paceline.api.standby import StandbyEngine
from paceline.core import Governor, ScopeStatus
from paceline.engine.dispatch.ticket_queues import backlog
from paceline.engine.engine import Engine
from paceline.engine.store_outage import store_trouble
from paceline.errors import StoreError
from paceline.executors.spool import Spool
from paceline.hosts.messages import HostState, stored_host_states
from paceline.leadership.election import present_leader
from paceline.settings import Settings
from paceline.store import Balances, Store
from paceline.views.capacity import FleetState, is_busy, read_fleet
from paceline.views.gateway_calls import GatewayCalls, GatewayCounts
from paceline.views.status import EngineProcess, Throughput
from paceline.views.timeline import HOUR_SECONDS, LONGEST_HOURS, Timeline, TimelineView, last_id_before
from paceline.views.units import SessionView, session_view, stored_session_view

if TYPE_CHECKING:
    from paceline.api.otel_spans import Traces


log = logging.getLogger("paceline.api")

SAMPLE_SECONDS = 1.0
"""How often the timeline reads the Governor: peaks shorter than this do not show."""
STANDBY_SAMPLE_SECONDS = 10.0
"""The same on a standby, which builds the Governor from the store each time."""
OTEL_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTEL_MISSING = "{variable} turns traces on, but OpenTelemetry is not installed: pip install 'paceline[otel]'"


class BackgroundReaders:
    """Reads events from its creation until `close`. Create it on the engine's loop."""

    def __init__(self, engine: Engine | StandbyEngine, environ: Mapping[str, str]) -> None:
        self._engine = engine
        self._tail = EventTail(engine.store, engine.listen, engine.clock)
        self.stream = EventStream(engine.store, self._tail, engine.clock)
        self._metrics = EngineMetrics(engine)
        self._tail.subscribe(self._metrics.count)
        self._timeline = Timeline()
        self._has_history = asyncio.Event()
        # Every process of a fleet reads the events; only the leader sends the traces.
        self._traces = open_traces(environ) if isinstance(engine, Engine) else None
        if self._traces is not None:
            self._tail.subscribe(self._traces.add)
        self._tasks = [self._start(self._tail.run()), self._start(self._fill_timeline())]

    def close(self) -> None:
        """End every stream and stop reading."""
        self.stream.close()
        for task in self._tasks:
            task.cancel()
        if self._traces is not None:
            self._traces.close()

    async def timeline(self, hours: float) -> TimelineView:
        """Return the last hours, once the stored events of the last day have been read."""
        await self._has_history.wait()
        await self._tail.read_new()
        self._timeline.reconcile(self._engine.store)
        self._sample()
        now = self._engine.clock.now()
        return self._timeline.view(now - hours * HOUR_SECONDS, now)

    async def metrics(self) -> list[Metric]:
        """Return every metric, with the newest events counted."""
        await self._tail.read_new()
        return self._metrics.collect()

    async def _fill_timeline(self) -> None:
        """Read the stored events of the last day, then sample what is in flight until cancelled."""
        engine, clock = self._engine, self._engine.clock
        day_ago = clock.now() - LONGEST_HOURS * HOUR_SECONDS
        after = await self._tail.retry(lambda: last_id_before(engine.store, day_ago, self._tail.last))
        await self._tail.replay(self._timeline.add, after=after)
        self._has_history.set()
        seconds = SAMPLE_SECONDS if isinstance(engine, Engine) else STANDBY_SAMPLE_SECONDS
        while True:
            with contextlib.suppress(StoreError):  # on a standby the state comes from the store, which may be away
                self._sample()
            await clock.sleep(seconds)

    def _sample(self) -> None:
        self._timeline.sample(self._engine.clock.now(), self._engine.limiter.statuses())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_log_failure)
        return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a background reader of events has failed and stays stopped", exc_info=error)


# -- traces, which the standard variables of OpenTelemetry turn on ------------------------------------


def open_traces(environ: Mapping[str, str]) -> "Traces | None":
    """Return traces that are exported to where the variables say, or None if they are off or cannot be made."""
    variable = enabled_by(environ)
    if variable is None:
        return None
    try:  # the extra `otel` may not be installed
        from paceline.api import otel_spans

        return otel_spans.exported_traces(service_name=environ.get("OTEL_SERVICE_NAME") or "paceline")
    except ImportError:
        log.warning(OTEL_MISSING.format(variable=variable))
        return None


def enabled_by(environ: Mapping[str, str]) -> str | None:
    """Return the variable that turns traces on, or None if there is none or another one turns them off."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return None if is_off else next((name for name in OTEL_ENDPOINTS if environ.get(name)), None)


# -- what a request needs ---------------------------------------------------------------------------


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
