"""The engine: one loop, one heartbeat, one leader of a store; and one pass: its steps in their order.

Everything is stored before it is acted on: a claim before its launch, a closed window before its session is ended, an
outcome before its slot is released. A pass that failed is followed by a recovery in the next one.
"""

import asyncio
import functools
import gc
import logging
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from paceline import errors
from paceline.agents import AgentProfile
from paceline.agents.account import GatewayAddress, login_on
from paceline.clock import Clock, seconds_since_boot
from paceline.core import Deferred, Governor, Granted
from paceline.core.decisions.time_effects import CLOCK_STEP_SECONDS
from paceline.engine import command_log
from paceline.engine.capacity.external_slots import EXTERNAL_SLOTS
from paceline.engine.capacity.governor_state import LoginWatch, apply_campaign_limits, apply_host_limits, load_governor
from paceline.engine.capacity.leases import Leases
from paceline.engine.dispatch.dispatcher import CANCELLED, Dispatcher
from paceline.engine.dispatch.placement import with_own_machine
from paceline.engine.dispatch.ticket_queues import ATTEMPTS, TicketQueues, split_queue_name
from paceline.engine.journal import EngineJournal, EngineParts
from paceline.engine.retention import EventRetention, OutputRetention
from paceline.engine.session.live_session import CHECK_TICKETS, LiveSession
from paceline.engine.session.session_monitor import SessionMonitor
from paceline.engine.session.unit_stages import UnitStages
from paceline.engine.session.window_landing import Landings
from paceline.engine.settings import NO_ACCOUNT, EngineSettings
from paceline.engine.store_outage import StoreOutage
from paceline.events import Event
from paceline.executors.interface import Executor
from paceline.hosts.jobs import BackgroundJobs
from paceline.hosts.leader.host import LocalHost
from paceline.hosts.leader.registry import NO_HOSTS, HostRegistry
from paceline.hosts.leader.workspace_cleanup import WorkspaceCleanup
from paceline.hosts.messages import StoredHost
from paceline.leadership.election import FleetHomes, LeaderLease
from paceline.limiter import Limiter
from paceline.limiter.governor_driver import GovernorDriver, UsageSource
from paceline.metrics import MetricsRegistry
from paceline.store import Store

log = logging.getLogger("paceline.engine")
SHORTEST_REST_SECONDS = 1.0
"""A long heartbeat is cut short to renew the lead. While that fails, it is tried as often as this."""
STANDSTILL_SECONDS = 3.0
"""How late a pass may come on a busy machine before the log says so: two heartbeats and more."""
TURNS_BETWEEN = 4
"""Turns of the loop between two pieces of a pass. A request needs as many to be read, handled and answered; with one
turn it would wait for as many pieces, of up to 20 ms each."""


