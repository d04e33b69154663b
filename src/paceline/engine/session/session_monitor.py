"""The live sessions of an engine: their output is read, those that must stop are ended, and their ends are recorded.

Here: what is done with the output of all sessions, the errors of single ones, which the others do not notice, and the
outcome of attempts in the order in which it must be stored; when a parked unit resumes. Never here: what one output
means (`live_session.py`), and whether a unit may start again: the Governor lets one canary go first, whichever it is.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from paceline.core import WindowStatus
from paceline.core.gates.quota_window import TRUSTED_CONFIDENCE
from paceline.core.gates.reopening import first_look
from paceline.core.signals import AuthFailed, BillingStop, QuotaClosed, Signal, Unreachable
from paceline.core.unit_lifecycle import AttemptOutcome, Transition, transition_after
from paceline.engine.capacity.deadline_pacer import DeadlinePacer
from paceline.engine.dispatch.ticket_queues import session_scopes
from paceline.engine.journal import EngineParts, unit_event
from paceline.engine.session.live_session import LiveSession, conclude_attempt, result_after
from paceline.engine.session.unit_stages import UnitStages
from paceline.engine.session.window_landing import UnitSizes
from paceline.executors.interface import Handle, SessionState
from paceline.redaction import signal_without_secrets
from paceline.store import OutcomeRecord, Unit

log = logging.getLogger("paceline.engine")

RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits after the first, second, ... error: an error that passes costs seconds, one that stays costs no processor."""

Value = TypeVar("Value")
SessionStep = Literal["examine", "read", "stop", "conclude", "archive"]
"""What the engine does with a session that may fail for this one alone."""


class Fault(msgspec.Struct, frozen=True):
    """The errors in a row of one step of a session, and when it is tried again."""

    count: int
    retry_at: float
    error: str


STOP_SECONDS = 60.0
"""How long a supervisor may take to stop its session before it is killed: longer than the grace it gives the agent."""
PIECES_PER_PASS = 4
"""Pieces of 64 kB that a pass reads of each channel of a session: a talkative one must not delay the others."""

LAST_PIECES = 2
"""Reads at the end of a session: what it printed since it was read, and a look whether that was all."""
MOST_FAULTS = 5
"""Errors in a row after which the output of an ended session is given up: half a minute, longer than a busy disk."""


