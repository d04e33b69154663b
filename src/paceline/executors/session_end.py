"""What the end of a session left: its exit code, the file that a plan expects, and what a command printed."""

import os

from paceline.executors.interface import Handle, SessionState

CLOCK_SLACK_SECONDS = 2.0
"""How much older than the start of its attempt an output may be: file systems round times, some to two seconds."""
_TIME_LIMIT_CODE = 124
"""The exit code of `timeout`, by which the reader knows that a run was ended at its limit of time."""
TAIL_BYTES = 8_000
"""The end of the output that is kept and fed back: a failed test run names its failures there."""


def output_problem(cwd: str, output: str | None, since: float) -> str | None:
    """Return what is wrong with an output that should have been written since that time; None if nothing is."""
    if output is None:
        return None
    try:
        written = os.stat(os.path.join(cwd, output))
    except OSError:
        return f"{output} was not written"
    if not written.st_size:
        return f"{output} is empty"
    # Files that were moved or copied with their times have only the time of their last change of state.
    if max(written.st_mtime, written.st_ctime) < since - CLOCK_SLACK_SECONDS:
        return f"{output} is older than this attempt"
    return None


def waited_in_silence(state: SessionState, *, has_answered: bool) -> bool:
    """Return whether it was ended at a limit of time before its agent had said anything."""
    return state.cause in ("timed_out", "stalled") and not has_answered


def exit_code_to_read(state: SessionState, *, has_answered: bool) -> int | None:
    """Return the exit code with which a reader closes the output of the session."""
    return _TIME_LIMIT_CODE if waited_in_silence(state, has_answered=has_answered) else state.shell_code


def printed_tail(handle: Handle) -> str:
    """Return the end of what the command printed. It becomes a prompt, which cannot contain NUL."""
    tail = b""
    for channel in handle.channels:
        printed = b""
        while piece := handle.read_new(channel):
            printed = (printed + piece)[-TAIL_BYTES:]
        tail += printed
    return tail[-TAIL_BYTES:].replace(b"\0", b"").decode(errors="replace").strip()