class WakeUp(asyncio.Event):
    """A request for the next pass: it ends the rest that is under way, or keeps the next one from beginning."""

    async def rest(self, wait: Callable[[], Coroutine[object, object, object]]) -> None:
        """Wait until `wait` is over or a pass is asked for. An error of `wait` ends the rest: the pass shows it."""
        if self.is_set():
            await asyncio.sleep(0)
            return
        tasks = [asyncio.ensure_future(wait()), asyncio.ensure_future(self.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Engine:
    """Runs campaigns over a store and an executor. Only one leads a store at a time.

    `start` takes the lead and builds everything that decides: `governor`, `limiter`, `leases` and `hosts` exist from
    then on.
    """

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
        """`elapsed` measures silence and standstills: a clock that nobody sets.

        Where machines share the store, `fleet` knows the homes of this one, and `own_host` has it by its name.
        """
        self.settings, self.store, self.clock, self.elapsed = settings, store, clock, elapsed
        self._executor, self._own_host, self._make_hosts = executor, own_host, make_hosts
        self.metrics = MetricsRegistry()
        self.agents = functools.cache(agents)
        self._environ, self._usage = dict(environ), dict(usage or {})
        self.outage = StoreOutage(clock)
        self._listeners: list[Callable[[], object]] = []
        self.lead = LeaderLease(store, owner, lease=settings.lease, fleet=fleet)
        self._leads = self._is_stopping = self._is_built = False
        self.woken = WakeUp()
        self.jobs = make_jobs(self.wake)

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
                for _ in self.make_pass():
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
        except (errors.EngineBusy, errors.StoreDamaged, errors.StoreGone, errors.StoreTooNew):
            self._leads = False  # nothing more is stored; sessions continue under their supervisors
            raise
        except Exception as error:
            if isinstance(error, errors.StoreError):
                self.outage.begin(error)
            else:
                log.exception("a pass failed; the next one recovers")
            self._must_recover = True
            self.woken.clear()
            self.driver.arm()  # the pass may have changed when to look next, before it failed
            return False, None

    def stop(self) -> None:
        """End after this pass. Sessions continue under their supervisors, and the next engine adopts them."""
        self._is_stopping = True
        self.wake()

    def wake(self) -> None:
        """Make the next pass now."""
        self.woken.set()

    @property
    def is_needed(self) -> bool:
        """Whether a program waits for a slot or has one, or a session is at work."""
        return bool(self.live) or bool(self.leases.slots)

    async def _rest(self, due: float | None) -> None:
        """Wait until a session ends, `wake` is called, or `due`; at most one heartbeat, and not while output waits."""
        if self.monitor.is_behind and not self._must_recover:
            await asyncio.sleep(0)
            return
        heartbeat = self.settings.heartbeat
        if self.lead.is_shared:
            heartbeat = min(heartbeat, max(SHORTEST_REST_SECONDS, self.lead.renewal_in()))
        wait = heartbeat if due is None else min(max(0.0, due - self.clock.now()), heartbeat)
        await self.woken.rest(functools.partial(self._executor.wait_ended, wait))

    # -- start and end -----------------------------------------------------------------------

    def start(self, *, gateway: GatewayAddress | None = None) -> None:
        """Take the lead, load what was learnt, and find what still runs.

        Sessions of accounts with `via_gateway` make their calls at `gateway`, where it is given.
        """
        now = self.clock.now()
        if gateway is not None:
            self.settings = msgspec.structs.replace(self.settings, gateway=gateway)
        if not self.lead.take(now):
            raise errors.EngineBusy("another engine runs this home; stop it first, or use another PACELINE_HOME")
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
            elapsed=self.elapsed,
            own=self._own_host,
            emit=self.emit,
            wake=self.wake,
        )
        self.hosts.worker_settings = self.settings.for_workers(local.user_home)
        self._build()
        self._is_built = True
        self._load_campaigns(now)
        self.store.hasten_units({}, set_back_to=now)  # the clock may have been set back while no engine ran
        self._rename_logins()
        self._dispatcher.recover(now)
        self.leases.recover(now)
        self.emit("engine.leading", owner=self.lead.owner)

    def _build(self) -> None:
        """Build everything that works on what the engine leads."""
        store, driver, governor = self.store, self.driver, self.governor
        hosts, settings = self.hosts, self.settings
        self._granted: list[str] = []
        self._must_recover = False
        """Whether the last pass failed, so that a claim may be stored whose launch never happened."""
        self._renewed_at = self._passed_at = -math.inf
        self._began_at = math.inf
        """When the last pass began, by `elapsed`."""
        every_host = with_own_machine(settings, hosts.states, fleet_name=hosts.fleet_name)
        queues = TicketQueues(governor, settings, self.lead.owner, hosts=every_host)
        journal = EngineJournal(store, driver, queues, self._listeners)
        parts = EngineParts(store=store, driver=driver, hosts=hosts, settings=settings, queues=queues, journal=journal)
        self.queues, self.journal, self._ended = queues, journal, parts.ended
        self.campaigns, self.live = parts.campaigns, parts.live
        self._stages = UnitStages(parts)
        self.monitor = SessionMonitor(parts, self._stages)
        self._dispatcher = Dispatcher(parts, self.agents, self.monitor, self._stages)
        self._landing = Landings(parts, self.monitor.history, self._stages.preparing)
        self._cleanup = WorkspaceCleanup(store, hosts)
        self._logins = LoginWatch(governor, settings.campaign_accounts, hosts.local.environ, now=self.clock.now())
        self._host_limits: dict[str, int | None] = {}
        self._event_retention = EventRetention(store, settings.keep_events)
        self._output_retention = OutputRetention(store, hosts.local.executor, settings.output)
        self.leases = Leases(store, driver, emit=self.emit, sessions=self.live.values)
        self.limiter = Limiter.over(driver)
        driver.subscribe(ATTEMPTS, self._on_granted)
        driver.subscribe(CHECK_TICKETS, lambda _: self.wake())
        driver.subscribe_events(self._on_events)
        driver.subscribe(EXTERNAL_SLOTS, self._on_external_granted)

    def _rename_logins(self) -> None:
        """Give units the present id of their login, which other settings named otherwise."""
        accounts = self.settings.campaign_accounts
        hosts = ("", *(state.name for state in self.hosts.states()))
        for campaign in self.campaigns.values():
            for before, after in accounts.moved_ids(campaign).items():
                for host in hosts:
                    self.store.rename_account(campaign.name, login_on(before, host), login_on(after, host))
        self.hosts.move_lead(self.campaigns.values(), [NO_ACCOUNT, *(account.id for account in accounts)])

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
                now = self.clock.now()
                self.journal.has_learnt = True
                self.journal.save(now)
                self.leases.note_presence(now, at_once=True)
                self.journal.commands.save()
        except (errors.LeadLost, *errors.OUTAGES) as error:
            log.warning("ended without storing it; the next engine continues from what was stored last: %s", error)
        finally:
            if has_led or self.lead.is_shared:
                self.lead.resign()

    # -- for programs that share its loop ------------------------------------------------------

    def apply_commands(self) -> None:
        """Carry out the commands in the store now. An engine that does not lead leaves them to the one that does."""
        if self._leads:
            now = self.clock.now()
            self._apply_commands(now)
            self.driver.advance(now)
            self.woken.set()

    def emit(self, name: str, *, scope: str | None = None, unit: str | None = None, **fields: object) -> None:
        """Store an event with the next pass."""
        self.journal.emit(name, scope=scope, unit=unit, **fields)

    def listen(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """Call `on_stored` whenever events were stored. Returns a function that ends that."""
        self._listeners.append(on_stored)
        return lambda: self._listeners.remove(on_stored)

    def live_sessions(self) -> list[LiveSession]:
        return list(self.live.values())

    def wait_reasons(self) -> dict[str, Deferred]:
        """Return why the units of each campaign and account wait, by the name of their queue (`split_queue_name`)."""
        return self.queues.why(self.clock.now())

    # -- a pass ------------------------------------------------------------------------------

    def make_pass(self) -> Iterator[None]:
        """Do one turn of the heartbeat. Yields wherever other work of the loop may go between.

        A step whose subject does not exist costs nothing: a home without hosts, slots or sessions has none of theirs.
        """
        now = self.driver.now()
        if now < self._passed_at - CLOCK_STEP_SECONDS:
            self.store.hasten_units({}, set_back_to=now)
        began_before, self._began_at = self._began_at, self.elapsed()
        still = self._began_at - began_before
        if still > self.settings.heartbeat + STANDSTILL_SECONDS and not self._must_recover:
            log.warning("the engine stood still for %.0f s (machine asleep, frozen or busy, or a slow store)", still)
        self._passed_at = now
        if self.lead.is_shared:
            self.lead.keep(now)
        if now - self._renewed_at >= self.settings.lease:
            self._renew_leases(now)  # it has run out: another engine may lead, so nothing is stored before
        self._apply_commands(now)
        self._renew_leases(now)
        if self._must_recover:
            self._dispatcher.recover(now)
            self._must_recover = False
        if self.hosts.has_workers:
            self.hosts.step()
            self._cleanup.step(now)
        if self.live:
            yield from self.monitor.read_all()
            now = self.driver.now()
            self.monitor.stop_ending(now)
            self.monitor.record_ended(now)
        if self._ended:
            self.monitor.archive(now)
        self._move_stages(now)
        if self._stages.breaker.has_paused:
            self._load_campaigns(now)
        if self._dispatcher.has_cancelled:
            self._dispatcher.settle_cancelled(now)
        self.store.wake_units(now=now)
        self._landing.step(now)
        if self._logins.held:
            self._logins.step(now)
        self._fill_queues(now)
        self.journal.collect(now)
        self.woken.clear()  # whatever set it is handled by this pass
        if self._granted:
            granted, self._granted = self._granted, []
            self._granted += self._dispatcher.launch_granted(granted, now, now + self.settings.lease)
        if self.queues.patience.overdue and self._dispatcher.give_up_conversations(self.queues.patience.overdue, now):
            self.wake()  # the next pass starts them elsewhere
        if self.leases.is_busy:
            self.leases.tidy(now)
        self.journal.save(now)
        self.driver.advance(now)
        self._event_retention.step(now)  # last: each may take a few milliseconds, and nothing waits for them
        while self._output_retention.step(now):
            yield

    def _move_stages(self, now: float) -> None:
        """Move checks, deliveries and workspaces on, and store what came of them."""
        if self._stages.removals:
            self._stages.note_removals()
        if self._stages.staged:
            self.monitor.store(list(self._stages.step(now)), now)
        if self.monitor.stored:
            stored, self.monitor.stored = self.monitor.stored, []
            self._stages.remove_workspaces(stored)
        if self._stages.preparing:
            self._dispatcher.launch_prepared(now)

    def is_idle(self) -> bool:
        """Return whether nothing runs, and nothing could run later without a person: what is left is paused or held."""
        if self.live or self._stages.is_busy:
            return False
        counts = self.store.counts()
        active = [name for name, campaign in self.campaigns.items() if campaign.state == "active"]
        stranded = self.queues.stranded
        waiting = {name for name in active if name in counts and counts[name].todo > stranded.get(name, 0)}
        if not waiting or self.store.next_resume_at() is not None:
            return not waiting
        # Every account of them may be held, and none of these be asked again by itself.
        are_held: dict[str, list[bool]] = {name: [] for name in waiting}
        for queue, wait in self.queues.why(self.driver.now()).items():
            campaign, _ = split_queue_name(queue)
            if campaign in are_held:
                are_held[campaign].append(wait.reason == "held" and wait.retry_at is None)
        return all(found and all(found) for found in are_held.values())

    # -- commands ------------------------------------------------------------------------------

    def _apply_commands(self, now: float) -> None:
        """Carry out the commands in the store, and store what they changed before they count as read.

        Each touches only what it names: a unit, the campaigns, slots of programs, hosts, or the Governor. One that
        cannot be read is logged and skipped: it must not stop the others.
        """
        commands = self.journal.commands.read()
        for command in commands:
            try:
                self._carry_out(command.event, now)
            except errors.StoreError:
                raise  # it is read again by the next pass
            except (errors.PacelineError, msgspec.ValidationError, KeyError) as error:
                log.warning("a command could not be carried out: %s: %s", command.event.name, error)
        if commands:
            self.journal.flush()
            if self.leases.is_busy:  # commands are read once: a lost answer would leave its caller waiting forever
                self.leases.save()
            self.journal.notify()
        self.journal.commands.done()

    def _carry_out(self, event: Event, now: float) -> None:
        name = event.name.removeprefix(command_log.PREFIX)
        if name == "campaigns":  # or a unit: the rows of units are read with the next claim
            action = event.fields.get("action", "")
            if action in ("", "cancel"):
                self._renewed_at = -math.inf
                self._dispatcher.has_cancelled = True
            is_unit = "/" in str(event.fields.get("target", ""))
            if not is_unit or action in ("resume", "retry"):  # these may revive the campaign of the unit
                self._load_campaigns(now)
        elif name.startswith(command_log.SLOT_COMMANDS):
            self.leases.carry_out(name, event, now)
        elif name == command_log.END_AT_TURN:
            self._landing.carry_out(event, now)
        else:
            command_log.carry_out(self.governor, event, now)
            self.journal.has_learnt = True
            if name == "host" or (event.scope or "").startswith("host:"):
                self.hosts.read_settings()

    def _load_campaigns(self, now: float) -> None:
        """Read the campaigns, and apply what has changed in them."""
        campaigns = self.store.campaigns()
        if not self.settings.starts_work:
            campaigns = [msgspec.structs.replace(each, state="paused") for each in campaigns]
        changed = [campaign for campaign in campaigns if self.campaigns.get(campaign.name) != campaign]
        self.campaigns.clear()
        self.campaigns.update((campaign.name, campaign) for campaign in campaigns)
        for campaign in changed:
            self._stages.breaker.forget(campaign.name)
        self._stages.breaker.has_paused = False
        apply_campaign_limits(self.governor, changed, now, checks=self.settings.checks)

    # -- leases, queues and grants -------------------------------------------------------------

    def _renew_leases(self, now: float) -> None:
        """Keep the lead and the leases of running units. A unit whose lease is no longer ours was cancelled."""
        if 0 <= now - self._renewed_at < self.settings.lease / 3:
            return
        if not self.lead.take(now):
            raise errors.LeadLost("another engine has taken the lead of this home")
        until = now + self.settings.lease
        attempts = (*self.live.values(), *self._stages.preparing.values(), *self._stages.staged.values())
        fences = {attempt.unit.id: attempt.unit.fence for attempt in attempts}
        for unit_id in self.store.renew_units(fences, lease_until=until) if fences else ():
            if unit_id in self.live:
                self.live[unit_id].ending = CANCELLED
            else:
                self._stages.drop(unit_id, now)
        self._renewed_at = now

    def _fill_queues(self, now: float) -> None:
        if hosts := self.hosts.states():
            configured = self.settings.hosts
            apply_host_limits(self.governor, hosts, self._host_limits, configured=configured, now=now)
        # A campaign that was deleted and added again waits until the sessions of the deleted one are over: its units
        # have the same names, so the store would take the old sessions for the new units.
        running = {(session.campaign.name, session.campaign.created_at) for session in self.live.values()}
        of_deleted = {name for name, at in running if name in self.campaigns and self.campaigns[name].created_at != at}
        campaigns = [each for name, each in self.campaigns.items() if name not in of_deleted]
        self.monitor.pacer.set_paces(campaigns, now)
        self.queues.fill(campaigns, self.store.claimable(), now)

    def _on_external_granted(self, granted: Granted) -> None:
        if self.leases.on_granted(granted):
            self.wake()  # the pass stores the answer

    def _on_granted(self, granted: Granted) -> None:
        self._granted.append(granted.ticket_id)
        self.driver.metrics.granted(granted.waited)
        self.wake()

    def _on_events(self, events: Sequence[Event]) -> None:
        self.journal.governor_events += events
        self._logins.note_holds(events)
        self.wake()


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
