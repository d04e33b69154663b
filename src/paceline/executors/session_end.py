"""The exit code by which the output of an ended session is read."""

from paceline.executors.interface import SessionState

_TIME_LIMIT_CODE = 124
"""The exit code of `timeout`, by which the reader knows that a run was ended at its limit of time."""


def waited_in_silence(state: SessionState, *, has_answered: bool) -> bool:
    """Return whether it was ended at a limit of time before its agent had said anything."""
    return state.cause in ("timed_out", "stalled") and not has_answered


def exit_code_to_read(state: SessionState, *, has_answered: bool) -> int | None:
    """Return the exit code with which a reader closes the output of the session."""
    return _TIME_LIMIT_CODE if waited_in_silence(state, has_answered=has_answered) else state.shell_code
