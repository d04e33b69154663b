"""The end of an attempt: what is stored of it, and when a parked unit resumes.

Here: the outcome of attempts, in the order in which it must be stored. Never here: whether a unit may start again;
the Governor lets one canary go first, whichever unit it is.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from paceline.core import Governor, WindowStatus
from paceline.core.gates.quota_window import TRUSTED_CONFIDENCE
from paceline.core.gates.reopening_wave import first_look
from paceline.core.signals import AuthFailed, BillingStop, QuotaClosed, Unreachable
from paceline.core.unit_lifecycle import AttemptOutcome, Transition, transition_after
from paceline.engine.capacity.breaker import CampaignBreaker
from paceline.engine.capacity.deadline_pacer import DeadlinePacer
from paceline.engine.dispatch.placement import Exclusions
from paceline.engine.dispatch.ticket_queues import session_scopes
from paceline.engine.journal import EngineJournal, pause_event, unit_event
from paceline.engine.session.conclusion import conclude_attempt
from paceline.engine.session.live_session import LiveSession
from paceline.engine.session.session_monitor import SessionMonitor
from paceline.engine.session.unit_results import result_after
from paceline.engine.session.window_landing import UnitSizes
from paceline.engine.settings import EngineSettings
from paceline.engine.work.unit_stages import UnitStages, needs_stages
from paceline.events import Event
from paceline.executors import Handle, SessionState
from paceline.hosts.leader.registry import HostRegistry
from paceline.store import Campaign, OutcomeRecord, Store, Unit

MOST_FAULTS = 5
"""Errors in a row after which the output of an ended session is given up: half a minute, longer than a busy disk."""


class ResumeTimes:
    """When parked units resume: at the believed reset, and one unit earlier, to probe whether the window has moved."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._probed_at: dict[str, float] = {}

    def opens_at(self, scopes: Sequence[str], now: float) -> float | None:
        """Return when the windows on the path are believed to be open again, or None if none is closed."""
        return max((_believed_opening(window) for window in self._closed(scopes, now)), default=None)

    def resume_at(self, payer: str, scopes: Sequence[str], now: float) -> float | None:
        """Return the time for one more parked unit. The first of each payer resumes at the earliest probe."""
        opens_at = self.opens_at(scopes, now)
        probe_at = max((window.probe_at or now for window in self._closed(scopes, now)), default=None)
        if opens_at is None or probe_at is None or probe_at >= opens_at:
            return opens_at
        if self._probed_at.get(payer, now) > now:
            return opens_at
        self._probed_at[payer] = probe_at
        return probe_at

    def is_late(self, scopes: Sequence[str], now: float) -> bool:
        """Return whether a window on the path has not reopened at its reset yet, so that nobody can have spent it."""
        return any(window.missed_at is not None for window in self._closed(scopes, now))

    def _closed(self, scopes: Sequence[str], now: float) -> list[WindowStatus]:
        statuses = [self._governor.status(scope, now=now) for scope in scopes]
        windows = [window for status in statuses if status is not None for window in status.windows]
        return [window for window in windows if window.state == "closed"]


