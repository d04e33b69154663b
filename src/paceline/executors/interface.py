"""The interface of an executor: two protocols and their values, and what the end of a session left.

Here: what the engine needs to run sessions. Never here: a process, its files, or what becomes of a unit.

An executor serves one event loop and hundreds of sessions, without a thread or a task for each. The engine polls for
output once per heartbeat (`Handle.read_new`), which costs one `stat` while there is nothing new. Ends do not wait for
the heartbeat: `Executor.wait_ended` waits on one epoll that holds a pidfd of every supervisor.

Why a pidfd: it needs no parent-child relation, so it also works for sessions that an earlier engine started. It fires
for a supervisor that was killed, which could not send a message over a fifo or a socket. It can never refer to another
process. If none is available (too many open files), the heartbeat finds the end by the lock.
"""

import math
import os
from collections.abc import Callable, Collection
from typing import Literal, Protocol, runtime_checkable

import msgspec

from paceline.core.values.session_output import Channel

SessionPhase = Literal["running", "ended", "not_started", "lost"]
"""`not_started`: the agent never ran. `lost`: the agent is gone, and its end was not recorded."""
Cause = Literal["exit", "stopped", "terminated", "timed_out", "stalled"]
"""Why it ended: by itself, by `stop`, by a TERM that the engine did not send (a shutdown), or at a limit of time."""

DEFAULT_GRACE_SECONDS = 10.0
"""Enough for an agent CLI to save its conversation after TERM."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One session to start. An attempt id is used only once."""

    attempt_id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdin: bytes = b""
    timeout: float | None = None
    stall: float | None = None
    """The session is ended after this many seconds without output and almost without CPU time."""
    grace: float = DEFAULT_GRACE_SECONDS
    """Seconds between TERM and KILL at a time-out or a stall."""
    terminal: bool = False
    """Run it in a terminal, for an agent without a headless mode. `stdin` is then typed at the start."""
    start_by: float = math.inf
    """The agent is not started after this time of the clock `CLOCK_BOOTTIME`: another engine may lead then."""
    merged: bool = False
    """Record what it writes to stderr as part of `stdout`, in the order in which a terminal would show both."""


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session. Times are wall time; unknown fields are None."""

    phase: SessionPhase
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None
    message: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    max_rss_bytes: int | None = None
    cpu_seconds: float | None = None

    @property
    def is_over(self) -> bool:
        """Return whether the session has ended in any way."""
        return self.phase != "running"

    @property
    def shell_code(self) -> int | None:
        """Return the exit code as a shell reports it: 128 + N for signal N."""
        return 128 + self.signal if self.signal is not None else self.exit_code


class Handle(Protocol):
    """One session, live or ended."""

    @property
    def attempt_id(self) -> str: ...

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Return the channels that the session writes to."""

    def state(self) -> SessionState:
        """Return the current state. Cheap enough for every heartbeat."""

    def read_new(self, channel: Channel) -> bytes:
        """Return a bounded piece of the output since the last call; empty if there is none.

        A new handle reads from the beginning. A line stands in place of output that was dropped.
        """

    def written_at(self, channel: Channel) -> float | None:
        """Return when the last piece of the channel had been written, at the latest; None if that is not known."""


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the output of ended attempts is kept, and how much disk the home may use. None: without a limit."""

    max_age: float | None = None
    max_bytes: int | None = None


class PruneResult(msgspec.Struct, frozen=True):
    """The output that was removed, or would be."""

    attempts: int = 0
    bytes: int = 0
    is_behind: bool = False
    """Whether so much was archived meanwhile that another step is due at once."""

    def __add__(self, other: "PruneResult") -> "PruneResult":
        return PruneResult(self.attempts + other.attempts, self.bytes + other.bytes, other.is_behind)


IsNeeded = Callable[[str, str | None], bool]
"""Returns whether the output of an attempt must be kept. It gets the attempt and its unit, if that is known."""


class Executor(Protocol):
    """A way to run sessions."""

    def start(self, launch: Launch) -> Handle:
        """Start a session. If the agent cannot run, the state of the handle becomes `not_started`.

        Raise `AttemptInUse` if the attempt was started before, and `SpoolError` if the spool cannot be written.
        """

    def adopt(self, attempt_id: str) -> Handle | None:
        """Return the session of this attempt, live or ended, whoever started it; None if it never began."""

    def unarchived(self) -> list[str]:
        """Return the attempts that were not put away, also those of an earlier process."""

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """Send TERM to the agent's group, and KILL after `grace` seconds. Does not wait; may be called again."""

    def kill(self, handle: Handle) -> None:
        """Kill a session whose supervisor does not respond. When this returns, the session is `lost`."""

    async def wait_ended(self, timeout: float) -> list[Handle]:
        """Return ended sessions as soon as there is one, or an empty list after `timeout` seconds."""

    def sweep(self, keep: Collection[str]) -> dict[str, str]:
        """Stop live sessions of attempts not in `keep`, and kill processes that dead supervisors left behind.

        Return what was done, `stopped` or `killed`, by attempt.
        """

    def archive(self, handle: Handle) -> None:
        """Put the attempt away, now or when it has ended: its outcome is stored, and nobody need examine it again."""

    def close(self) -> None:
        """Release all resources. Sessions continue."""


@runtime_checkable
class OutputArchive(Protocol):
    """An executor that keeps the output of archived attempts, and can remove it."""

    def prune(self, limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        """Remove archived output that is beyond the limits. One call does a small piece of the work."""


# -- what the end of a session left ----------------------------------------------------------------


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
