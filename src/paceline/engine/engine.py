"""The engine: one loop, one heartbeat. Each pass reads, settles, asks the Governor, claims and launches.

Everything is stored before it is acted on: a claim before its launch, a closed window before its session is
ended, a transition before its slot is given on. A pass that fails is told, and the next one runs.
"""

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account
from paceline.clock import Clock
from paceline.core import Deferred, Governor, Granted, Ticket
from paceline.core.signals import AuthFailed, BillingStop, QuotaClosed, Signal
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine import command_log as control
from paceline.engine.attempt_outcome import Parking, accounts_within
from paceline.engine.deadline_pacer import Deadlines
from paceline.engine.dispatcher import ATTEMPTS, Line, Lines
from paceline.engine.external_slots.leases import Leases
from paceline.engine.external_slots.registry import EXTERNAL_SLOTS, OutsideSlots
from paceline.engine.governor_state import CommandReader, load_governor, save_governor
from paceline.engine.launch import launch_order
from paceline.engine.outcome_record import Settling
from paceline.engine.session import LiveSession, those_that_may_start
from paceline.engine.settings import EngineSettings
from paceline.engine.unit_events import Gist, Listeners, gist_of, start_event, unit_event
from paceline.errors import EngineBusy, InvalidInput, PacelineError
from paceline.events import Event
from paceline.executors import Executor, Handle
from paceline.limiter import Limiter
from paceline.limiter.governor_driver import GovernorDriver
from paceline.limiter.usage_polling import UsageSource
from paceline.metrics import MetricsRegistry
from paceline.store import Campaign, OutcomeRecord, Store, Unit

log = logging.getLogger("paceline.engine")

WHY_STATE = "why"
UNHEARD_STOP_SECONDS = 60.0
LASTING = (QuotaClosed, BillingStop, AuthFailed)
"""Signals that still hold when they are read again after a restart."""


