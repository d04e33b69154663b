"""The engine: one loop, one heartbeat. Each pass reads, settles, asks the Governor, claims and launches.

Everything is stored before it is acted on: a claim before its launch, a closed window before its session is
ended, a settlement before its slot is given on. A pass that fails is told, and the next one runs.
"""

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.launch import Account
from paceline.clock import Clock
from paceline.core import Governor, GovernorSettings, Granted, PollUsage, Ticket
from paceline.core.lifecycle import Outcome, Policy, settle_try
from paceline.core.signals import AuthFailed, BillingStop, QuotaClosed, Signal
from paceline.engine import control
from paceline.engine.deadlines import Deadlines
from paceline.engine.launching import launch_order
from paceline.engine.lines import NO_ACCOUNT, Line, Lines
from paceline.engine.outside import TICKET_PREFIX, OutsideSlots
from paceline.engine.parking import Parking, accounts_within
from paceline.engine.polling import UsagePolls, UsageSource
from paceline.engine.remembered import CommandReader, load_governor, save_governor
from paceline.engine.sessions import LiveSession
from paceline.engine.telling import unit_event
from paceline.errors import EngineBusy, InvalidInput, PacelineError
from paceline.events import Event
from paceline.executors import Executor, Handle
from paceline.store import Campaign, Settled, Store, Unit, UnitCounts

log = logging.getLogger("paceline.engine")