class OutcomeRecorder:
    """Records attempts that are over. Their outcome is stored before their slots are released."""

    def __init__(
        self,
        store: Store,
        governor: Governor,
        hosts: HostRegistry,
        settings: EngineSettings,
        *,
        monitor: SessionMonitor,
        pacer: DeadlinePacer,
        journal: EngineJournal,
        exclusions: Exclusions,
    ) -> None:
        self.exclusions = exclusions
        self.breaker = CampaignBreaker(store)
        self._store = store
        self._governor = governor
        self._hosts = hosts
        self._settings = settings
        self._monitor = monitor
        self._pacer = pacer
        self._journal = journal
        self.history = UnitSizes(store)
        self._resume_times = ResumeTimes(governor)
        self.unarchived: list[Handle] = []
        self.stored: list[OutcomeRecord] = []
        """The outcomes that were stored, until the pass has seen to what follows from them."""

    def record_ended(
        self, live: dict[str, LiveSession], campaigns: Iterable[Campaign], stages: UnitStages, now: float
    ) -> None:
        """Store the outcome of every session that is over, then archive its output and release its slot.

        Work that ended well and is to be checked or delivered goes to its stages instead.
        """
        ended: list[tuple[LiveSession, OutcomeRecord]] = []
        for session in live.values():
            conclude = functools.partial(self._conclude, session, now)
            record = self._monitor.faults.isolate(session.handle.attempt_id, "conclude", now, conclude)
            if record is not None:
                ended.append((session, record))
        if ended and self._journal.has_learnt:
            self._journal.collect(now)  # a closed window is emitted before what became of its units
            self._journal.save(now)
        self.store([record for session, record in ended if not _is_to_verify(session, record)], now)
        for session, record in ended:
            if _is_to_verify(session, record):
                stages.take_over(session, record)
        for session, record in ended:
            if record.result is not None and record.result.lost_tokens > session.unit.result.lost_tokens:
                self._monitor.count_lost(session, record.result)
            del live[session.unit.id]
            self.unarchived.append(session.handle)
        try:
            self._pacer.on_attempts(ended, campaigns, now)
        finally:  # nobody but this pass knows of the slots
            for session, record in ended:
                has_worked = record.transition.step == "succeed"  # any other end proves nothing about a closed window
                give_back = self._governor.release if has_worked else self._governor.abandon
                give_back(session.ticket.id, now=now)

    def _conclude(self, session: LiveSession, now: float) -> OutcomeRecord | None:
        """Return what to store of a session that is over and read whole."""
        state = session.handle.state()
        if not state.is_over:
            return None
        faults, attempt_id = self._monitor.faults, session.handle.attempt_id
        for fault in (faults.of(attempt_id, "read"), faults.of(attempt_id, "conclude")):
            if fault is not None and fault.count >= MOST_FAULTS:
                lost = AttemptOutcome(ending="lost", reason=f"its output could not be read ({fault.error})")
                return self._record_of_session(session, state, lost, now)
        if not self._monitor.read_whole(session, now):
            return None
        outcome, signals = conclude_attempt(session, state, now)
        self._monitor.take_signals(session, signals, now)
        self._report_silent_limit(session, outcome, now)
        return self._record_of_session(session, state, outcome, now)

    def archive(self, now: float) -> None:
        """Put away the output of recorded attempts. What cannot be put away is tried again at later passes."""
        faults = self._monitor.faults
        waiting, self.unarchived = self.unarchived, []
        for handle in waiting:
            if faults.isolate(handle.attempt_id, "archive", now, functools.partial(self._put_away, handle)):
                faults.forget(handle.attempt_id)
            else:
                self.unarchived.append(handle)

    def _put_away(self, handle: Handle) -> bool:
        self._hosts.archive(handle)
        return True

    def store(
        self, records: list[OutcomeRecord], now: float, delivered: Mapping[str, Event] = MappingProxyType({})
    ) -> None:
        """Store outcomes in one transaction with the events of each that was accepted, and the pauses that follow.

        `delivered` are the events of what was delivered, by unit.
        """
        given, records = records, [self.breaker.delayed(record, now) for record in records]
        yielding = {record.unit_id for record, before in zip(records, given, strict=True) if record is not before}
        if records:
            with self._journal.together():
                are_stored = self._store.record_outcomes(records, now=now)
                accepted = [record for record, is_stored in zip(records, are_stored, strict=True) if is_stored]
                for record in accepted:
                    if record.unit_id in delivered:
                        self._journal.append(delivered[record.unit_id])
                    self._journal.append(unit_event(record, now, others_first=record.unit_id in yielding))
                for campaign in self.breaker.after(accepted, now):
                    self._store.set_campaign(campaign)
                    self._journal.append(pause_event(campaign, now))
                if hastened := self.breaker.hastened():
                    self._store.hasten_units(hastened)
            self.stored += accepted

    def record_of(
        self, unit: Unit, outcome: AttemptOutcome, now: float, max_attempts: int | None = None
    ) -> OutcomeRecord:
        """Return what to store of an attempt that has no session."""
        return OutcomeRecord(
            unit_id=unit.id,
            fence=unit.fence,
            transition=self._transition_of(unit, outcome, now, max_attempts),
            account=unit.account if unit.conversation_id is not None else None,
            conversation_id=unit.conversation_id,
        )

    def _transition_of(self, unit: Unit, outcome: AttemptOutcome, now: float, max_attempts: int | None) -> Transition:
        policy = self._settings.policy
        if max_attempts is not None:
            policy = msgspec.structs.replace(policy, max_attempts=max_attempts)
        return transition_after(unit.counters, outcome, policy, now)

    def _record_of_session(
        self, session: LiveSession, state: SessionState, outcome: AttemptOutcome, now: float
    ) -> OutcomeRecord:
        outcome = self.breaker.judged(session, outcome, now)
        if outcome.ending == "parked":
            outcome = self._parked(session, outcome, now)
        # After a failure the work starts from the beginning: the cause may lie in the conversation.
        conversation = None if outcome.ending == "failed" else session.conversation
        account = session.unit.account if session.account is not None and conversation is not None else None
        ended_at = now if state.ended_at is None else min(state.ended_at, now)
        result = result_after(session, outcome, ended_at, self._settings.prices)
        return OutcomeRecord(
            unit_id=session.unit.id,
            fence=session.unit.fence,
            transition=self._transition_of(session.unit, outcome, now, session.campaign.max_attempts),
            account=account,
            conversation_id=conversation,
            denials=outcome.denials,
            warnings=outcome.warnings,
            result=result,
            resume_cost=0 if conversation is None else self.history.resume_cost(session.campaign, result),
        )

    def _parked(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> AttemptOutcome:
        """Add the resume time. A unit without a conversation may run on the first account whose windows open."""
        resume_at = self._resume_times.resume_at(session.payer, session.ticket.scopes, now) or outcome.resume_at
        if session.conversation is None and session.account is not None:
            accounts = self._settings.campaign_accounts
            for each in accounts.ids_of(session.campaign):
                scopes = session_scopes(session.campaign, accounts.find(each))
                elsewhere = self._resume_times.opens_at(scopes, now)
                resume_at = None if elsewhere is None or resume_at is None else min(resume_at, elsewhere)
        is_late = self._resume_times.is_late(session.ticket.scopes, now)
        spent_it_alone = session.has_answered and session.is_alone_in_fresh_window and not is_late
        return msgspec.structs.replace(outcome, resume_at=resume_at, opened_window=spent_it_alone)

    def _report_silent_limit(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> None:
        """Report a limit that the outcome implies but no signal named. Else the next unit would meet it at once."""
        ticket = session.ticket.id
        match outcome.ending:
            case "parked" if (
                outcome.resume_at is None and self._resume_times.opens_at(session.ticket.scopes, now) is None
            ):
                self._monitor.report(session, QuotaClosed(ticket=ticket, source="backoff"), now)
            case "account_stopped":
                kind = session.login_trouble or (AuthFailed if session.output.facts.outcome == "auth" else BillingStop)
                self._monitor.report(session, kind(detail=outcome.reason, ticket=ticket), now)
            case "unreachable":
                self._monitor.report(session, Unreachable(detail=outcome.reason, ticket=ticket), now)
            case "not_started" if session.host or self._hosts.states():  # other hosts may have what this one lacks
                self.exclusions.add(session.campaign.name, session.host, outcome.reason, now)
            case "not_started":
                missing = Unreachable(detail=outcome.reason, ticket=ticket)
                self._monitor.report(session, missing, now, session.program_scope)


def _is_to_verify(session: LiveSession, record: OutcomeRecord) -> bool:
    is_cancelled = session.ending is not None and session.ending.ending == "cancelled"
    return record.transition.step == "succeed" and needs_stages(session.campaign) and not is_cancelled


def _believed_opening(window: WindowStatus) -> float:
    """Return the first look after the reset where that is trusted, else the time of the next probe."""
    probe_at = window.probe_at or 0.0
    if window.resets_at is None or window.confidence < TRUSTED_CONFIDENCE:
        return probe_at
    return max(first_look(window.resets_at), probe_at)
