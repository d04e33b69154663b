"""The engine: one loop, one heartbeat, one leader of a store. `cycle.py` is what it does at every beat.

Here: start, the loop, and the end. Never here: the steps of a pass.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import GatewayAddress
from paceline.clock import Clock, seconds_since_boot
from paceline.core import Deferred, Governor
from paceline.engine.background_jobs import BackgroundJobs
from paceline.engine.cycle import Cycle
from paceline.engine.external_slots.leases import Leases
from paceline.engine.governor_state import load_governor
from paceline.engine.hosts.host import LocalHost
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.launcher import Launcher
from paceline.engine.leader_lease import LeaderLease
from paceline.engine.session import LiveSession
from paceline.engine.settings import EngineSettings
from paceline.engine.store_outage import OUTAGES, StoreOutage
from paceline.engine.unit_events import Listeners
from paceline.engine.wake_up import WakeUp
from paceline.errors import EngineBusy, LeadLost, StoreDamaged, StoreGone, StoreTooNew
from paceline.executors import Executor
from paceline.limiter import Limiter
from paceline.limiter.governor_driver import GovernorDriver
from paceline.limiter.usage_polls import UsageSource
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
    ) -> None:
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
        self.lead = LeaderLease(store, owner, lease=settings.lease)
        self._leads = False
        self._is_stopping = False
        self._woken = WakeUp()
        self.jobs = BackgroundJobs(self.wake)
        self.elapsed: Callable[[], float] = seconds_since_boot
        """Measures the silence of hosts: a clock that nobody sets."""
        self._started: tuple[Cycle, Limiter] | None = None
        self.make_hosts: Callable[..., HostRegistry] = HostRegistry

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
                    self.cycle.keep_lead()
                    if self._is_stopping:
                        return False, None  # the next engine reads the rest
            found = until_idle and self.is_idle(), self.store.next_resume_at()
            self.outage.end()
            return found
        except (EngineBusy, StoreDamaged, StoreGone, StoreTooNew):
            self._leads = False  # nothing more is stored; sessions continue under their supervisors
            raise
        except Exception as error:
            if isinstance(error, OUTAGES):
                self.outage.begin(error)
            else:
                log.exception("a pass failed; the next one recovers")
            self.cycle.must_recover = True
            self._woken.clear()
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

    def is_idle(self) -> bool:
        """Return whether nothing runs, and nothing that is not paused could run later."""
        return self.cycle.is_idle()

    async def _rest(self, due: float | None) -> None:
        """Wait until a session ends, `wake` is called, or `due`; at most one heartbeat, and not while output waits."""
        if self.cycle.is_behind and not self.cycle.must_recover:
            await asyncio.sleep(0)
            return
        heartbeat = min(self.settings.heartbeat, max(SHORTEST_REST_SECONDS, self.lead.renewal_in()))
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
        governor = load_governor(self.store, self.settings.governor, now)
        driver = GovernorDriver(governor, clock=self.clock, usage=self._usage, metrics=self.metrics)
        if self.lead.is_shared:
            driver.may_grant = lambda: self.lead.is_trusted
        local = LocalHost(
            self._executor, self.jobs, home=Path(self.settings.home), environ=self._environ, lead=self.lead
        )
        self.hosts = self.make_hosts(
            self.store,
            local,
            settings=self.settings,
            owner=self.lead.owner,
            now=self.clock.now,
            elapsed=self.elapsed,
        )
        launcher = Launcher(self.hosts, self.settings, self._agents, self.lead)
        cycle = Cycle(
            self.store,
            driver,
            launcher,
            self.settings,
            listeners=self._listeners,
            woken=self._woken,
        )
        self._started = cycle, Limiter.over(driver)
        cycle.start(now)
        self.emit("engine.leading", owner=self.lead.owner)

    def close(self) -> None:
        """Store everything and give up the lead. Live sessions continue. An engine without the lead stores nothing."""
        if self._started is not None:
            self.jobs.close()
            self.leases.close()
            self.limiter.close()
        self.outage.forget_note()
        has_led, self._leads = self._leads, False
        try:
            if has_led and self._started is not None:  # else nothing was loaded that could be stored
                self.emit("engine.stopped", owner=self.lead.owner)
                self.cycle.save_all(self.clock.now())
        except (LeadLost, *OUTAGES) as error:
            log.warning("ended without storing it; the next engine continues from what was stored last: %s", error)
        finally:
            if has_led or self.lead.is_shared:
                self.lead.resign()

    # -- for programs that share its loop ------------------------------------------------------

    @property
    def cycle(self) -> Cycle:
        return self._parts[0]

    @property
    def _parts(self) -> tuple[Cycle, Limiter]:
        if self._started is None:
            raise RuntimeError("the engine has not started; call start() first")
        return self._started

    @property
    def limiter(self) -> Limiter:
        """The limiter over the engine's Governor: its slots and the engine's sessions share every limit."""
        return self._parts[1]

    @property
    def governor(self) -> Governor:
        return self.cycle.governor

    @property
    def leases(self) -> Leases:
        return self.cycle.leases

    def obey(self) -> None:
        """Carry out the commands in the store now. An engine that does not lead leaves them to the one that does."""
        if self._leads:
            self.cycle.obey(self.clock.now())
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
