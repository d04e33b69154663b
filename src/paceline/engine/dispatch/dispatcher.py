"""The dispatcher: from a granted ticket to a running session, and back to the sessions of an engine before.

Here: which unit starts now, and what its host is to start; which begin again on any host because their own is away for
too long; which sessions are adopted, which attempts are lost, which processes are nobody's. Units are recovered at the
start of an engine and after a failed pass, whose claim may be stored although its launch never happened. Never here:
whether a unit may start; the Governor grants the tickets.
"""

import logging
import math
from collections.abc import Callable, Sequence

import msgspec

from paceline.agents import AgentProfile, Task
from paceline.agents.account import GatewayAddress, portable_account, split_login
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.core.values.fields import fields_of
from paceline.engine.dispatch.placement import Overdue, host_scope
from paceline.engine.dispatch.ticket_queues import TicketQueue, unit_ticket
from paceline.engine.journal import EngineParts, start_event
from paceline.engine.session.live_session import NO_ROOM_SECONDS, Attempt, LiveSession, start_error_outcome, with_result
from paceline.engine.session.session_monitor import SessionMonitor
from paceline.engine.session.unit_stages import (
    LOST_NOTE,
    UnitStages,
    outcome_of_error,
    placed,
    port_variable,
    with_note,
)
from paceline.engine.settings import LARGE_CONTEXT_TOKENS
from paceline.errors import NoRoomForSession, PacelineError, StoreError
from paceline.events import Event
from paceline.executors.interface import Handle
from paceline.hosts.messages import SessionOrder
from paceline.settings.plan_file import environment_rules
from paceline.store import Campaign, OutcomeRecord, Unit

log = logging.getLogger("paceline.engine")

BATCH = 100
"""Units per pass: each is a write of its own, and a pass must not be held up by a host with many thousands."""
LONGEST_CACHE_SECONDS = 3600.0
"""After a longer wait no provider's cache has the context: an hour is the longest lifetime that one sells."""
RESTART_NOTE = (
    "An earlier session has worked on this task, and its conversation was given up. "
    "What it did is in this folder: look at it first, and continue from there."
)
STAGES = ("checking", "delivering")
"""Phases of units whose agents have ended well."""
CANCELLED = AttemptOutcome(ending="cancelled", reason="cancelled")