class Engine:
    """Runs campaigns over a store and an executor. Only one leads a store at a time."""

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
        self._owner = owner
        self._usage = dict(usage or {})
        self._heard: list[Event] = []
        self._granted: list[str] = []
        self._listeners = Listeners()
        self._live: dict[str, LiveSession] = {}
        self._campaigns: dict[str, Campaign] = {}
        self._news: list[Event] = []
        self._canaries: set[str] = set()
        self._alone: dict[str, LiveSession] = {}
        self._commands = CommandReader(store)
        self._renewed_at = -math.inf
        self._told_why: Mapping[str, Gist] = {}
        self._has_learnt = False
        self._leads = False
        self._is_shaken = False
        self._is_stopping = False
        self._woken = asyncio.Event()
        self._govern(Governor(settings.governor, now=clock.now()))

    def _govern(self, governor: Governor) -> None:
        """Everything that asks this Governor. Slots of `limiter` and sessions share every limit."""
        self.governor = governor
        self._driver = GovernorDriver(
            governor, clock=self.clock, usage=self._usage, metrics=self.metrics, on_events=self._hear_events
        )
        self._driver.subscribe(ATTEMPTS, self._hear_grant)
        self._driver.subscribe(EXTERNAL_SLOTS, lambda granted: self.wake() if self._outside.granted(granted) else None)
        self.limiter = Limiter.over(self._driver)
        self._lines = Lines(governor, self.settings.accounts, self._owner)
        self._deadlines = Deadlines(self.store, governor, self._lines)
        self._parking = Parking(governor)
        self._settling = Settling(self.settings, self._lines, self._parking)
        self._outside = OutsideSlots(self.store, governor, self.tell, self.metrics)
        self.leases = Leases(self._outside, self._driver, clock=self.clock, tell=self.tell, sessions=self.live_sessions)

    # -- the loop ----------------------------------------------------------------------------

    async def run(self, *, until_idle: bool = False) -> None:
        """Pass after pass, until stopped, or until nothing is left that could still run by itself."""
        try:
            if not self._leads:
                self.start()
            while not self._is_stopping:
                is_idle, due = self._try_pass()
                if until_idle and is_idle:
                    return
                await self._rest(due)
        finally:
            self.close()

    def _try_pass(self) -> tuple[bool, float | None]:
        """Whether nothing is left to do, and when time alone changes something."""
        try:
            self.metrics.pass_seconds.time(self.make_pass)
            return self.is_idle(), self.store.next_resume_at()
        except EngineBusy:
            self._leads = False
            raise
        except Exception:
            log.exception("a pass failed; the next one runs")
            self._is_shaken = True
            self._woken.clear()
            return False, None

    def make_pass(self) -> None:
        """One turn of the heartbeat."""
        now = self.clock.now()
        self._read_commands(now)
        self._renew(now)
        if self._is_shaken:
            self._recover(now)  # a claim may be stored whose answer was lost
            self._is_shaken = False
        self._read_sessions(now)
        self._settle_ended(now)
        self.store.wake_units(now=now)
        self._fit_lines(now)
        self._hear_governor(now)
        self._woken.clear()  # whatever woke us is being seen to
        self._launch_granted(now)
        self.leases.tidy(now)
        self._save(now)
        self._driver.advance(now)

    def stop(self) -> None:
        """Let go after this pass; sessions go on under their supervisors and are found again."""
        self._is_stopping = True
        self.wake()

    def wake(self) -> None:
        """Make the next pass now."""
        self._woken.set()

    def is_idle(self) -> bool:
        """Nothing runs, and nothing that is not paused could run later."""
        if self._live:
            return False
        counts = self.store.counts()
        active = [name for name, campaign in self._campaigns.items() if campaign.state == "active"]
        return not any(counts[name].todo for name in active if name in counts)

    async def _rest(self, due: float | None) -> None:
        """Until a session ends, someone calls, or time alone changes something; a heartbeat at most."""
        heartbeat = self.settings.heartbeat
        wait = heartbeat if due is None else min(max(0.0, due - self.clock.now()), heartbeat)
        ended = asyncio.ensure_future(self._executor.wait_ended(wait))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({ended, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            woken.cancel()
            await asyncio.gather(ended, woken, return_exceptions=True)

    # -- for those who share its loop ----------------------------------------------------------

    def obey(self) -> None:
        """Carry out the orders in the store now, and store what they change. One that does not lead leaves them be."""
        if self._leads:
            now = self.clock.now()
            self._read_commands(now)
            self._driver.advance(now)
            self.wake()

    def tell(self, name: str, *, scope: str | None = None, unit: str | None = None, **fields: object) -> None:
        """An event, stored with the next pass."""
        self._news.append(Event(name, self.clock.now(), scope, unit, fields))

    def listen(self, on_stored: Callable[[], object]) -> Callable[[], None]:
        """Call it whenever events were added to the store; the answer ends that."""
        return self._listeners.add(on_stored)

    def live_sessions(self) -> list[LiveSession]:
        return list(self._live.values())

    def why_lines(self) -> dict[str, Deferred]:
        """What holds the units of each campaign and account, by the name of their line (`lines.split_line`)."""
        return self._lines.why(self.clock.now())

    # -- start and end -----------------------------------------------------------------------

    def start(self) -> None:
        """Take the lead, remember what was learnt, and find what still runs."""
        now = self.clock.now()
        if not self.store.lead(self._owner, until=now + self.settings.lease, now=now):
            raise EngineBusy("another engine runs this home; stop it first, or use another PACELINE_HOME")
        self._leads = True
        self._govern(load_governor(self.store, self.settings.governor, now))
        self._commands = CommandReader(self.store)
        self._load_campaigns(now)
        self._recover(now)
        self._outside.recover(now)
        self.tell("engine.leading", owner=self._owner)

    def close(self) -> None:
        """Store what there is to store and let go. Live sessions go on. One that lost the lead writes nothing."""
        self.leases.close()
        self.limiter.close()
        if not self._leads:
            return
        self._leads = False
        now = self.clock.now()
        self.tell("engine.stopped", owner=self._owner)
        self._has_learnt = True
        self._save(now)
        self._commands.save()
        self.store.resign(self._owner)

    def _recover(self, now: float) -> None:
        """What still runs is adopted at once, what ended is collected, what is nobody's is ended."""
        never_began: list[OutcomeRecord] = []
        for unit in self.store.running_units():
            if unit.id in self._live:
                continue
            handle = self._executor.adopt(unit.attempt_id) if unit.attempt_id is not None else None
            campaign = self._campaigns.get(unit.campaign)
            if handle is None or campaign is None:
                lost = AttemptOutcome(ending="lost", reason="the engine went before the session began")
                never_began.append(self._settling.settled(unit, lost, now))
            else:
                self._adopt(unit, campaign, handle, now)
        self._store_settled(never_began, now)
        for stray in self._executor.sweep([session.handle.attempt_id for session in self._live.values()]):
            log.warning("%s %s, which was nobody's", stray.action, stray.attempt_id)

    def _adopt(self, unit: Unit, campaign: Campaign, handle: Handle, now: float) -> None:
        account = self.settings.accounts.get(unit.account or "")
        scopes = self._lines.scopes(campaign, account)
        ticket = Ticket(handle.attempt_id, scopes, group=campaign.name, priority=campaign.priority, leased=False)
        self.governor.adopt(ticket, now=now)
        session = self._session(unit, campaign, account, ticket, handle)
        self._live[unit.id] = session
        told = session.catch_up(now)  # most of it was reported by the engine that went
        self._take_signals(session, [signal for signal in told if isinstance(signal, LASTING)], now)

    # -- commands and leases -------------------------------------------------------------------

    def _read_commands(self, now: float) -> None:
        commands = self._commands.read()
        if commands:
            for trouble in control.carry_out(self.governor, commands, now):
                log.warning("a command could not be carried out: %s", trouble)
            self._outside.carry_out(commands, now)
            self._load_campaigns(now)
            self._renewed_at = -math.inf  # running units may have been cancelled
            self._has_learnt = True
            self._save(now)
            self._outside.save()  # read once: who asked would wait for ever for an answer that was lost
            self._listeners.tell()
        self._commands.done()

    def _load_campaigns(self, now: float) -> None:
        self._campaigns = {campaign.name: campaign for campaign in self.store.campaigns()}
        for campaign in self._campaigns.values():
            scope = f"campaign:{campaign.name}"
            if self.governor.get_limit(scope) != campaign.max_sessions:
                self.governor.set_limit(scope, campaign.max_sessions, now=now)

    def _renew(self, now: float) -> None:
        """Keep the lead and the leases; a unit whose lease is not ours any more was cancelled."""
        if 0 <= now - self._renewed_at < self.settings.lease / 3:
            return
        until = now + self.settings.lease
        if not self.store.lead(self._owner, until=until, now=now):
            raise EngineBusy("another engine has taken the lead of this home")
        fences = {unit_id: session.unit.fence for unit_id, session in self._live.items()}
        for unit_id in self.store.renew_units(fences, lease_until=until) if fences else ():
            self._live[unit_id].ending = AttemptOutcome(ending="cancelled", reason="cancelled")
        self._renewed_at = now

    # -- what runs ---------------------------------------------------------------------------

    def _read_sessions(self, now: float) -> None:
        for session in self._live.values():
            if session.ending is None:
                self._take_signals(session, session.read(now), now)
        ending = [session for session in self._live.values() if session.ending is not None]
        if ending:
            self._hear_governor(now)
            self._save(now)  # the reset is stored before anything else
        for session in ending:
            self._end_session(session, now)

    def _end_session(self, session: LiveSession, now: float) -> None:
        """Ask once; a supervisor that does not answer long after the grace is killed."""
        if session.stop_asked_at is None:
            session.stop_asked_at = now
            self._executor.stop(session.handle)
        elif now - session.stop_asked_at > UNHEARD_STOP_SECONDS:
            self._executor.kill(session.handle)

    def _take_signals(self, session: LiveSession, signals: Sequence[Signal], now: float) -> None:
        if (tokens := session.new_tokens()) > 0:
            self.governor.count_tokens(session.ticket.id, tokens, now=now)
        for signal in signals:
            self._report(session, signal, now)
            session.judge(signal, now)
        session.check_retries(now)
        session.leave_reserve(self.governor.reserve_reached(session.ticket.id, now=now))
        if session.check_payer() and session.ending is not None:
            self._report(session, BillingStop(detail=session.ending.reason), now)

    def _report(self, session: LiveSession, signal: Signal, now: float) -> None:
        """Tell the Governor, and let what it says to it name the unit."""
        self.governor.report(session.told_scope, signal, now=now, origin=session.unit.id)
        self.metrics.reported(session.told_scope, signal)
        self._has_learnt = True

    def _settle_ended(self, now: float) -> None:
        settled: list[tuple[LiveSession, OutcomeRecord]] = []
        for session in self._live.values():
            if (state := session.handle.state()).is_over:
                outcome, signals = session.conclude(state, now)
                self._take_signals(session, signals, now)
                self._report_unsaid(session, outcome, now)
                settled.append((session, self._settling.settled_session(session, outcome, now)))
        if settled and self._has_learnt:
            self._hear_governor(now)  # that a window has closed is told before what became of its units
            self._save(now)
        self._store_settled([record for _, record in settled], now)
        self._deadlines.on_attempts(settled, self._campaigns.values(), now)
        for session, record in settled:
            self._executor.archive(session.handle)
            del self._live[session.unit.id]
            has_worked = record.transition.step in ("succeed", "quarantine")
            give_up = self.governor.release if has_worked else self.governor.abandon
            give_up(session.ticket.id, now=now)

    def _report_unsaid(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> None:
        """Some agents give up without a word that names the limit: then how they ended is all there is to tell.

        Untold, the next unit would run into the same wall at once.
        """
        is_told = outcome.resume_at is not None or self._parking.opens_at(session.ticket.scopes, now) is not None
        if outcome.ending == "parked" and not is_told:
            self._report(session, QuotaClosed(ticket=session.ticket.id, source="backoff"), now)
        elif outcome.ending == "account_stopped":
            self._report(session, BillingStop(detail=outcome.reason), now)

    def _store_settled(self, records: list[OutcomeRecord], now: float) -> None:
        if records:
            for record, is_stored in zip(records, self.store.record_outcomes(records, now=now), strict=True):
                if is_stored:
                    self._news.append(unit_event(record, now))

    # -- what starts -------------------------------------------------------------------------

    def _fit_lines(self, now: float) -> None:
        campaigns = those_that_may_start(self._campaigns, self._live.values())
        self._deadlines.set_paces(campaigns, now)
        self._lines.fit(campaigns, self.store.claimable(), now)

    def _hear_grant(self, granted: Granted) -> None:
        self._granted.append(granted.ticket_id)
        self.metrics.granted(granted.waited)
        self.wake()

    def _hear_events(self, events: Sequence[Event]) -> None:
        self._heard += events
        self.wake()

    def _hear_governor(self, now: float) -> None:
        self._driver.advance(now)
        heard, self._heard = self._heard, []
        for event in heard:
            if event.name == "window.reopened":  # perhaps early: those parked for it need not wait for the reset
                for account in accounts_within(event.scope or "", self.settings.accounts.values()):
                    self.store.wake_account(account)
            if event.name == "window.canary":
                self._canaries.add(str(event.fields["ticket"]))
            self._news.append(event)
            self._has_learnt = True

    def _launch_granted(self, now: float) -> None:
        granted: dict[Line, list[str]] = {}
        tickets, self._granted = self._granted, []
        for ticket_id in tickets:
            if self._lines.has(ticket_id):  # else it was given back since
                granted.setdefault(self._lines.line_of(ticket_id), []).append(ticket_id)
        try:
            for line, ticket_ids in granted.items():
                self._claim_and_launch(line, ticket_ids, now)
        except BaseException:
            for ticket_id in (ticket_id for ticket_ids in granted.values() for ticket_id in ticket_ids):
                if self._lines.has(ticket_id):
                    self._lines.give_back(ticket_id, now)  # its slot would be nobody's
            raise
        finally:
            self._canaries.clear()

    def _claim_and_launch(self, line: Line, ticket_ids: list[str], now: float) -> None:
        """Claim and lease in one transaction, then launch; a ticket without a unit is given back."""
        until, count = now + self.settings.lease, len(ticket_ids)
        units = self.store.claim_units(
            line.campaign.name, line.account_name, count, attempt_ids=ticket_ids, lease_until=until, now=now
        )
        not_started: list[OutcomeRecord] = []
        for ticket_id, unit in zip(ticket_ids, units, strict=False):
            self._lines.take(ticket_id)
            trouble = self._launch(unit, line, ticket_id, now)
            if trouble is not None:
                not_started.append(self._settling.settled(unit, trouble, now, line.campaign.max_attempts))
                self.governor.abandon(ticket_id, now=now)
        for ticket_id in ticket_ids[len(units) :]:
            self._lines.give_back(ticket_id, now)
        self._store_settled(not_started, now)

    def _launch(self, unit: Unit, line: Line, ticket_id: str, now: float) -> AttemptOutcome | None:
        """Start the session, or say what kept it from starting."""
        try:
            profile = self._agents(line.campaign.agent)
            order = launch_order(unit, line.campaign, line.account, profile, self._environ, self.settings.gateway)
            handle = self._executor.start(msgspec.structs.replace(order, stall=self.settings.stall))
        except InvalidInput as error:
            return AttemptOutcome(ending="failed", reason=str(error))
        except (PacelineError, OSError) as error:
            return AttemptOutcome(ending="lost", reason=str(error))
        ticket = Ticket(ticket_id, line.scopes, group=line.campaign.name, leased=False)
        session = self._session(unit, line.campaign, line.account, ticket, handle)
        self._note_neighbours(session)
        self._live[unit.id] = session
        self._news.append(start_event(unit, line.scopes[-1], now))
        return None

    def _note_neighbours(self, session: LiveSession) -> None:
        """Only a unit that had a fresh window to itself from the canary on can be said to have spent it."""
        alone = self._alone.pop(session.payer, None)
        if alone is not None:
            alone.is_alone_in_fresh_window = False
        if session.ticket.id in self._canaries and all(o.payer != session.payer for o in self._live.values()):
            session.is_alone_in_fresh_window = True
            self._alone[session.payer] = session

    def _session(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, handle: Handle
    ) -> LiveSession:
        return LiveSession(
            unit=unit,
            campaign=campaign,
            profile=self._agents(campaign.agent),
            account=account,
            ticket=ticket,
            handle=handle,
            tz=self.settings.tz,
        )

    # -- what survives -----------------------------------------------------------------------

    def _save(self, now: float) -> None:
        if self._has_learnt:
            save_governor(self.store, self.governor)
            self._has_learnt = False
        if self._news:
            self._commands.wrote(self.store.append_events(self._news), len(self._news))
            self._news = []
            self._listeners.tell()
        why = self._lines.why(now)
        gist = {line: gist_of(reason) for line, reason in why.items()}
        if gist != self._told_why:  # for those who ask from another process
            self.store.save_state(WHY_STATE, msgspec.json.encode(why))
            self._told_why = gist
