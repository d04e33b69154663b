"""The conclusion about a whole run: what its exit code, its last event and its last trouble add up to.

Here: pure rules over values. Never here: text, JSON, the details of signals, or the habits of one CLI, which its
`AgentCli` states.
"""

import re

import msgspec

from paceline.agents.dialect import AgentCli
from paceline.agents.stream.facts import Ending, Outcome, Trouble
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Unreachable,
)
from paceline.detect.observation import Kind, kind_of_failure

_TROUBLE_OF_SIGNAL: dict[type[Signal], Trouble] = {
    RateLimited: "rate_limit",
    PlatformLimit: "rate_limit",
    Overloaded: "overloaded",
    QuotaClosed: "quota_window",
    BillingStop: "billing",
    AuthFailed: "auth",
    Unreachable: "unreachable",
}
_TROUBLE_OF_KIND: dict[Kind, Trouble] = {
    "auth": "auth",
    "billing": "billing",
    "rate": "rate_limit",
    "overloaded": "overloaded",
}
"""Without `platform`: a run that ended with a bare 423 has not met a limit of the account."""
_FORBIDDEN = 403
"""A single 403 proves nothing, but a run that ended with one was refused: a person has to check the login."""
_MORE_CERTAIN = frozenset({"quota_window", "billing"})
"""After one of these, a bare 429 is the same refusal with less detail, and a lost connection does not undo it."""
_LESS_CERTAIN = frozenset({"rate_limit", "unreachable"})

_TIME_LIMIT_EXIT = 124
_SIGNAL_EXITS = frozenset({129, 130, 137, 143})


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the conclusion depends on."""

    cli: AgentCli
    exit_code: int | None
    ending: Ending | None
    trouble: Trouble | None
    """The last one met since the model last answered."""
    speaks_json: bool
    has_answered: bool
    """Whether anything of the agent's work was seen."""
    has_text: bool
    """Whether anything was printed for a person: plain stdout or a screen."""
    is_cut: bool
    """Whether plain text broke off inside its last line, where the CLI always ends it."""
    was_cancelled: bool
    is_denied: bool = False
    """Whether tool calls of the agent were denied."""


def trouble_of_signals(signals: list[Signal]) -> Trouble | None:
    """Return the trouble that the signals of one piece of output mean, the most certain one first."""
    found = [trouble for signal in signals if (trouble := _TROUBLE_OF_SIGNAL.get(type(signal)))]
    return next((trouble for trouble in found if trouble in _MORE_CERTAIN), found[0] if found else None)


def trouble_of_status(status: int | None) -> Trouble | None:
    """Return the trouble that the bare HTTP status of a failed call means."""
    if status == _FORBIDDEN:
        return "auth"
    kind = kind_of_failure(status)
    return None if kind is None else _TROUBLE_OF_KIND.get(kind)


def merge_trouble(before: Trouble | None, now: Trouble | None) -> Trouble | None:
    """Return the newer trouble, unless it only repeats the one before with less detail."""
    if now is None or (now in _LESS_CERTAIN and before in _MORE_CERTAIN):
        return before
    return now


def conclude(run: FinishedRun) -> Outcome:
    """Return the outcome of a run. Neither exit code 0 alone nor any single event proves success."""
    outcome = _conclude(run)
    if not run.is_denied:
        return outcome
    # Some CLIs end where a call is denied, without their closing event and with exit code 0.
    ended_there = outcome == "interrupted" and run.exit_code == 0 and run.ending is None
    return "denied" if outcome == "success" or ended_there else outcome


def _conclude(run: FinishedRun) -> Outcome:
    if run.ending is not None:
        return _conclude_ended(run, run.ending)
    if run.trouble is not None and not (run.exit_code == 0 and run.has_text):
        return run.trouble
    if run.exit_code is None or _was_signalled(run.exit_code):
        return "interrupted"
    if run.exit_code == _TIME_LIMIT_EXIT:
        return _conclude_timed_out(run)
    if run.exit_code == 0:
        return _conclude_quiet_exit(run)
    if run.speaks_json and run.cli.dialect.fails_aloud:
        return "interrupted"
    return trouble_of_status(_status_in_exit_code(run)) or "failed"


def _conclude_ended(run: FinishedRun, ending: Ending) -> Outcome:
    if ending.ok:
        if run.exit_code in (0, None):
            return "success"
        return "interrupted" if _was_signalled(run.exit_code) else run.trouble or "failed"
    if ending.interrupted:
        return "interrupted"
    return run.trouble or trouble_of_status(_status_in_exit_code(run)) or _without_cause(run)


def _without_cause(run: FinishedRun) -> Outcome:
    return "interrupted" if _was_signalled(run.exit_code) else "failed"


_CONVERSATION = r"(?:conversation|session|thread|rollout)s?\b"
_GONE = re.compile(
    rf"\bno (?:saved |stored |such )?{_CONVERSATION}(?: or task)?.{{0,20}}(?:\b(?:found|matched|exists?)\b|$)"
    rf"|\b{_CONVERSATION}.{{0,80}}\b(?:not found|(?:does not|doesn't|no longer) exist|could not be found)"
    r"|\binvalid session identifier\b",
    re.I,
)
"""What CLIs print that were to resume a conversation that they do not have. Read only of resumed runs without an
answer, where no task of the agent can say the same."""


def is_conversation_gone(failure_text: str | None) -> bool:
    """Return whether a run that was to resume a conversation, and never answered, failed because there is none."""
    return failure_text is not None and _GONE.search(failure_text) is not None


def was_stopped(exit_code: int | None) -> bool:
    """Return whether the process was stopped from outside: then its last line says nothing about the cause."""
    return exit_code is None or exit_code == _TIME_LIMIT_EXIT or _was_signalled(exit_code)


def _was_signalled(exit_code: int | None) -> bool:
    return exit_code is not None and (exit_code < 0 or exit_code in _SIGNAL_EXITS)


def _conclude_timed_out(run: FinishedRun) -> Outcome:
    if run.has_answered or run.has_text:
        return "failed"
    when_cancelled = run.cli.silent_wait_when_cancelled if run.was_cancelled else None
    return when_cancelled or run.cli.silent_wait or "failed"


def _conclude_quiet_exit(run: FinishedRun) -> Outcome:
    """Conclude from exit code 0. Several CLIs exit so when they are stopped: then their closing event is missing."""
    if run.speaks_json:
        return "interrupted" if run.cli.dialect.ends_with_result else "success"
    if run.is_cut:
        return "interrupted"
    return "success" if run.has_text or not run.cli.dialect.ends_with_result else "interrupted"


def _status_in_exit_code(run: FinishedRun) -> int | None:
    if run.cli.exit_status is None or run.exit_code is None:
        return None
    return run.cli.exit_status(run.exit_code)
