"""The conclusion about a whole run: what its exit code, its own last word and its last trouble add up to.

Here: pure rules over values. Never here: text, JSON or signals' details.
"""

from typing import Literal

import msgspec

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
)
from paceline.detect.dialects import Ending

Outcome = Literal["success", "failed", "interrupted", "rate_limit", "quota_window", "overloaded", "billing", "auth"]
Trouble = Literal["rate_limit", "quota_window", "overloaded", "billing", "auth"]

_TROUBLE_OF_SIGNAL: dict[type[Signal], Trouble] = {
    RateLimited: "rate_limit",
    PlatformLimit: "rate_limit",
    Overloaded: "overloaded",
    QuotaClosed: "quota_window",
    BillingStop: "billing",
    AuthFailed: "auth",
}
_MORE_CERTAIN = frozenset({"quota_window", "billing"})
"""Once one of these was said, a bare 429 after it is the same refusal seen from farther away."""

_TIME_LIMIT_EXIT = 124
_SIGNAL_EXITS = frozenset({129, 130, 137, 143})

_SILENT_WAITS: dict[str, Trouble] = {"opencode": "quota_window", "qwen-code": "rate_limit"}
"""CLIs that wait without a word, by what keeps them silent for longer than any time limit: opencode gives up
short waits within 80 s but sleeps through an hours-long Retry-After; qwen before 0.24 announces no retry."""
_SILENT_CANCELLED: dict[str, Trouble] = {"qwen-code": "overloaded"}
"""Stopped in its own backoff, qwen before 0.24 says that it was cancelled; in a wait that the server had asked for
it cannot."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All that the conclusion depends on."""

    provider: str
    exit_code: int | None
    ending: Ending | None
    trouble: Trouble | None
    """The last one met since the model last answered."""
    speaks_json: bool
    ends_with_result: bool
    fails_aloud: bool
    has_answered: bool
    """Whether anything of the agent's work was seen."""
    has_text: bool
    """Whether anything was printed for a person: plain stdout or a screen."""
    is_cut: bool
    """Whether plain text broke off inside its last line, where the CLI always ends it."""
    was_cancelled: bool


def trouble_of_signals(signals: list[Signal]) -> Trouble | None:
    """The trouble that signals of one piece of output mean, the most certain one first."""
    found = [trouble for signal in signals if (trouble := _TROUBLE_OF_SIGNAL.get(type(signal)))]
    return next((trouble for trouble in found if trouble in _MORE_CERTAIN), found[0] if found else None)


def trouble_of_status(status: int | None) -> Trouble | None:
    """The trouble that a bare HTTP status means."""
    if status is None:
        return None
    if status >= 500:
        return "overloaded"
    by_status: dict[int, Trouble] = {401: "auth", 402: "billing", 403: "auth", 429: "rate_limit"}
    return by_status.get(status)


def merge_trouble(before: Trouble | None, now: Trouble | None) -> Trouble | None:
    """The newer trouble, unless it is only a vaguer word for the one before."""
    if now is None or (now == "rate_limit" and before in _MORE_CERTAIN):
        return before
    return now


def conclude(run: Run) -> Outcome:
    """What became of the run. Exit code 0 alone is never success, and no event is the last word alone."""
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
    if run.speaks_json and run.fails_aloud:
        return "interrupted"
    return trouble_of_status(_status_in_exit_code(run)) or "failed"


def _conclude_ended(run: Run, ending: Ending) -> Outcome:
    if ending.ok:
        if run.exit_code in (0, None):
            return "success"
        return "interrupted" if _was_signalled(run.exit_code) else run.trouble or "failed"
    if ending.interrupted:
        return "interrupted"
    return run.trouble or trouble_of_status(_status_in_exit_code(run)) or _without_cause(run)


def _without_cause(run: Run) -> Outcome:
    return "interrupted" if _was_signalled(run.exit_code) else "failed"


def was_stopped(exit_code: int | None) -> bool:
    """Whether somebody ended the process, so that its last words are just where it was."""
    return exit_code is None or exit_code == _TIME_LIMIT_EXIT or _was_signalled(exit_code)


def _was_signalled(exit_code: int | None) -> bool:
    return exit_code is not None and (exit_code < 0 or exit_code in _SIGNAL_EXITS)


def _conclude_timed_out(run: Run) -> Outcome:
    if run.has_answered or run.has_text:
        return "failed"
    by_provider = _SILENT_CANCELLED if run.was_cancelled else _SILENT_WAITS
    return by_provider.get(run.provider) or _SILENT_WAITS.get(run.provider) or "failed"


def _conclude_quiet_exit(run: Run) -> Outcome:
    """Several CLIs exit with 0 when they are stopped; then the closing event, or any text at all, is missing."""
    if run.speaks_json:
        return "interrupted" if run.ends_with_result else "success"
    if run.is_cut:
        return "interrupted"
    return "success" if run.has_text or not run.ends_with_result else "interrupted"


def _status_in_exit_code(run: Run) -> int | None:
    """gemini exits with the HTTP status modulo 256."""
    if run.provider != "gemini-cli" or run.exit_code is None:
        return None
    status = run.exit_code + 256
    return status if 400 <= status < 512 else None