class SessionMonitor:
    """Reads all live sessions once per pass, ends those that must stop, and records attempts that are over.

    What sessions report is stored before any of them is ended, and their outcomes before their slots are released.
    """

    def __init__(self, parts: EngineParts, stages: UnitStages) -> None:
        store, driver = parts.store, parts.driver
        self._store, self._governor, self._now, self._metrics = store, driver.governor, driver.now, driver.metrics
        self._hosts, self._settings, self._campaigns = parts.hosts, parts.settings, parts.campaigns
        self._journal, self._live, self._ended = parts.journal, parts.live, parts.ended
        self._queues, self._stages, self._breaker = parts.queues, stages, stages.breaker
        self._faults: dict[tuple[str, SessionStep], Fault] = {}
        """The errors of single sessions. A step that worked has none, so its next error is logged again."""
        self.pacer = DeadlinePacer(store, driver.governor, parts.settings.campaign_accounts)
        self.history = UnitSizes(store)
        self.is_behind = False
        """Whether a session has more output than this pass has read."""
        self.stored: list[OutcomeRecord] = []
        """The outcomes that were stored, until the pass has seen to what follows from them."""
        self._probed_at: dict[str, float] = {}
        """When the first parked unit of each payer resumes."""

    def read_all(self) -> Iterator[None]:
        """Read a share of the new output of every session. Yields after each piece, so that others have their turn."""
        self.is_behind = False
        for session in list(self._live.values()):
            if session.ending is None or self._is_over(session):
                for _ in range(PIECES_PER_PASS):
                    if not self._read(session, self._now()):
                        break
                    yield
                else:
                    self.is_behind = True

    def _isolate(
        self, handle: Handle, step: SessionStep, now: float, work: Callable[..., Value], *arguments: object
    ) -> Value | None:
        """Do the step of one session, unless its wait after an error lasts. Returns None if it was not done."""
        before = self._faults.get((handle.attempt_id, step))
        if before is not None and 0 < before.retry_at - now <= RETRY_SECONDS[-1]:  # also if the clock was set back
            return None
        try:
            value = work(*arguments)
        except Exception as error:
            count = 1 if before is None else before.count + 1
            if before is None:
                message = "cannot %s session %s; it is tried again, and the others continue"
                log.error(message, step, handle.attempt_id, exc_info=error)
            wait = RETRY_SECONDS[min(count, len(RETRY_SECONDS)) - 1]
            self._faults[handle.attempt_id, step] = Fault(count, now + wait, f"{type(error).__name__}: {error}")
            return None
        if before is not None:
            del self._faults[handle.attempt_id, step]
        return value

    def _is_over(self, session: LiveSession) -> bool:
        handle = session.handle
        return bool(self._isolate(handle, "examine", self._now(), lambda: handle.state().is_over))

    def _read(self, session: LiveSession, now: float) -> bool:
        """Read a piece of the session's new output, and take its signals. Returns whether there may be more."""
        session.output.is_behind = False
        self._isolate(session.handle, "read", now, self._read_piece, session, now)
        return session.output.is_behind

    def _read_piece(self, session: LiveSession, now: float) -> None:
        was_catching_up = session.output.is_catching_up
        signals = session.read(now)
        if session.output.is_behind or signals or was_catching_up:
            self._take_signals(session, signals, now)
        else:
            self._leave_early(session, now)

    def _read_whole(self, session: LiveSession, now: float) -> bool:
        """Read the last output of a session, at most its share of a pass. Returns whether nothing is left to read."""
        if session.output.is_behind:
            self.is_behind = True
            return False
        for _ in range(LAST_PIECES):
            if not self._read(session, now):
                return (session.handle.attempt_id, "read") not in self._faults
        self.is_behind = True
        return False

    def stop_ending(self, now: float) -> None:
        """Store what was learnt, then end the sessions that must stop."""
        ending = [session for session in self._live.values() if session.ending is not None]
        if ending:
            self._journal.collect(now)
            self._journal.save(now)  # the reset is stored before anything else
        for session in ending:
            self._isolate(session.handle, "stop", now, self._stop, session, now)

    def _take_signals(self, session: LiveSession, signals: Sequence[Signal], now: float) -> None:
        """Count tokens, report signals, and decide whether the session must end."""
        if (tokens := session.new_tokens()) > 0:
            self._governor.count_tokens(session.ticket.id, tokens, now=now)
        for signal in signals:
            self._report(session, signal, now)
            session.judge(signal, now)
        session.check_retries(now)
        self._leave_early(session, now)
        if (billed := session.check_payer()) is not None:
            self._report(session, BillingStop(detail=billed), now)

    def _leave_early(self, session: LiveSession, now: float) -> None:
        """End it for what others did meanwhile: a person asks for its end, or only the reserve is left."""
        if session.unit.result.end_request is not None:
            session.check_turn()
        if session.conversation is not None:
            session.leave_reserve(self._governor.reserve_reached(session.ticket.id, now=now))

    def _report(self, session: LiveSession, signal: Signal, now: float, scope: str | None = None) -> None:
        """Report a signal of the session. The events that follow from it name its unit."""
        scope, signal = session.reported_scope if scope is None else scope, signal_without_secrets(signal)
        self._governor.report(scope, signal, now=now, origin=session.unit.id)
        self._metrics.reported(scope, signal)
        self._journal.has_learnt = True

    def _stop(self, session: LiveSession, now: float) -> None:
        """Ask for the end once, and kill a supervisor that does not react."""
        if session.stop_asked_at is None:
            self._hosts.holder_of(session.handle).stop(session.handle)
            session.stop_asked_at = now
        elif now - session.stop_asked_at > STOP_SECONDS:
            self._hosts.holder_of(session.handle).kill(session.handle)

    # -- ends ----------------------------------------------------------------------------------

    def record_ended(self, now: float) -> None:
        """Store the outcomes of sessions that are over, then release their slots. Some go to their stages."""
        ended: list[tuple[LiveSession, OutcomeRecord]] = []
        for session in self._live.values():
            record = self._isolate(session.handle, "conclude", now, self._conclude, session, now)
            if record is not None:
                ended.append((session, record))
        if ended and self._journal.has_learnt:
            self._journal.collect(now)  # a closed window is emitted before what became of its units
            self._journal.save(now)
        done, to_verify = list[OutcomeRecord](), list[tuple[LiveSession, OutcomeRecord]]()
        for session, record in ended:  # work that ended well may be checked, committed or delivered first
            is_cancelled = session.ending is not None and session.ending.ending == "cancelled"
            needs_stages = bool(session.campaign.check) or session.campaign.workspace is not None
            if record.transition.step == "succeed" and needs_stages and not is_cancelled:
                to_verify.append((session, record))
            else:
                done.append(record)
        self.store(done, now)
        for session, record in to_verify:
            self._stages.take_over(session, record)
        for session, record in ended:
            if (result := record.result) is not None:
                before = session.unit.result
                estimated = result.lost_tokens_estimated - before.lost_tokens_estimated
                measured = result.lost_tokens - before.lost_tokens - estimated
                for source, tokens in (("estimated", estimated), ("measured", measured)):
                    if tokens > 0:
                        self._metrics.lost_tokens.add(session.reported_scope, source, by=tokens)
            del self._live[session.unit.id]
            self._ended.append(session.handle)
        try:
            self.pacer.on_attempts(ended, self._campaigns.values(), now)
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
        attempt_id = session.handle.attempt_id
        for fault in (self._faults.get((attempt_id, "read")), self._faults.get((attempt_id, "conclude"))):
            if fault is not None and fault.count >= MOST_FAULTS:
                lost = AttemptOutcome(ending="lost", reason=f"its output could not be read ({fault.error})")
                return self._record_of_session(session, state, lost, now)
        if not self._read_whole(session, now):
            return None
        outcome, signals = conclude_attempt(session, state, now)
        self._take_signals(session, signals, now)
        self._report_silent_limit(session, outcome, now)
        return self._record_of_session(session, state, outcome, now)

    def archive(self, now: float) -> None:
        """Put away the output of recorded attempts. What cannot be put away is tried again at later passes."""
        waiting = list(self._ended)
        self._ended.clear()
        for handle in waiting:
            if self._isolate(handle, "archive", now, self._put_away, handle):
                self._faults = {key: fault for key, fault in self._faults.items() if key[0] != handle.attempt_id}
            else:
                self._ended.append(handle)

    def _put_away(self, handle: Handle) -> bool:
        if not handle.state().is_over:
            return False
        self._hosts.holder_of(handle).archive(handle)
        return True

    def store(self, records: list[OutcomeRecord], now: float) -> None:
        """Store outcomes in one transaction with the events of each that was accepted, and the pauses that follow."""
        delivered, self._stages.delivered = self._stages.delivered, {}
        if not records:
            return
        accepted: list[OutcomeRecord] = []
        delayed = [self._breaker.delayed(record, now) for record in records]
        with self._journal.together():
            are_stored = self._store.record_outcomes(delayed, now=now)
            for record, before, is_stored in zip(delayed, records, are_stored, strict=True):
                if is_stored:
                    accepted.append(record)
                    if record.unit_id in delivered:
                        self._journal.append(delivered[record.unit_id])
                    self._journal.append(unit_event(record, now, others_first=record is not before))
            self._journal.pause(self._breaker.after(accepted, now), now)
        self.stored += accepted
        for record in accepted:
            self.history.learn(record)

    def record_of(self, unit: Unit, outcome: AttemptOutcome, now: float) -> OutcomeRecord:
        """Return what to store of an attempt that has no session."""
        return OutcomeRecord(
            unit_id=unit.id,
            fence=unit.fence,
            transition=self._transition_of(unit, outcome, now),
            account=unit.account if unit.conversation_id is not None else None,
            conversation_id=unit.conversation_id,
        )

    def _transition_of(self, unit: Unit, outcome: AttemptOutcome, now: float) -> Transition:
        policy, campaign = self._settings.policy, self._campaigns.get(unit.campaign)
        if campaign is not None:
            policy = msgspec.structs.replace(policy, max_attempts=campaign.max_attempts)
        return transition_after(unit.counters, outcome, policy, now)

    def _record_of_session(
        self, session: LiveSession, state: SessionState, outcome: AttemptOutcome, now: float
    ) -> OutcomeRecord:
        outcome = self._breaker.judged(session, outcome, now)
        if outcome.ending == "parked":
            outcome = self._parked(session, outcome, now)
        # After a failure the work starts from the beginning: the cause may lie in the conversation.
        conversation = None if outcome.ending == "failed" else session.conversation
        ended_at = now if state.ended_at is None else min(state.ended_at, now)
        result = result_after(session, outcome, ended_at, self._settings.prices)
        return OutcomeRecord(
            unit_id=session.unit.id,
            fence=session.unit.fence,
            transition=self._transition_of(session.unit, outcome, now),
            account=None if session.account is None or conversation is None else session.unit.account,
            conversation_id=conversation,
            denials=outcome.denials,
            warnings=outcome.warnings,
            result=result,
            resume_cost=0 if conversation is None else self.history.resume_cost(session.campaign, result),
        )

    def _parked(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> AttemptOutcome:
        """Add the resume time. A unit without a conversation may run on the first account whose windows open."""
        closed = self._closed(session.ticket.scopes, now)
        resume_at = self._resume_at(session.payer, closed, now) or outcome.resume_at
        if session.conversation is None and session.account is not None:
            accounts = self._settings.campaign_accounts
            for each in accounts.ids_of(session.campaign):
                scopes = session_scopes(session.campaign, accounts.of(session.campaign, each))
                elsewhere = _opens_at(self._closed(scopes, now))
                resume_at = None if elsewhere is None or resume_at is None else min(resume_at, elsewhere)
        # A window that has not reopened at its reset yet can have been spent by nobody.
        is_late = any(window.missed_at is not None for window in closed)
        spent_it_alone = session.has_answered and session.is_alone_in_fresh_window and not is_late
        return msgspec.structs.replace(outcome, resume_at=resume_at, opened_window=spent_it_alone)

    def _report_silent_limit(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> None:
        """Report a limit that the outcome implies but no signal named. Else the next unit would meet it at once."""
        ticket = session.ticket.id
        match outcome.ending:
            case "parked" if outcome.resume_at is None and not self._closed(session.ticket.scopes, now):
                self._report(session, QuotaClosed(ticket=ticket, source="backoff"), now)
            case "account_stopped":
                kind = session.login_trouble or (AuthFailed if session.output.facts.outcome == "auth" else BillingStop)
                self._report(session, kind(detail=outcome.reason, ticket=ticket), now)
            case "unreachable":
                self._report(session, Unreachable(detail=outcome.reason, ticket=ticket), now)
            case "not_started" if session.host or self._hosts.states():  # other hosts may have what this one lacks
                self._queues.exclude(session.campaign.name, session.host, outcome.reason, now)
            case "not_started":
                missing = Unreachable(detail=outcome.reason, ticket=ticket)
                # Every session with the same program meets it: those of the agent, or of the campaign of a command.
                name = f"agent:{session.profile.name}" if session.profile.start else f"campaign:{session.campaign.name}"
                self._report(session, missing, now, name)

    def _resume_at(self, payer: str, closed: Sequence[WindowStatus], now: float) -> float | None:
        """Return the believed reset. The first unit of each payer gets the earliest probe: it may have moved."""
        opens_at = _opens_at(closed)
        probe_at = max((window.probe_at or now for window in closed), default=None)
        if opens_at is None or probe_at is None or probe_at >= opens_at or self._probed_at.get(payer, now) > now:
            return opens_at
        self._probed_at[payer] = probe_at
        return probe_at

    def _closed(self, scopes: Sequence[str], now: float) -> list[WindowStatus]:
        statuses = [self._governor.status(scope, now=now) for scope in scopes]
        windows = [window for status in statuses if status is not None for window in status.windows]
        return [window for window in windows if window.state == "closed"]


def _opens_at(closed: Iterable[WindowStatus]) -> float | None:
    """Return when the windows open, as is believed: at the first look after a trusted reset, else at the next probe."""
    opens: list[float] = []
    for window in closed:
        opens.append(window.probe_at or 0.0)
        if window.resets_at is not None and window.confidence >= TRUSTED_CONFIDENCE:
            opens[-1] = max(first_look(window.resets_at), opens[-1])
    return max(opens, default=None)
