"""One pass of the engine: the steps in their order, and what is stored before what.

Everything is stored before it is acted on: a claim before its launch, a closed window before its session is ended, an
outcome before its slot is released. A pass that failed is followed by a recovery in the next one.
"""

import logging
import math
from collections.abc import Iterator, Sequence

from paceline.agents.account import login_on
from paceline.core import Governor, Granted
from paceline.core.decisions.time_effects import CLOCK_STEP_SECONDS
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine import command_log
from paceline.engine.attempt_outcome import OutcomeRecorder
from paceline.engine.deadline_pacer import DeadlinePacer
from paceline.engine.dispatcher import Dispatcher, startable_campaigns
from paceline.engine.end_requests import EndRequests
from paceline.engine.event_retention import EventRetention
from paceline.engine.external_slots.leases import Leases
from paceline.engine.external_slots.registry import EXTERNAL_SLOTS, ExternalSlots
from paceline.engine.governor_state import AddedHostLimits, apply_campaign_limits, limit_checks
from paceline.engine.journal import EngineJournal
from paceline.engine.landings import Landings
from paceline.engine.launcher import Launcher
from paceline.engine.local_machine import LocalMachine
from paceline.engine.output_retention import OutputRetention
from paceline.engine.recovery import Recovery
from paceline.engine.relocation import Relocation
from paceline.engine.session import LiveSession
from paceline.engine.session_monitor import SessionMonitor
from paceline.engine.settings import EngineSettings
from paceline.engine.stage_commands import CHECK_TICKETS
from paceline.engine.ticket_queues import ATTEMPTS, TicketQueues, split_queue_name
from paceline.engine.unit_events import Listeners
from paceline.engine.unit_stages import UnitStages
from paceline.engine.wake_up import WakeUp
from paceline.errors import LeadLost
from paceline.events import Event
from paceline.limiter.governor_driver import GovernorDriver
from paceline.store import Campaign, Store

log = logging.getLogger("paceline.engine")


