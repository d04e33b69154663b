"""The outcome of an attempt: what the end of its process and the words of its agent add up to.

Here: decisions about one session that is over. Never here: what is stored of it.
"""

import re

import msgspec

from paceline import errors
from paceline.agents.stream.outcome import is_conversation_gone
from paceline.core.signals import Signal
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine.session.live_session import UNKNOWN_WAIT_SECONDS, LiveSession
from paceline.errors import InvalidInput
from paceline.executors import SessionState
from paceline.executors.session_end import exit_code_to_read, waited_in_silence

TRY_LATER_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h."""
NO_ROOM_SECONDS = 10.0
"""How long no session is started after the machine had no room for one: soon enough once a person has made some."""
TOO_LATE = "it could have started only after its leader, or its host, had lost its lease"
STOPPED_EARLY = "it was stopped before the agent ran"
CANNOT_WORK = "cannot work in "
TOO_LONG = ("Argument list too long", "pass long input on stdin")
_CANNOT_RUN = re.compile(r"cannot run '(?P<name>.*?)': (?P<why>.*)")
"""Messages of supervisors about agents that never ran."""
ENDED_WELL = ("success", "denied")
"""Outcomes of a run in which the agent says that it is done."""


def conclude_attempt(session: LiveSession, state: SessionState, now: float) -> tuple[AttemptOutcome, list[Signal]]:
    """Return the outcome of the attempt, and the signals of its end. All its output must have been read."""
    if session.concluded is not None:  # it could not be stored before
        return session.concluded, []
    at = now if state.ended_at is None else min(state.ended_at, now)
    exit_code = exit_code_to_read(state, has_answered=session.has_answered)
    signals = session.signed(session.output.close(exit_code, at))
    if session.output.facts.outcome not in ENDED_WELL:
        for signal in signals:
            session.judge(signal, at)
    facts = session.output.facts
    is_done = facts.outcome in ENDED_WELL and state.cause == "exit"  # it may end well before it is stopped
    ending = None if is_done else session.ending
    outcome = (
        ending
        or _by_process(session, state, at)
        or _without_conversation(session)
        or _by_its_own_account(session, state, at)
    )
    warnings = session.unit.result.carried.warnings + outcome.warnings
    session.concluded = msgspec.structs.replace(
        outcome, exit_code=state.shell_code, denials=facts.denials, warnings=warnings
    )
    return session.concluded, signals


def _by_process(session: LiveSession, state: SessionState, now: float) -> AttemptOutcome | None:
    """Return the outcome that the end of the process decides, if it does."""
    if state.phase == "not_started":
        error = session.output.start_error
        if error is not None:
            return start_error_outcome(error, state.message, now)
        return not_started_outcome(state.message, is_elsewhere=bool(session.host))
    if state.phase == "lost" or state.cause in ("terminated", "stopped"):
        return AttemptOutcome(ending="lost", reason=state.message or "the session was ended from outside")
    if waited_in_silence(state, has_answered=session.has_answered) and session.output.facts.outcome != "failed":
        return None  # some CLIs wait for a spent quota without a word
    if state.cause == "timed_out":
        return AttemptOutcome(ending="failed", reason=f"took longer than its {session.campaign.timeout or 0:g} s")
    if state.cause == "stalled":
        return AttemptOutcome(ending="failed", reason="stalled: no output and no CPU time")
    if state.exit_code == TRY_LATER_EXIT_CODE:
        return AttemptOutcome(ending="try_later", reason="asked to be tried later (exit code 75)")
    return None


def _by_its_own_account(session: LiveSession, state: SessionState, now: float) -> AttemptOutcome:
    match session.output.facts.outcome:
        case "success":
            return _checked_success(session)
        case "denied":
            return _denied(session)
        case "unreachable":
            return AttemptOutcome(ending="unreachable", reason=f"nobody answered: {_failure(session, state)}")
        case "quota_window":
            return AttemptOutcome(ending="parked", reason="the quota window is spent")
        case "rate_limit" | "overloaded" as refused:
            wait = session.last_wait if session.last_wait is not None else UNKNOWN_WAIT_SECONDS
            return AttemptOutcome(ending="refused", reason=refused.replace("_", " "), resume_at=now + wait)
        case "billing" | "auth" as refused if session.has_payer:
            return AttemptOutcome(ending="account_stopped", reason=f"the account was refused ({refused})")
        case "interrupted":
            return AttemptOutcome(ending="lost", reason="interrupted from outside")
    return AttemptOutcome(ending="failed", reason=_failure(session, state))


def _without_conversation(session: LiveSession) -> AttemptOutcome | None:
    """Begin a unit again whose conversation its CLI no longer has. The work itself has not failed."""
    facts, lost = session.output.facts, session.unit.conversation_id
    if lost is None or session.has_answered or facts.outcome not in ("failed", "interrupted"):
        return None
    if not is_conversation_gone(facts.failure_text):
        return None
    session.is_conversation_gone = True
    reason = f"its conversation is gone ({facts.failure_text}), so it begins again"
    warning = f"its conversation {lost} was gone when it was to be resumed, so it was begun again"
    return AttemptOutcome(ending="yielded", reason=reason, warnings=(warning,))


def _failure(session: LiveSession, state: SessionState) -> str:
    how = f"signal {state.signal}" if state.signal is not None else f"exit code {state.exit_code}"
    words = session.output.facts.failure_text
    return f"{how}: {words}" if words else how


def _denied(session: LiveSession) -> AttemptOutcome:
    """Hold a unit whose agent was not allowed to work, unless the plan accepts that."""
    reason = session.output.facts.denial_reason or "the agent was denied tool calls"
    if session.campaign.on_denied == "done":
        return msgspec.structs.replace(_checked_success(session), warnings=(reason,))
    return AttemptOutcome(ending="denied", reason=reason)


def start_error_outcome(error: str, message: str, now: float) -> AttemptOutcome:
    """Return the outcome of an attempt whose start raised the error of that class."""
    match error:
        case "WouldBillKey":
            return AttemptOutcome(ending="barred", reason=message)
        case "NoRoomForSession":
            return AttemptOutcome(ending="unreachable", reason=message, resume_at=now + NO_ROOM_SECONDS)
        case _ if issubclass(getattr(errors, error, Exception), InvalidInput):
            return AttemptOutcome(ending="failed", reason=message)
    return AttemptOutcome(ending="lost", reason=message)


def not_started_outcome(message: str, *, is_elsewhere: bool = False) -> AttemptOutcome:
    """Return the outcome of an attempt whose agent never ran. Only what lies in the unit itself is a failure of it.

    On another host (`is_elsewhere`) its folder may be missing although it is there on others.
    """
    if is_elsewhere and message.startswith(CANNOT_WORK):
        return AttemptOutcome(ending="not_started", reason=message)
    if message in (STOPPED_EARLY, TOO_LATE):
        return AttemptOutcome(ending="lost", reason=message)
    if message.startswith(CANNOT_WORK) or message.endswith(TOO_LONG):
        return AttemptOutcome(ending="failed", reason=message)
    found = _CANNOT_RUN.match(message)
    if found is None:
        return AttemptOutcome(ending="not_started", reason=f"the agent could not be started: {message or 'no reason'}")
    why = "not found" if "No such file" in found["why"] else found["why"]
    return AttemptOutcome(ending="not_started", reason=f"the program {found['name']} could not be started: {why}")


def _checked_success(session: LiveSession) -> AttemptOutcome:
    """Return success only if the output that the plan names was written since the conversation began."""
    problem = session.output.output_problem(session.unit)
    if problem is None:
        return AttemptOutcome(ending="succeeded", reason="done")
    return AttemptOutcome(ending="failed", reason=f"ended well, but {problem}")