WHY_STATE = "why"
UNHEARD_STOP_SECONDS = 60.0
LASTING = (QuotaClosed, BillingStop, AuthFailed)
"""Signals that still hold when they are read again after a restart."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine needs to know of the configuration."""

    governor: GovernorSettings
    accounts: dict[str, Account] = {}
    heartbeat: float = 1.0
    lease: float = 60.0
    stall: float | None = None
    policy: Policy = Policy()
    tz: str = "UTC"


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
        self._store = store
        self._executor = executor
        self._clock = clock
        self._agents = functools.cache(agents)
        self._environ = dict(environ)
        self._owner = owner
        self._governor = Governor(settings.governor, now=clock.now())
        self._lines = Lines(self._governor, settings.accounts, owner)
        self._parking = Parking(self._governor)
        self._polls = UsagePolls(usage or {}, self.wake)
        self._live: dict[str, LiveSession] = {}
        self._deadlines = Deadlines()
        self._campaigns: dict[str, Campaign] = {}
        self._news: list[Event] = []
        self._canaries: set[str] = set()
        self._alone: dict[str, LiveSession] = {}
        self._outside = OutsideSlots(store, self._governor)
        self._commands = CommandReader(store)
        self._renewed_at = -math.inf
        self._told_why: Mapping[str, tuple[str, str, float | None]] = {}
        self._has_learnt = False
        self._leads = False
        self._is_shaken = False
        self._is_stopping = False
        self._woken = asyncio.Event()

    # -- the loop ----------------------------------------------------------------------------

    async def run(self, *, until_idle: bool = False) -> None:
        """Pass after pass, until stopped, or until nothing is left that could still run by itself."""
        try:
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
            self.make_pass()
            return self.is_idle(), self._next_due()
        except EngineBusy:
            self._leads = False
            raise
        except Exception:
            log.exception("a pass failed; the next one runs")
            self._is_shaken = True
            return False, None

    def make_pass(self) -> None:
        """One turn of the heartbeat."""
        now = self._clock.now()
        self._read_commands(now)
        self._renew(now)
        if self._is_shaken:
            self._recover(now)  # a claim may be stored whose answer was lost
            self._is_shaken = False
        for scope, answer in self._polls.take_answers():
            self._governor.report(scope, answer, now=now)
        self._read_sessions(now)
        self._settle_ended(now)
        self._store.wake_units(now=now)
        self._lines.fit(self._campaigns.values(), self._store.claimable(), now, self._held_to_deadline(now))
        self._launch_granted(now)
        self._outside.tidy(now)
        self._save(now)

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
        counts = self._store.counts()
        active = [name for name, campaign in self._campaigns.items() if campaign.state == "active"]
        return not any(counts[name].todo for name in active if name in counts)

    def _next_due(self) -> float | None:
        due = (self._governor.next_wakeup(), self._store.next_resume_at())
        return min((at for at in due if at is not None), default=None)

    async def _rest(self, due: float | None) -> None:
        """Until a session ends, someone calls, or time alone changes something; a heartbeat at most."""
        heartbeat = self.settings.heartbeat
        wait = heartbeat if due is None else min(max(0.0, due - self._clock.now()), heartbeat)
        ended = asyncio.ensure_future(self._executor.wait_ended(wait))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({ended, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._woken.clear()
            ended.cancel()
            woken.cancel()
            await asyncio.gather(ended, woken, return_exceptions=True)

    # -- start and end -----------------------------------------------------------------------

    def start(self) -> None:
        """Take the lead, remember what was learnt, and find what still runs."""
        now = self._clock.now()
        if not self._store.lead(self._owner, until=now + self.settings.lease, now=now):
            raise EngineBusy("another engine runs this home; stop it first, or use another PACELINE_HOME")
        self._leads = True
        self._governor = load_governor(self._store, self.settings.governor, now)
        self._lines = Lines(self._governor, self.settings.accounts, self._owner)
        self._parking = Parking(self._governor)
        self._outside = OutsideSlots(self._store, self._governor)
        self._commands = CommandReader(self._store)
        self._load_campaigns(now)
        self._recover(now)
        self._outside.recover(now)
        self._tell("engine.leading", now, owner=self._owner)

    def close(self) -> None:
        """Store what there is to store and let go. Live sessions go on. One that lost the lead writes nothing."""
        self._polls.close()
        if not self._leads:
            return
        self._leads = False
        now = self._clock.now()
        self._tell("engine.stopped", now, owner=self._owner)
        self._has_learnt = True
        self._save(now)
        self._commands.save()
        self._store.resign(self._owner)

    def _recover(self, now: float) -> None:
        """What still runs is adopted at once, what ended is collected, what is nobody's is ended."""
        never_began: list[Settled] = []
        for unit in self._store.running_units():
            if unit.id in self._live:
                continue
            handle = self._executor.adopt(unit.attempt) if unit.attempt is not None else None
            campaign = self._campaigns.get(unit.campaign)
            if handle is None or campaign is None:
                lost = Outcome(ending="lost", reason="the engine went before the session began")
                never_began.append(self._settled(unit, lost, now))
            else:
                self._adopt(unit, campaign, handle, now)
        self._store_settled(never_began, now)
        for stray in self._executor.sweep([session.handle.attempt for session in self._live.values()]):
            log.warning("%s %s, which was nobody's", stray.action, stray.attempt)

    def _adopt(self, unit: Unit, campaign: Campaign, handle: Handle, now: float) -> None:
        account = self.settings.accounts.get(unit.account or "")
        scopes = self._lines.scopes(campaign, account)
        ticket = Ticket(handle.attempt, scopes, group=campaign.name, priority=campaign.priority, leased=False)
        self._governor.adopt(ticket, now=now)
        session = self._session(unit, campaign, account, ticket, handle)
        self._live[unit.id] = session
        told = session.read(now)  # most of it was reported by the engine that went
        self._take_signals(session, [signal for signal in told if isinstance(signal, LASTING)], now)

    # -- commands and leases -------------------------------------------------------------------

    def _read_commands(self, now: float) -> None:
        commands = self._commands.read()
        if commands:
            for trouble in control.carry_out(self._governor, commands, now):
                log.warning("a command could not be carried out: %s", trouble)
            self._outside.carry_out(commands, now)
            self._load_campaigns(now)
            self._renewed_at = -math.inf  # running units may have been cancelled
            self._has_learnt = True
            self._save(now)
        self._commands.done()

    def _load_campaigns(self, now: float) -> None:
        self._campaigns = {campaign.name: campaign for campaign in self._store.campaigns()}
        for campaign in self._campaigns.values():
            scope = f"campaign:{campaign.name}"
            if self._governor.get_limit(scope) != campaign.max_sessions:
                self._governor.set_limit(scope, campaign.max_sessions, now=now)

    def _renew(self, now: float) -> None:
        """Keep the lead and the leases; a unit whose lease is not ours any more was cancelled."""
        if 0 <= now - self._renewed_at < self.settings.lease / 3:
            return
        until = now + self.settings.lease
        if not self._store.lead(self._owner, until=until, now=now):
            raise EngineBusy("another engine has taken the lead of this home")
        fences = {unit_id: session.unit.fence for unit_id, session in self._live.items()}
        for unit_id in self._store.renew_units(fences, lease_until=until) if fences else ():
            self._live[unit_id].ending = Outcome(ending="cancelled", reason="cancelled")
        self._renewed_at = now

    # -- what runs ---------------------------------------------------------------------------

    def _read_sessions(self, now: float) -> None:
        for session in self._live.values():
            if session.ending is None:
                self._take_signals(session, session.read(now), now)
        ending = [session for session in self._live.values() if session.ending is not None]
        if ending:
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
        for signal in signals:
            self._report(session, signal, now)
            session.judge(signal, now)
        session.check_retries(now)
        if session.check_payer() and session.ending is not None:
            self._report(session, BillingStop(detail=session.ending.reason), now)

    def _report(self, session: LiveSession, signal: Signal, now: float) -> None:
        """Tell the Governor, and let what it says to it name the unit."""
        effects = self._governor.books.effects
        already = len(effects)
        self._governor.report(session.scope or f"agent:{session.profile.name}", signal, now=now)
        for index, effect in enumerate(effects[already:], already):
            if isinstance(effect, Event):
                effects[index] = msgspec.structs.replace(effect, unit=session.unit.id)
        self._has_learnt = True

    def _settle_ended(self, now: float) -> None:
        ended = [(session, session.handle.state()) for session in self._live.values()]
        settled: list[tuple[LiveSession, Settled]] = []
        for session, state in ended:
            if state.is_over:
                outcome, signals = session.conclude(state, now)
                self._take_signals(session, signals, now)
                self._report_unsaid(session, outcome, now)
                settled.append((session, self._settled_session(session, outcome, now)))
        if settled and self._has_learnt:
            self._save(now)
        self._store_settled([record for _, record in settled], now)
        for session, record in settled:
            self._executor.settle(session.handle)
            del self._live[session.unit.id]
            if record.settlement.step == "succeed":
                self._deadlines.on_try(session.campaign.name, now - (session.unit.started_at or now))
            if record.settlement.step in ("succeed", "quarantine"):
                self._governor.release(session.ticket.id, now=now)
            else:
                self._governor.abandon(session.ticket.id, now=now)

    def _held_to_deadline(self, now: float) -> dict[str, int]:
        """How many more may start of campaigns that need not run flat out to be done in time."""
        dated = [campaign for campaign in self._campaigns.values() if campaign.deadline is not None]
        counts = self._store.counts() if dated else {}
        most: dict[str, int] = {}
        for campaign in dated:
            needed = self._deadlines.sessions_needed(campaign, counts.get(campaign.name, UnitCounts()), now)
            if needed is not None:
                running = sum(session.campaign.name == campaign.name for session in self._live.values())
                most[campaign.name] = max(0, needed - running)
        return most

    def _report_unsaid(self, session: LiveSession, outcome: Outcome, now: float) -> None:
        """Some agents give up without a word that names the limit: then how they ended is all there is to tell.

        Untold, the next unit would run into the same wall at once.
        """
        if outcome.ending == "parked" and self._parking.opens_at(session.ticket.scopes, now) is None:
            self._report(session, QuotaClosed(ticket=session.ticket.id, source="backoff"), now)
        elif outcome.ending == "account_stopped":
            self._report(session, BillingStop(detail=outcome.reason), now)

    def _settled_session(self, session: LiveSession, outcome: Outcome, now: float) -> Settled:
        if outcome.ending == "parked":
            outcome = self._parked(session, outcome, now)
        # After a real failure the work begins afresh: what went wrong may lie in the conversation.
        conversation = None if outcome.ending == "failed" else session.conversation
        account = session.account.name if session.account is not None and conversation is not None else None
        record = self._settled(session.unit, outcome, now, session.campaign.max_attempts)
        return msgspec.structs.replace(record, account=account, session_id=conversation)

    def _parked(self, session: LiveSession, outcome: Outcome, now: float) -> Outcome:
        """Until its windows open; a unit that has not begun may go to the first account that opens."""
        account = session.account.name if session.account is not None else NO_ACCOUNT
        opens_at = self._parking.resume_at(account, session.ticket.scopes, now) or outcome.resume_at
        if session.conversation is None:
            for name in session.campaign.accounts:
                scopes = self._lines.scopes(session.campaign, self.settings.accounts.get(name))
                elsewhere = self._parking.opens_at(scopes, now)
                opens_at = None if elsewhere is None or opens_at is None else min(opens_at, elsewhere)
        spent_it_alone = session.has_answered and session.is_alone_in_fresh_window
        return msgspec.structs.replace(outcome, resume_at=opens_at, opened_window=spent_it_alone)

    def _settled(self, unit: Unit, outcome: Outcome, now: float, max_attempts: int | None = None) -> Settled:
        policy = self.settings.policy
        if max_attempts is not None:
            policy = msgspec.structs.replace(policy, max_attempts=max_attempts)
        settlement = settle_try(unit.counters, outcome, policy, now)
        account = unit.account if unit.session_id is not None else None
        return Settled(
            unit_id=unit.id, fence=unit.fence, settlement=settlement, account=account, session_id=unit.session_id
        )

    def _store_settled(self, records: list[Settled], now: float) -> None:
        if records:
            for record, is_stored in zip(records, self._store.settle_units(records, now=now), strict=True):
                if is_stored:
                    self._news.append(unit_event(record, now))

    # -- what starts -------------------------------------------------------------------------

    def _launch_granted(self, now: float) -> None:
        granted: dict[Line, list[str]] = {}
        for effect in self._governor.advance(now=now):
            if isinstance(effect, Granted) and effect.ticket_id.startswith(TICKET_PREFIX):
                self._outside.granted(effect)
            elif isinstance(effect, Granted):
                if not self._lines.has(effect.ticket_id):
                    continue  # it was given back since
                granted.setdefault(self._lines.line_of(effect.ticket_id), []).append(effect.ticket_id)
            elif isinstance(effect, PollUsage):
                self._polls.ask(effect.scope)
            elif isinstance(effect, Event):
                if effect.name == "window.reopened":  # perhaps early: those parked for it need not wait for the reset
                    for account in accounts_within(effect.scope or "", self.settings.accounts.values()):
                        self._store.wake_account(account)
                self._news.append(effect)
                self._has_learnt = True
                if effect.name == "window.canary":
                    self._canaries.add(str(effect.fields["ticket"]))
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
        units = self._store.claim_units(
            line.campaign.name,
            line.account_name,
            len(ticket_ids),
            attempts=ticket_ids,
            lease_until=now + self.settings.lease,
            now=now,
        )
        not_started: list[Settled] = []
        for ticket_id, unit in zip(ticket_ids, units, strict=False):
            self._lines.take(ticket_id)
            trouble = self._launch(unit, line, ticket_id, now)
            if trouble is not None:
                not_started.append(self._settled(unit, trouble, now, line.campaign.max_attempts))
                self._governor.abandon(ticket_id, now=now)
        for ticket_id in ticket_ids[len(units) :]:
            self._lines.give_back(ticket_id, now)
        self._store_settled(not_started, now)

    def _launch(self, unit: Unit, line: Line, ticket_id: str, now: float) -> Outcome | None:
        """Start the session, or say what kept it from starting."""
        try:
            profile = self._agents(line.campaign.agent)
            order = launch_order(unit, line.campaign, line.account, profile, self._environ)
            handle = self._executor.start(msgspec.structs.replace(order, stall=self.settings.stall))
        except InvalidInput as error:
            return Outcome(ending="failed", reason=str(error))
        except (PacelineError, OSError) as error:
            return Outcome(ending="lost", reason=str(error))
        ticket = Ticket(ticket_id, line.scopes, group=line.campaign.name, leased=False)
        session = self._session(unit, line.campaign, line.account, ticket, handle)
        self._note_neighbours(session)
        self._live[unit.id] = session
        name = "unit.resumed" if unit.counters.parks else "unit.started"
        self._tell(name, now, scope=line.scopes[-1], unit=unit.id, attempt=unit.attempt, session_id=unit.session_id)
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

    def _tell(
        self, name: str, now: float, *, scope: str | None = None, unit: str | None = None, **fields: object
    ) -> None:
        self._news.append(Event(name, now, scope, unit, fields))

    def _save(self, now: float) -> None:
        if self._has_learnt:
            save_governor(self._store, self._governor)
            self._has_learnt = False
        if self._news:
            self._commands.wrote(self._store.append_events(self._news), len(self._news))
            self._news = []
        why = self._lines.why(now)
        gist = {line: (reason.reason, reason.scope, reason.retry_at) for line, reason in why.items()}
        if gist != self._told_why:  # for those who ask from another process
            self._store.save_state(WHY_STATE, msgspec.json.encode(why))
            self._told_why = gist
