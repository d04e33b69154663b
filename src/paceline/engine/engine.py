"""The engine: one loop, one heartbeat, one leader of a store. `cycle.py` is what it does at every beat.

Here: start, the loop, and the end. Never here: the steps of a pass.
"""

import asyncio
import functools
import gc
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import GatewayAddress
from paceline.clock import Clock, seconds_since_boot
from paceline.core import Deferred, Governor
from paceline.engine.capacity.governor_state import load_governor
from paceline.engine.capacity.leases import Leases
from paceline.engine.cycle import Cycle, WakeUp
from paceline.engine.journal import Listeners
from paceline.engine.session.live_session import LiveSession
from paceline.engine.settings import EngineSettings
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES, EngineBusy, LeadLost, StoreDamaged, StoreError, StoreGone, StoreTooNew
from paceline.executors import Executor
from paceline.hosts.jobs import BackgroundJobs
from paceline.hosts.leader.host import LocalHost
from paceline.hosts.leader.registry import NO_HOSTS, HostRegistry
from paceline.hosts.messages import StoredHost
from paceline.leadership.election import FleetHomes, LeaderLease
from paceline.limiter import Limiter
from paceline.limiter.governor_driver import GovernorDriver, UsageSource
from paceline.metrics import MetricsRegistry
from paceline.store import Store

log = logging.getLogger("paceline.engine")
SHORTEST_REST_SECONDS = 1.0
"""A long heartbeat is cut short to renew the lead. While that fails, it is tried as often as this."""
TURNS_BETWEEN = 4
"""Turns of the loop between two pieces of a pass. A request needs as many to be read, handled and answered; with one
turn it would wait for as many pieces, of up to 20 ms each."""


