"""The dispatcher: keeps tickets waiting for the units that may start, claims units for granted tickets, launches them.

Here: which unit starts now, and which begin again on any host because their own is away for too long. Never here:
whether a unit may start; the Governor grants the tickets.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from paceline.agents.account import Account, split_login
from paceline.core import Ticket
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine.dispatch.placement import Overdue, host_scope
from paceline.engine.dispatch.ticket_queues import TicketQueue, TicketQueues
from paceline.engine.journal import EngineJournal, start_event
from paceline.engine.session.conclusion import NO_ROOM_SECONDS, start_error_outcome
from paceline.engine.session.launcher import Launcher
from paceline.engine.session.live_session import LiveSession
from paceline.engine.session.unit_results import starts_over, without_conversation
from paceline.engine.work.attempt_outcome import OutcomeRecorder
from paceline.engine.work.unit_stages import UnitStages, outcome_of_error
from paceline.errors import NoRoomForSession, PacelineError, StoreError
from paceline.events import Event
from paceline.store import Campaign, OutcomeRecord, Store, Unit

log = logging.getLogger("paceline.engine")


BATCH = 100
"""Units per pass: each is a write of its own, and a pass must not be held up by a host with many thousands."""


class Dispatcher:
    """Turns grants into sessions. A unit is claimed in the store before its session is launched."""

    def __init__(
        self,
        store: Store,
        *,
        queues: TicketQueues,
        launcher: Launcher,
        outcomes: OutcomeRecorder,
        journal: EngineJournal,
        live: dict[str, LiveSession],
        stages: UnitStages,
    ) -> None:
        self._store = store
        self._queues = queues
        self._launcher = launcher
        self._outcomes = outcomes
        self._journal = journal
        self._live = live
        self._stages = stages
        self._resume_launches_at = 0.0
        """Until then no session is started, because the machine had no room for one."""
        self._alone: dict[str, LiveSession] = {}

    def launch_granted(self, ticket_ids: list[str], now: float, lease_until: float) -> list[str]:
        """Claim and launch a unit for every granted ticket. A failure gives the remaining tickets back.

        A grant may be older than the present limits, for example if nothing could be stored for a while. Returns the
        tickets that wait for room on this machine: they keep their slots, since nothing else could be started either.
        """
        if 0 < self._resume_launches_at - now <= NO_ROOM_SECONDS:
            return ticket_ids
        granted: dict[TicketQueue, list[str]] = {}
        for ticket_id in ticket_ids:
            if not self._queues.has(ticket_id):
                continue  # it was given back since
            if self._queues.is_excess(ticket_id, now):
                self._queues.give_back(ticket_id, now)
            else:
                granted.setdefault(self._queues.queue_of(ticket_id), []).append(ticket_id)
        try:
            for queue, queue_ids in granted.items():
                self._claim_and_launch(queue, queue_ids, lease_until, now)
        except BaseException:
            for ticket_id in (ticket_id for queue_ids in granted.values() for ticket_id in queue_ids):
                if self._queues.has(ticket_id):
                    self._queues.give_back(ticket_id, now)  # else its slot would stay taken by nobody
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
            units = [
                unit if unit.conversation_id is None else self._started_over(unit, campaign, now) for unit in units
            ]
            for unit in units:
                self._journal.append(start_event(unit, queue.scopes[-1], now))
        not_started: list[OutcomeRecord] = []
        for ticket_id, unit in zip(ticket_ids, units, strict=False):
            outcome = self._launch(unit, queue, ticket_id, now)
            if outcome is not None:
                not_started.append(self._outcomes.record_of(unit, outcome, now, campaign.max_attempts))
                self._queues.abandon(ticket_id, now)
        for ticket_id in ticket_ids[len(units) :]:
            self._queues.give_back(ticket_id, now)
        self._outcomes.store(not_started, now)

    def _started_over(self, unit: Unit, campaign: Campaign, now: float) -> Unit:
        """Return the claimed unit, without its conversation if that is too large to resume after its park."""
        if not starts_over(unit, campaign, now):
            return unit
        unit = without_conversation(unit)
        self._store.save_progress(unit.id, unit.fence, phase=None, result=unit.result)
        return unit

    def _launch(self, unit: Unit, queue: TicketQueue, ticket_id: str, now: float) -> AttemptOutcome | None:
        """Start the session, or first its workspace. Returns the outcome of an attempt that could not start."""
        ticket = self._queues.take(ticket_id)
        if queue.campaign.workspace is None:
            return self._start(unit, queue.campaign, queue.account, ticket, now)
        units = (*(session.unit for session in self._live.values()), *self._stages.units())
        used_ports = [unit.result.port_base for unit in units]
        try:
            self._stages.prepare(unit, queue.campaign, queue.account, ticket, used_ports)
        except StoreError:
            self._queues.abandon(ticket_id, now)
            raise  # the recovery of the next pass gives the unit back
        except PacelineError as error:
            return outcome_of_error(error, now)
        return None

    def launch_prepared(self, campaigns: Mapping[str, Campaign], now: float) -> None:
        """Start the sessions whose workspaces are ready, and record the attempts whose workspaces failed."""
        not_started: list[OutcomeRecord] = []
        for work in self._stages.collect(campaigns, now):
            outcome = self._outcomes.breaker.judged_setup(work.unit.id, work.outcome)
            if outcome is not None and outcome.ending == "not_started":
                _, host = split_login(work.unit.account or "")
                self._outcomes.exclusions.add(work.campaign.name, host, outcome.reason, now)
            if outcome is None:
                if not self._stages.is_claimed(work, now):
                    self._queues.abandon(work.ticket.id, now)  # it was cancelled after this pass has looked
                    continue
                outcome = self._start(work.unit, work.campaign, work.account, work.ticket, now, work.note)
            if outcome is not None:
                unit = _unattempted(work.unit) if outcome.ending == "yielded" else work.unit
                record = self._outcomes.record_of(unit, outcome, now, work.campaign.max_attempts)
                not_started.append(msgspec.structs.replace(record, result=unit.result))
                self._queues.abandon(work.ticket.id, now)
        self._outcomes.store(not_started, now)

    def _start(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, now: float, note: str = ""
    ) -> AttemptOutcome | None:
        """Start the session. Returns the outcome of an attempt that could not start."""
        try:
            session = self._launcher.start(unit, campaign, account, ticket, note)
        except (PacelineError, OSError) as error:
            if isinstance(error, NoRoomForSession):
                self._resume_launches_at = now + NO_ROOM_SECONDS
            return start_error_outcome(type(error).__name__, str(error), now)
        except Exception as error:
            log.exception("cannot start a session for %s; the others continue", unit.id)
            return AttemptOutcome(ending="lost", reason=f"could not be started ({type(error).__name__}: {error})")
        if self._alone or self._journal.canaries:
            self._note_neighbours(session)
        self._live[unit.id] = session
        return None

    def _note_neighbours(self, session: LiveSession) -> None:
        """Mark a canary that has its fresh window to itself. Only such a unit can be said to have spent it."""
        alone = self._alone.pop(session.payer, None)
        if alone is not None:
            alone.is_alone_in_fresh_window = False
        is_canary = session.ticket.id in self._journal.canaries
        if is_canary and all(other.payer != session.payer for other in self._live.values()):
            session.is_alone_in_fresh_window = True
            self._alone[session.payer] = session

    def give_up_conversations(self, overdue: Sequence[Overdue], now: float) -> bool:
        """Let units begin again elsewhere whose host is away for too long, a few per pass, each with its event.

        Returns whether there were any.
        """
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


def _unattempted(unit: Unit) -> Unit:
    """Return a claimed unit with the counters from before: no agent was started, and nothing has gone wrong."""
    counters = msgspec.structs.replace(unit.counters, attempts=unit.counters.attempts - 1)
    return msgspec.structs.replace(unit, counters=counters)


def startable_campaigns(campaigns: Mapping[str, Campaign], live: Iterable[LiveSession]) -> list[Campaign]:
    """Return the campaigns that may start units.

    A campaign that was deleted and added again waits until the sessions of the deleted one are over: its units have
    the same names, so the store would take the old sessions for the new units.
    """
    of_deleted = set()
    for session in live:
        current = campaigns.get(session.campaign.name)
        if current is not None and current.created_at != session.campaign.created_at:
            of_deleted.add(current.name)
    return [campaign for campaign in campaigns.values() if campaign.name not in of_deleted]
