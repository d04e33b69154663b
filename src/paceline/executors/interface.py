"""What the engine asks of a way to run sessions, and what it gets back.

Here: values and two protocols. Never here: a process, a file, or what becomes of a unit.

An executor serves one event loop and hundreds of sessions without a thread or a task for each. Output is
looked for once per heartbeat (`Handle.read_new`: a `stat` where there is nothing new). Ends do not wait for
the heartbeat: `Executor.wait_ended` sleeps on one epoll that holds a pidfd of every supervisor. A pidfd needs no
parenthood, so it works the same for sessions that an earlier engine started; it fires for a supervisor that was
killed as well as for one that ended, where a message (a fifo, a socket) would never be sent; and it cannot
mean another process than the one it was opened for. Where none can be had (too many open files), the heartbeat
finds the end by the lock.
"""

from collections.abc import Collection
from typing import Literal, Protocol

import msgspec

from paceline.detect.stream import Channel

Phase = Literal["running", "ended", "not_started", "lost"]
"""`not_started`: the agent never ran. `lost`: it is gone, and nobody was there to see how it ended."""
Cause = Literal["exit", "stopped", "terminated", "timed_out", "stalled"]
"""Why it ended: by itself, by `stop`, by a TERM that the engine did not ask for (a shutdown), or for being late."""

DEFAULT_GRACE_SECONDS = 10.0


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One session to start. The attempt's name is used once, ever."""

    attempt_id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdin: bytes = b""
    timeout: float | None = None
    stall: float | None = None
    """No output and next to no CPU for so many seconds is the end of it."""
    grace: float = DEFAULT_GRACE_SECONDS
    """How long TERM may take at a time-out or a stall before KILL."""
    terminal: bool = False
    """Whether it needs a terminal, for an agent that has no headless mode; `stdin` is then typed at the start."""


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session. Times are wall time; what is not known is None."""

    phase: Phase
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
        """Whether nothing of it runs any more."""
        return self.phase != "running"

    @property
    def shell_code(self) -> int | None:
        """The exit code as a shell would tell it: 128 + N for signal N."""
        return 128 + self.signal if self.signal is not None else self.exit_code


class Handle(Protocol):
    """One session, live or over."""

    @property
    def attempt_id(self) -> str: ...

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels it writes to."""

    def state(self) -> SessionState:
        """What it does now; cheap enough for every heartbeat."""

    def read_new(self, channel: Channel) -> bytes:
        """The output since the last call, a bounded piece at a time; empty when there is nothing new.

        A new handle reads from the beginning. Output that was dropped is told by a line in its place.
        """


class Stray(msgspec.Struct, frozen=True, kw_only=True):
    """Something that ran and was nobody's, and what was done about it."""

    attempt_id: str
    pids: tuple[int, ...]
    action: Literal["stopped", "killed"]


class Executor(Protocol):
    """A way to run sessions."""

    def start(self, launch: Launch) -> Handle:
        """Starts it. What keeps the agent from running is told by the handle's state, `not_started`.

        `AttemptInUse` if the attempt was started before; `SpoolError` if nothing can be written.
        """

    def adopt(self, attempt_id: str) -> Handle | None:
        """The session of this attempt, live or over, whoever started it. None: it never began."""

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """TERM to the agent's group, and KILL after `grace` seconds. Does not wait; may be called again."""

    def kill(self, handle: Handle) -> None:
        """The last resort, for a supervisor that does not answer: the session is over when this returns, and lost."""

    async def wait_ended(self, timeout: float) -> list[Handle]:
        """Those that ended, as soon as one has; an empty list when the time is over."""

    def sweep(self, keep: Collection[str]) -> list[Stray]:
        """Stops live sessions of attempts not in `keep`, and kills what dead supervisors left behind."""

    def archive(self, handle: Handle, *, keep_output: bool = True) -> None:
        """The engine has stored the result: the attempt leaves the ones to look after at a restart."""

    def close(self) -> None:
        """Lets go of everything; sessions go on."""