class Engine:
    """Runs campaigns over a store and an executor. Only one leads a store at a time.

    `start` takes the lead and builds everything that decides: `governor`, `limiter`, `leases` and `hosts` exist from
    then on.
    """

    cycle: Cycle
    driver: GovernorDriver
    governor: Governor
    leases: Leases
    limiter: Limiter
    """The limiter over the engine's Governor: its slots and the engine's sessions share every limit."""
    hosts: HostRegistry
    """The machines that its sessions run on."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        store: Store,
        executor: Executor,
        clock: Clock,
        agents: Callable[[str], AgentProfile],
        environ: Mapping[str, str],
        owner: str,
        usage: Mapping[str, UsageSource] | None = None,
        fleet: FleetHomes | None = None,
        own_host: Mapping[str, StoredHost] = NO_HOSTS,
        make_jobs: Callable[[Callable[[], None]], BackgroundJobs] = BackgroundJobs,
        make_hosts: Callable[..., HostRegistry] = HostRegistry,
        elapsed: Callable[[], float] = seconds_since_boot,
    ) -> None:
        """`elapsed` measures the silence of hosts: a clock that nobody sets.

        Where machines share the store, `fleet` knows the homes of this one, and `own_host` has it by its name.
        """
        self.settings = settings
        self.store = store
        self.clock = clock
        self.metrics = MetricsRegistry()
        self._executor = executor
        self._agents = functools.cache(agents)
        self._environ = dict(environ)
        self._usage = dict(usage or {})
        self.outage = StoreOutage(clock)
        self._listeners = Listeners()
        self.lead = LeaderLease(store, owner, lease=settings.lease, fleet=fleet)
        self._leads = False
        self._is_stopping = False
        self._woken = WakeUp()
        self.jobs = make_jobs(self.wake)
        self._own_host = own_host
        self._make_hosts = make_hosts
        self._elapsed = elapsed
        self._is_built = False

    # -- the loop ----------------------------------------------------------------------------

    async def run(self, *, until_idle: bool = False) -> None:
        """Make passes until stopped, or until nothing is left that could still run by itself."""
        loop = asyncio.get_running_loop()
        unsubscribe = self.store.subscribe(lambda _: loop.call_soon_threadsafe(self.wake))
        try:
            if not self._leads:
                self.start()
            while not self._is_stopping:
                is_over, due = await self._try_pass(until_idle=until_idle)
                if is_over:
                    return
                await self._rest(due)
        finally:
            unsubscribe()
            self.close()

    async def _try_pass(self, *, until_idle: bool) -> tuple[bool, float | None]:
        """Make a pass. Returns whether to end because nothing is left to do, and when time alone changes something."""
        try:
            with self.metrics.pass_seconds.timed():
                for _ in self.cycle.make_pass():
                    for _ in range(TURNS_BETWEEN):  # the API, the gateway and signals go between
                        await asyncio.sleep(0)
                    if self.lead.is_shared:
                        self.lead.keep(self.clock.now())
                    if self._is_stopping:
                        return False, None  # the next engine reads the rest
            found = until_idle and self.is_idle(), self.store.next_resume_at()
            if self.outage.since is not None:
                self.outage.end()
            return found
        except (EngineBusy, StoreDamaged, StoreGone, StoreTooNew):
            self._leads = False  # nothing more is stored; sessions continue under their supervisors
            raise
        except Exception as error:
            if isinstance(error, StoreError):
                self.outage.begin(error)
            else:
                log.exception("a pass failed; the next one recovers")
            self.cycle.must_recover = True
            self._woken.clear()
            self.driver.arm()  # the pass may have changed when to look next, before it failed
            return False, None

    def make_pass(self) -> None:
        """Do one turn of the heartbeat, at once."""
        for _ in self.cycle.make_pass():
            pass

    def stop(self) -> None:
        """End after this pass. Sessions continue under their supervisors, and the next engine adopts them."""
        self._is_stopping = True
        self.wake()

    def wake(self) -> None:
        """Make the next pass now."""
        self._woken.set()

    @property
    def is_needed(self) -> bool:
        """Whether a program waits for a slot or has one, or a session is at work."""
        return bool(self.cycle.live) or bool(self.leases.slots.table)

    def is_idle(self) -> bool:
        """Return whether nothing runs, and nothing that is not paused could run later."""
        return self.cycle.is_idle()

    async def _rest(self, due: float | None) -> None:
        """Wait until a session ends, `wake` is called, or `due`; at most one heartbeat, and not while output waits."""
        if self.cycle.is_behind and not self.cycle.must_recover:
            await asyncio.sleep(0)
            return
        heartbeat = self.settings.heartbeat
        if self.lead.is_shared:
            heartbeat = min(heartbeat, max(SHORTEST_REST_SECONDS, self.lead.renewal_in()))
        wait = heartbeat if due is None else min(max(0.0, due - self.clock.now()), heartbeat)
        await self._woken.rest(functools.partial(self._executor.wait_ended, wait))

    # -- start and end -----------------------------------------------------------------------

    def start(self, *, gateway: GatewayAddress | None = None) -> None:
        """Take the lead, load what was learnt, and find what still runs.

        Sessions of accounts with `via_gateway` make their calls at `gateway`, where it is given.
        """
        now = self.clock.now()
        if gateway is not None:
            self.settings = msgspec.structs.replace(self.settings, gateway=gateway)
        if not self.lead.take(now):
            raise EngineBusy("another engine runs this home; stop it first, or use another PACELINE_HOME")
        self._leads = True
        self.governor = load_governor(self.store, self.settings.governor, now)
        may_grant = (lambda: self.lead.is_trusted) if self.lead.is_shared else None
        self.driver = GovernorDriver(
            self.governor, clock=self.clock, usage=self._usage, metrics=self.metrics, may_grant=may_grant
        )
        local = LocalHost(
            self._executor, self.jobs, home=Path(self.settings.home), environ=self._environ, lead=self.lead
        )
        self.hosts = self._make_hosts(
            self.store,
            local,
            configured=self.settings.hosts,
            owner=self.lead.owner,
            now=self.clock.now,
            elapsed=self._elapsed,
            own=self._own_host,
            emit=self.emit,
            wake=self.wake,
        )
        self.hosts.worker_settings = self.settings.for_workers(local.user_home)
        self.cycle = Cycle(
            self.store,
            self.driver,
            self.hosts,
            self.settings,
            agents=self._agents,
            lead=self.lead,
            listeners=self._listeners,
            woken=self._woken,
        )
        self.leases, self.limiter = self.cycle.leases, Limiter.over(self.driver)
        self._is_built = True
        self.cycle.start(now)
        self.emit("engine.leading", owner=self.lead.owner)

    def close(self) -> None:
        """Store everything and give up the lead. Live sessions continue. An engine without the lead stores nothing."""
        if self._is_built:
            self.jobs.close()
            self.leases.close()
            self.limiter.close()
        self.outage.forget_note()
        has_led, self._leads = self._leads, False
        try:
            if has_led and self._is_built:  # else nothing was loaded that could be stored
                self.emit("engine.stopped", owner=self.lead.owner)
                self.cycle.save_all(self.clock.now())
        except (LeadLost, *OUTAGES) as error:
            log.warning("ended without storing it; the next engine continues from what was stored last: %s", error)
        finally:
            if has_led or self.lead.is_shared:
                self.lead.resign()

    # -- for programs that share its loop ------------------------------------------------------

    def apply_commands(self) -> None:
        """Carry out the commands in the store now. An engine that does not lead leaves them to the one that does."""
        if self._leads:
            now = self.clock.now()
            self.cycle.apply_commands(now)
            self.driver.advance(now)
            self.wake()

    def emit(self, name: str, *, scope: str | None = None, unit: str | None = None, **fields: object) -> None:
        """Store an event with the next pass."""
        self.cycle.journal.emit(name, scope=scope, unit=unit, **fields)

    def listen(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """Call `on_stored` whenever events were stored. Returns a function that ends that."""
        return self._listeners.add(on_stored)

    def live_sessions(self) -> list[LiveSession]:
        return list(self.cycle.live.values())

    def wait_reasons(self) -> dict[str, Deferred]:
        """Return why the units of each campaign and account wait, by the name of their queue (`split_queue_name`)."""
        return self.cycle.queues.why(self.clock.now())


YOUNG_OBJECTS = 10_000
"""New objects between two collections. A session makes dozens that live until it ends: with Python's 700, a fifth of a
busy engine's time went into checking them. A collection of so many still takes less than a millisecond."""


def collect_seldom() -> None:
    """Leave all objects of the start out of later collections, and collect less often. Call it once, when it is over.

    A full collection over those objects would block the loop for 0.1 s.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