class Dispatcher:
    """Brings units to sessions. A unit is claimed in the store before its session is launched."""

    def __init__(
        self, parts: EngineParts, agents: Callable[[str], AgentProfile], monitor: SessionMonitor, stages: UnitStages
    ) -> None:
        self._store, self._governor, self._hosts = parts.store, parts.driver.governor, parts.hosts
        self._queues, self._journal, self._live = parts.queues, parts.journal, parts.live
        self._campaigns, self._settings = parts.campaigns, parts.settings
        self._agents, self._monitor, self._stages = agents, monitor, stages
        self._accounts, self._key_variables = parts.settings.campaign_accounts, parts.settings.key_variables
        self._resume_launches_at = 0.0
        """Until then no session is started, because the machine had no room for one."""
        self._alone: dict[str, LiveSession] = {}
        self.has_cancelled = False
        """Whether units may have been cancelled whose attempts have not ended."""
        self._strays: list[Handle] = []
        """Sessions and commands that belong to no unit, until they have ended."""

    def launch_granted(self, ticket_ids: list[str], now: float, lease_until: float) -> list[str]:
        """Claim and launch a unit for every granted ticket. A failure gives the remaining tickets back.

        A grant may be older than the present limits, for example if nothing could be stored for a while. Returns the
        tickets that wait for room on this machine: they keep their slots, since nothing else could be started either.
        """
        if 0 < self._resume_launches_at - now <= NO_ROOM_SECONDS:
            return ticket_ids
        granted: dict[TicketQueue, list[str]] = {}
        for ticket_id in ticket_ids:
            if ticket_id not in self._queues.by_ticket:
                continue  # it was given back since
            if self._governor.is_excess(ticket_id, now=now):
                self._queues.give_back([ticket_id], now)
            else:
                granted.setdefault(self._queues.by_ticket[ticket_id], []).append(ticket_id)
        try:
            for queue, queue_ids in granted.items():
                self._claim_and_launch(queue, queue_ids, lease_until, now)
        except BaseException:
            # Without this their slots would stay taken by nobody.
            self._queues.give_back([each for each in ticket_ids if each in self._queues.by_ticket], now)
            raise
        finally:
            self._journal.canaries.clear()
        return []

    def _claim_and_launch(self, queue: TicketQueue, ticket_ids: list[str], lease_until: float, now: float) -> None:
        """Claim units in one transaction with their events, then launch them. A ticket without a unit is given back."""
        campaign = queue.campaign
        with self._journal.together():
            units = self._store.claim_units(
                campaign.name,
                queue.login,
                len(ticket_ids),
                attempt_ids=ticket_ids,
                lease_until=lease_until,
                now=now,
                only_bound=queue.is_for_bound,
            )
            units = [self._started_over(unit, campaign, now) for unit in units]
            for unit in units:
                self._journal.append(start_event(unit, queue.scopes[-1], now))
        not_started: list[OutcomeRecord] = []
        for ticket_id, unit in zip(ticket_ids, units, strict=False):
            ticket, outcome = self._queues.take(ticket_id), None
            attempt = Attempt(unit=unit, campaign=campaign, account=queue.account, ticket=ticket)
            try:
                if campaign.workspace is None:
                    outcome = self._start(attempt, now)
                else:
                    self._stages.prepare(attempt)
            except StoreError:
                self._governor.abandon(ticket_id, now=now)
                raise  # the recovery of the next pass gives the unit back
            except PacelineError as error:
                outcome = outcome_of_error(error, now)
            if outcome is not None:
                not_started.append(self._monitor.record_of(unit, outcome, now))
                self._governor.abandon(ticket_id, now=now)
        self._queues.give_back(ticket_ids[len(units) :], now)
        self._monitor.store(not_started, now)

    def _started_over(self, unit: Unit, campaign: Campaign, now: float) -> Unit:
        """Return the claimed unit, without its conversation if that is too large to resume after its park.

        Its plan asks for that.
        """
        carried, context = unit.result.carried, unit.result.context_tokens or 0
        if campaign.on_long_park != "restart" or unit.conversation_id is None or not carried.is_parked:
            return unit
        if context < LARGE_CONTEXT_TOKENS or now - (carried.cached_at or math.inf) <= LONGEST_CACHE_SECONDS:
            return unit
        carried = msgspec.structs.replace(carried, conversation_tokens={}, is_parked=False, is_restarted=True)
        unit = with_result(unit, carried=carried, context_tokens=None)
        self._store.save_progress(unit.id, unit.fence, phase=None, result=unit.result)
        return msgspec.structs.replace(unit, conversation_id=None)

    def launch_prepared(self, now: float) -> None:
        """Start the sessions whose workspaces are ready, and record the attempts whose workspaces failed."""
        not_started: list[OutcomeRecord] = []
        for work in self._stages.collect(now):
            outcome = self._stages.breaker.judged_setup(work.unit.id, work.outcome)
            if outcome is not None and outcome.ending == "not_started":
                self._queues.exclude(work.campaign.name, work.host, outcome.reason, now)
            if outcome is None:
                if not self._stages.is_claimed(work, now):
                    self._governor.abandon(work.ticket.id, now=now)  # it was cancelled after this pass has looked
                    continue
                outcome = self._start(work, now)
            if outcome is not None:
                unit = work.unit
                if outcome.ending == "yielded":  # no agent was started, and nothing has gone wrong
                    counters = msgspec.structs.replace(unit.counters, attempts=unit.counters.attempts - 1)
                    unit = msgspec.structs.replace(unit, counters=counters)
                record = self._monitor.record_of(unit, outcome, now)
                not_started.append(msgspec.structs.replace(record, result=unit.result))
                self._governor.abandon(work.ticket.id, now=now)
        self._monitor.store(not_started, now)

    def _start(self, attempt: Attempt, now: float) -> AttemptOutcome | None:
        """Start the session. Returns the outcome of an attempt that could not start."""
        unit = attempt.unit
        note = LOST_NOTE if attempt.was_lost else RESTART_NOTE if unit.result.carried.is_restarted else ""
        try:
            order = self._order_of(attempt, with_note(unit, note) if note else unit)
            session = self._session(attempt, self._hosts.of_unit(unit).start(order))
        except (PacelineError, OSError) as error:
            if isinstance(error, NoRoomForSession):
                self._resume_launches_at = now + NO_ROOM_SECONDS
            return start_error_outcome(type(error).__name__, str(error), now)
        except Exception as error:
            log.exception("cannot start a session for %s; the others continue", unit.id)
            return AttemptOutcome(ending="lost", reason=f"could not be started ({type(error).__name__}: {error})")
        # A canary that has its fresh window to itself is marked: only such a unit can be said to have spent it.
        if (alone := self._alone.pop(session.payer, None)) is not None:
            alone.is_alone_in_fresh_window = False
        is_canary = session.ticket.id in self._journal.canaries
        if is_canary and all(other.payer != session.payer for other in self._live.values()):
            session.is_alone_in_fresh_window = True
            self._alone[session.payer] = session
        self._live[unit.id] = session
        return None

    def give_up_conversations(self, overdue: Sequence[Overdue], now: float) -> bool:
        """Let a few units begin again elsewhere whose host is away for too long. Returns whether there were any."""
        left = BATCH
        for each in overdue:
            units = self._store.units(campaign=each.campaign, bound_to=each.login, limit=left).units
            scope = host_scope(split_login(each.login)[1])
            fields: dict[str, object] = {"reason": each.reason, "resume_at": None, "exit_code": None}
            with self._journal.together():
                for unit in units:
                    self._store.forget_conversation(unit.id)
                    attempts = {"attempts": unit.counters.failures}
                    self._journal.append(Event("unit.requeued", now, scope, unit.id, fields | attempts))
            left -= len(units)
            if left <= 0:
                break
        return left < BATCH

    # -- what a host starts ----------------------------------------------------------------------

    def _session(self, attempt: Attempt, handle: Handle) -> LiveSession:
        profile = self._agents(attempt.campaign.agent)
        output = self._hosts.of_unit(attempt.unit).output_of(handle, profile.provider, self._settings.tz)
        return LiveSession(**fields_of(Attempt, attempt) | {"handle": handle, "profile": profile, "output": output})

    def _order_of(self, attempt: Attempt, unit: Unit) -> SessionOrder:
        """Return what the host is to start. A conversation that had begun is resumed where the agent can."""
        assert unit.attempt_id is not None
        campaign, account = attempt.campaign, attempt.account
        profile = self._agents(campaign.agent)
        conversation_id = unit.conversation_id if profile.can_resume else None
        prompt, feedback = unit.spec.prompt, unit.result.feedback
        if conversation_id is not None:  # the feedback of a failed check goes into the conversation
            prompt = feedback or profile.resume_prompt
        elif feedback and profile.start:
            prompt = f"{prompt}\n\n{feedback}"
        env = campaign.env | port_variable(unit)
        if feedback and unit.result.checks:  # for agents that cannot resume a conversation
            env["PACELINE_CHECK_OUTPUT"] = unit.result.checks[-1].output
        # In a worktree of its own an agent may edit, unless the plan says otherwise.
        is_own = campaign.workspace is not None and "edit" in profile.permissions
        changed = {"permissions": campaign.permissions or ("edit" if is_own else None), "env": env}
        task = Task(
            unit_id=unit.id,
            attempt_id=unit.attempt_id,
            prompt=prompt,
            cwd=unit.spec.cwd,
            conversation_id=conversation_id,
            **fields_of(Task, campaign) | changed,
        )
        gateway = self._settings.gateway
        if account is not None and attempt.host:
            # Another machine has another home folder above its logins, and knows its own way to the gateway. It gets
            # the key of this account alone.
            if gateway is not None:
                gateway = GatewayAddress("", key=gateway.key_of(account.name)) if account.via_gateway else None
            account = portable_account(account, self._hosts.local.user_home)
        return SessionOrder(
            profile=profile,
            task=task,
            account=account,
            rules=environment_rules(campaign, self._key_variables),
            timeout=campaign.timeout,
            stall=self._settings.stall,
            gateway=gateway,
            output=unit.spec.output,
            begun_at=unit.begun_at or unit.started_at,
        )

    # -- units of an engine before, or of a pass that failed --------------------------------------

    def recover(self, now: float) -> None:
        """Adopt the sessions that run, record the attempts that never began, and end processes without a unit."""
        never_began = self._take_up(self._store.running_units(also_cancelled=True), now)
        for unit in never_began:
            if unit.result.session_end is not None:  # cancelled while no engine ran
                attempt = self._attempt_of(msgspec.structs.replace(unit, phase="checking"))
                if attempt is not None:
                    self._stages.resume(attempt, now)
                    self._stages.drop(unit.id, now)
        self._monitor.store([self._lost(unit, now) for unit in never_began if unit.state == "running"], now)
        owned = [session.handle.attempt_id for session in self._live.values()] + self._stages.attempt_ids()
        local = self._hosts.local.executor
        for attempt_id, action in local.sweep(owned).items():
            log.warning("%s %s, which belongs to no running unit", action, attempt_id)
            stray = local.adopt(attempt_id) if action == "stopped" else None
            self._strays += [] if stray is None else [stray]
        self.has_cancelled = True

    def settle_cancelled(self, now: float) -> None:
        """Bring the attempts to their ends whose units were cancelled and that nobody follows."""
        cancelled = [unit for unit in self._store.running_units(also_cancelled=True) if unit.state != "running"]
        never_began = self._take_up(cancelled, now)
        self._strays = [each for each in self._strays if not each.state().is_over]
        commands = [*self._stages.attempt_ids(), *(each.attempt_id for each in self._strays)]
        over = [unit for unit in never_began if not any(each.startswith(f"{unit.attempt_id}-") for each in commands)]
        self._monitor.store([self._lost(unit, now) for unit in over], now)
        self.has_cancelled = len(cancelled) > len(over)

    def _take_up(self, units: Sequence[Unit], now: float) -> list[Unit]:
        """Adopt the sessions of units that nobody follows. Returns the units that have none."""
        never_began: list[Unit] = []
        known = {*self._live, *(unit.id for unit in self._stages.units())}
        for unit in units:
            if unit.id in known:
                continue
            attempt = self._attempt_of(unit)
            is_counted = unit.state != "running" and unit.result.session_end is not None
            session = None if attempt is None or is_counted else self._adopted(attempt)
            if unit.phase in STAGES and attempt is not None:
                self._stages.resume(attempt, now)
            elif session is None:
                never_began.append(unit)
            else:
                if unit.state != "running":
                    session.ending = CANCELLED
                self._governor.adopt(session.ticket, now=now)
                self._live[unit.id] = session
        return never_began

    def _attempt_of(self, unit: Unit) -> Attempt | None:
        """Return the attempt of a running unit, on the login that it was claimed for; None without its campaign."""
        campaign = self._campaigns.get(unit.campaign)
        if campaign is None:
            return None
        account = self._accounts.of(campaign, split_login(unit.account or "")[0])
        ticket_id, local_host = unit.attempt_id or "", self._settings.local_host
        ticket = unit_ticket(unit, campaign, self._accounts, ticket_id, local_host=local_host)
        return Attempt(unit=unit, campaign=campaign, account=account, ticket=ticket)

    def _lost(self, unit: Unit, now: float) -> OutcomeRecord:
        lost = AttemptOutcome(ending="lost", reason="the engine ended before the session began")
        record = self._monitor.record_of(unit, CANCELLED if unit.state == "cancelled" else lost, now)
        return msgspec.structs.replace(record, result=msgspec.structs.replace(unit.result, session_end=None))

    def _adopted(self, attempt: Attempt) -> LiveSession | None:
        """Return the session that an engine before has started; None if there is none, or its agent has ended well."""
        unit = attempt.unit
        host = self._hosts.of_unit(unit)
        if unit.attempt_id is None or (unit.phase in STAGES and host is not self._hosts.local):
            return None
        unit = placed(unit, attempt.campaign, host.home)
        handle = host.adopt(self._order_of(attempt, unit))
        if handle is None:
            return None
        session = self._session(attempt, handle)
        session.unit = unit
        session.output.is_catching_up = True
        return session