class Cycle:
    """The pass of one leading engine, with the collaborators that its steps use."""

    def __init__(
        self,
        store: Store,
        driver: GovernorDriver,
        launcher: Launcher,
        settings: EngineSettings,
        *,
        listeners: Listeners,
        woken: WakeUp,
    ) -> None:
        governor, hosts = driver.governor, launcher.hosts
        self._store, self._driver, self._hosts = store, driver, hosts
        self._host_limits = AddedHostLimits(settings.hosts)
        self.governor = governor
        self._settings = settings
        self._lead = launcher.lead
        self._listeners = listeners
        self._woken = woken
        self.live: dict[str, LiveSession] = {}
        self.campaigns: dict[str, Campaign] = {}
        self._commands = command_log.CommandReader(store)
        accounts = settings.campaign_accounts
        self.queues = _queues_of(launcher, governor)
        self.journal = EngineJournal(store, driver, self.queues, self._commands, listeners, accounts)
        self._pacer = DeadlinePacer(store, governor, accounts)
        self._monitor = SessionMonitor(driver, hosts, self.journal, self.live)
        self._outcomes = OutcomeRecorder(
            store, governor, hosts, settings, monitor=self._monitor, pacer=self._pacer, journal=self.journal
        )
        self._stages = UnitStages(store, governor, launcher, self.journal, self._outcomes.breaker)
        self._dispatcher = Dispatcher(
            store,
            queues=self.queues,
            launcher=launcher,
            outcomes=self._outcomes,
            journal=self.journal,
            live=self.live,
            stages=self._stages,
        )
        self._relocation = Relocation(store, self.journal)
        self._end_requests = EndRequests(store, self.journal, self.live, self._stages.preparations.pending)
        self._landing = Landings(governor, self.journal, self._end_requests, self.live, self._outcomes.history)
        self._recovery = Recovery(store, governor, launcher, outcomes=self._outcomes, stages=self._stages)
        self._event_retention = EventRetention(store, settings.keep_events)
        self._output_retention = OutputRetention(store, hosts.local.executor, settings.output)
        self.must_recover = False
        """Whether the last pass failed, so that a claim may be stored whose launch never happened."""
        self._renewed_at = self._passed_at = -math.inf
        self._connect(driver)

    def _connect(self, driver: GovernorDriver) -> None:
        """Let slots, workers and the Governor wake the pass and store their events."""
        emit = self.journal.emit
        self._outcomes.exclusions = self.queues.exclusions
        self.external = ExternalSlots(self._store, self.governor, emit, driver.metrics)
        self.leases = Leases(self.external, driver, emit=emit, sessions=self.live.values)
        self._hosts.emit, self._hosts.wake = emit, self._woken.set
        driver.subscribe(ATTEMPTS, self._on_granted)
        driver.subscribe(CHECK_TICKETS, lambda _: self._woken.set())
        driver.subscribe_events(self._on_events)
        driver.subscribe(EXTERNAL_SLOTS, self._on_external_granted)

    def start(self, now: float) -> None:
        """Find the sessions and the external slots of the engine before."""
        self._load_campaigns(now)
        self._store.shorten_backoffs(now=now)  # the clock may have been set back while no engine ran
        self._rename_logins()
        self._recovery.recover(self.live, self.campaigns, now)
        self.external.recover(now)

    def _rename_logins(self) -> None:
        """Give units the present id of their login: an earlier version, or other settings, named it otherwise."""
        accounts = self._settings.campaign_accounts
        hosts = ("", *(state.name for state in self._hosts.states()))
        for campaign in self.campaigns.values():
            for before, after in accounts.moved_ids(campaign).items():
                for host in hosts:
                    self._store.rename_account(campaign.name, login_on(before, host), login_on(after, host))

    def make_pass(self) -> Iterator[None]:
        """Do one turn of the heartbeat. Yields wherever other work of the loop may go between."""
        now = self._driver.now()
        if now < self._passed_at - CLOCK_STEP_SECONDS:
            self._store.shorten_backoffs(now=now)
        self._passed_at = now
        self._lead.keep(now)
        if now - self._renewed_at >= self._settings.lease:
            self._renew_leases(now)  # it has run out: another engine may lead, so nothing is stored before
        self.read_commands(now)
        self._renew_leases(now)
        if self.must_recover:
            self._recovery.recover(self.live, self.campaigns, now)
            self.must_recover = False
        self._hosts.step()
        yield from self._monitor.read_all()
        now = self._driver.now()
        self._monitor.stop_ending(now)
        self._outcomes.record_ended(self.live, self.campaigns.values(), self._stages.verifier, now)
        self._move_stages(now)
        if self._outcomes.breaker.has_paused:
            self._load_campaigns(now)
        self._recovery.settle_elsewhere(now)
        self._store.wake_units(now=now)
        self._landing.step(now)
        self._fill_queues(now)
        self.journal.collect(now)
        self._woken.clear()  # whatever set it is handled by this pass
        self._dispatcher.launch_granted(now, now + self._settings.lease)
        if self._relocation.step(self.queues.patience.overdue, now):
            self._woken.set()  # the next pass starts them elsewhere
        self.leases.tidy(now)
        self.journal.save(now)
        self._driver.advance(now)
        self._event_retention.step(now)  # last: each may take a few milliseconds, and nothing waits for them
        while self._output_retention.step(now):
            yield

    def make_keeping_pass(self) -> Iterator[None]:
        """Bring the sessions of this home to their ends, while an engine on another machine leads.

        Nothing is started or granted. The Governor is this process's own, so what it learns is not stored.
        """
        now = self._driver.now()
        self._load_campaigns(now)
        self._recovery.recover(self.live, self.campaigns, now)
        self._renew_units(now)
        yield from self._monitor.read_all()
        now = self._driver.now()
        self._monitor.stop_ending(now)
        self._outcomes.record_ended(self.live, self.campaigns.values(), self._stages.verifier, now)
        self._move_stages(now)
        self._driver.advance(now)
        self.journal.save_events()

    def _move_stages(self, now: float) -> None:
        """Move checks, deliveries and workspaces on, and store what came of them."""
        over = list(self._stages.verifier.step(self.campaigns, now))
        self._outcomes.store(over, now, self._stages.verifier.take_delivered())
        stored = self._outcomes.take_stored()
        self._landing.learn(stored)
        self._stages.on_stored(stored, self.campaigns, now)
        self._dispatcher.launch_prepared(self.campaigns, now)

    @property
    def is_behind(self) -> bool:
        """Whether a session has printed more than the last pass has read: the next one is due at once."""
        return self._monitor.is_behind

    def save_all(self, now: float) -> None:
        """Store everything that the next engine needs, also what is stored only now and then."""
        self.journal.has_learnt = True
        self.journal.save(now)
        self.external.note_presence(now, at_once=True)
        self._commands.save()

    def is_idle(self) -> bool:
        """Return whether nothing runs, and nothing could run later without a person: what is left is paused or held."""
        if self.live or self._recovery.elsewhere or self._stages.is_busy(self.campaigns):
            return False
        counts = self._store.counts()
        active = [name for name, campaign in self.campaigns.items() if campaign.state == "active"]
        stranded = self.queues.stranded
        waiting = {name for name in active if name in counts and counts[name].todo > stranded.get(name, 0)}
        return not waiting or (self._store.next_resume_at() is None and self._are_held(waiting))

    def _are_held(self, names: set[str]) -> bool:
        """Return whether every account of these campaigns is held."""
        reasons: dict[str, set[str]] = {name: set() for name in names}
        for queue, wait in self.queues.why(self._driver.now()).items():
            campaign, _ = split_queue_name(queue)
            if campaign in reasons:
                reasons[campaign].add(wait.reason)
        return all(found == {"held"} for found in reasons.values())

    def keep_lead(self) -> None:
        """Extend the lead between two pieces of a pass, if it is time."""
        self._lead.keep(self._driver.now())

    def obey(self, now: float) -> None:
        """Carry out the commands in the store between two passes."""
        self.read_commands(now)
        self._driver.advance(now)

    def read_commands(self, now: float) -> None:
        """Carry out the commands in the store, and store what they changed before they count as read."""
        commands = self._commands.read()
        if commands:
            for problem in command_log.carry_out(self.governor, commands, now):
                log.warning("a command could not be carried out: %s", problem)
            self.external.carry_out(commands, now)
            self._end_requests.carry_out(commands, now)
            self._load_campaigns(now)
            self._renewed_at = -math.inf  # running units may have been cancelled
            self.journal.has_learnt = True
            self.journal.save(now)
            self.external.table.save()  # commands are read once: a lost answer would leave its caller waiting forever
            self._listeners.notify()
        self._commands.done()

    def _load_campaigns(self, now: float) -> None:
        before = self.campaigns
        self.campaigns = {campaign.name: campaign for campaign in self._store.campaigns()}
        for name, campaign in self.campaigns.items():
            if before.get(name) != campaign:
                self._outcomes.breaker.forget(name)
        self._outcomes.breaker.has_paused = False
        apply_campaign_limits(self.governor, self.campaigns.values(), now)
        limit_checks(self.governor, self.campaigns.values(), self._settings.checks, now)

    def _renew_leases(self, now: float) -> None:
        """Keep the lead and the leases of running units. A unit whose lease is no longer ours was cancelled."""
        if 0 <= now - self._renewed_at < self._settings.lease / 3:
            return
        if not self._lead.take(now):
            raise LeadLost("another engine has taken the lead of this home")
        self._renew_units(now)

    def _renew_units(self, now: float) -> None:
        until = now + self._settings.lease
        units = (*(session.unit for session in self.live.values()), *self._stages.units())
        fences = {unit.id: unit.fence for unit in units}
        for unit_id in self._store.renew_units(fences, lease_until=until) if fences else ():
            if unit_id in self.live:
                self.live[unit_id].ending = AttemptOutcome(ending="cancelled", reason="cancelled")
            else:
                self._stages.drop(unit_id, now)
        self._renewed_at = now

    def _fill_queues(self, now: float) -> None:
        self._host_limits.apply(self.governor, self._hosts.states(), now)
        campaigns = startable_campaigns(self.campaigns, self.live.values())
        self._pacer.set_paces(campaigns, now)
        self._dispatcher.fill_queues(campaigns, now)

    def _on_granted(self, granted: Granted) -> None:
        self._dispatcher.on_granted(granted)
        self._driver.metrics.granted(granted.waited)
        self._woken.set()

    def _on_external_granted(self, granted: Granted) -> None:
        if self.external.on_granted(granted):
            self._woken.set()  # the pass stores the answer

    def _on_events(self, events: Sequence[Event]) -> None:
        self.journal.on_events(events)
        self._woken.set()


def _queues_of(launcher: Launcher, governor: Governor) -> TicketQueues:
    settings = launcher.settings
    return TicketQueues(
        governor,
        settings.campaign_accounts,
        launcher.lead.owner,
        hosts=LocalMachine(settings, launcher.hosts.states).states,
        machine=settings.machine,
        local_host=settings.local_host,
    )
