"""The scripted executor: sessions without processes, for tests and simulations of the engine.

A function decides what each launch does, and a clock, which may be virtual, when. Sessions outlive their engine, as
real ones do under their supervisors: give the same executor to the next engine, and it adopts them.
"""

import asyncio
import itertools
import math
from collections.abc import Callable, Collection
from heapq import heappop, heappush

import msgspec

from paceline.clock import Clock
from paceline.core.values.session_output import Channel
from paceline.errors import AttemptInUse
from paceline.executors.interface import (
    DEFAULT_GRACE_SECONDS,
    Cause,
    Handle,
    Launch,
    SessionPhase,
    SessionState,
)
from paceline.executors.spool import PIECE_BYTES

TERMINATED = 15


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a session does: it prints `stdout` at once, more `later` (seconds after its start), and ends.

    With `seconds=math.inf` it runs until it is stopped. `not_started` is the reason why the agent could not start.
    """

    stdout: str = ""
    stderr: str = ""
    later: tuple[tuple[float, str], ...] = ()
    exit_code: int | None = 0
    signal: int | None = None
    seconds: float = 0.0
    stop_seconds: float = 0.0
    """How long it takes to end after a stop."""
    not_started: str = ""
    act: Callable[[], object] | None = None
    """Called when it ends by itself, for example to write its output."""


class _Session:
    """One session, live or ended. All its handles share it."""

    __slots__ = ("attempt_id", "cause", "ends_at", "has_acted", "is_archived", "launch", "phase", "run", "started_at")

    def __init__(self, launch: Launch, run: Run, now: float) -> None:
        self.attempt_id = launch.attempt_id
        self.launch: Launch | None = launch
        self.run = run
        self.started_at = now
        self.ends_at = now + run.seconds
        self.phase: SessionPhase = "not_started" if run.not_started else "ended"
        self.cause: Cause = "exit"
        self.has_acted = False
        self.is_archived = False
        if run.not_started:
            self.ends_at = now
        elif launch.timeout is not None and launch.timeout < run.seconds:
            self.ends_at, self.cause = now + launch.timeout, "timed_out"

    def state(self, now: float) -> SessionState:
        if now < self.ends_at:
            return SessionState(phase="running", pid=1, started_at=self.started_at)
        run = self.run
        if self.phase != "ended":
            return SessionState(phase=self.phase, started_at=self.started_at, message=run.not_started)
        by_itself = self.cause == "exit"
        if by_itself and run.act is not None and not self.has_acted:
            self.has_acted = True
            run.act()
        return SessionState(
            phase="ended",
            pid=1,
            exit_code=run.exit_code if by_itself and run.signal is None else None,
            signal=run.signal if by_itself else TERMINATED,
            cause=self.cause,
            started_at=self.started_at,
            ended_at=self.ends_at,
        )

    def output(self, channel: Channel, now: float) -> bytes:
        """Return everything that it has printed by now."""
        if channel != "stdout":
            return self.run.stderr.encode() if channel == "stderr" else b""
        if not self.run.later:
            return self.run.stdout.encode()
        return (self.run.stdout + "".join(text for _, text in self._printed_later(now))).encode()

    def written_at(self, now: float) -> float:
        """Return when it printed last."""
        return max((self.started_at + after for after, _ in self._printed_later(now)), default=self.started_at)

    def _printed_later(self, now: float) -> list[tuple[float, str]]:
        until = min(now, self.ends_at)
        return [each for each in self.run.later if self.started_at + each[0] <= until]


class ScriptedHandle:
    """A handle of a session. It reads the output from the start."""

    channels: tuple[Channel, ...] = ("stdout", "stderr")
    __slots__ = ("_clock", "_read", "attempt_id", "session")

    def __init__(self, session: _Session, clock: Clock) -> None:
        self.attempt_id = session.attempt_id
        self.session = session
        self._clock = clock
        self._read = {"stdout": 0, "stderr": 0}

    def state(self) -> SessionState:
        return self.session.state(self._clock.now())

    def read_new(self, channel: Channel) -> bytes:
        read = self._read.get(channel, 0)
        new = self.session.output(channel, self._clock.now())[read : read + PIECE_BYTES]
        if new:
            self._read[channel] = read + len(new)
        return new

    def written_at(self, channel: Channel) -> float | None:
        return self.session.written_at(self._clock.now())


class ScriptedExecutor:
    """An `Executor` whose sessions do what `script` returns for their launch.

        executor = ScriptedExecutor(lambda launch: Run(stdout="done", seconds=60.0), clock)

    `started` has all launches in order. With `remember=False` sessions are forgotten once they are archived.
    """

    def __init__(self, script: Callable[[Launch], Run], clock: Clock, *, remember: bool = True) -> None:
        self.script = script
        self.started: list[Launch] = []
        self.stopped: list[str] = []
        self._clock = clock
        self._remembers = remember
        self._sessions: dict[str, _Session] = {}
        self._ends: list[tuple[float, int, ScriptedHandle]] = []
        self._arrivals = itertools.count()
        self._changed = asyncio.Event()

    # -- the protocol ------------------------------------------------------------------------------

    def start(self, launch: Launch) -> Handle:
        if launch.attempt_id in self._sessions:
            raise AttemptInUse(f"attempt {launch.attempt_id} has been started before")
        session = _Session(launch, self.script(launch), self._clock.now())
        self._sessions[launch.attempt_id] = session
        if self._remembers:
            self.started.append(launch)
        return self._watched(session)

    def adopt(self, attempt: str) -> Handle | None:
        session = self._sessions.get(attempt)
        return None if session is None else self._watched(session)

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        session, now = self._sessions[handle.attempt_id], self._clock.now()
        if now >= session.ends_at or session.cause == "stopped":
            return
        self.stopped.append(handle.attempt_id)
        end = now + min(session.run.stop_seconds, grace)
        if end < session.ends_at:
            session.ends_at, session.cause = end, "stopped"
            self._watched(session)

    def kill(self, handle: Handle) -> None:
        self.lose(handle.attempt_id)

    async def wait_ended(self, timeout: float) -> list[Handle]:
        deadline = self._clock.now() + timeout
        while not (ended := self._take_ended()) and self._clock.now() < deadline:
            self._changed.clear()
            wake_at = min(deadline, self._ends[0][0] if self._ends else math.inf)
            timer = self._clock.call_at(wake_at, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
        return ended

    def sweep(self, keep: Collection[str]) -> dict[str, str]:
        done: dict[str, str] = {}
        for attempt in self.unarchived():
            if attempt not in keep:
                if attempt in self.live():
                    self.stop(ScriptedHandle(self._sessions[attempt], self._clock))
                    done[attempt] = "stopped"
                self._sessions[attempt].is_archived = True
        return done

    def archive(self, handle: Handle) -> None:
        session = self._sessions[handle.attempt_id]
        session.is_archived = True
        session.launch = None
        if not self._remembers:
            del self._sessions[handle.attempt_id]

    def close(self) -> None:
        """Do nothing: sessions continue without the engine."""

    # -- for tests: reading and disturbing sessions --------------------------------------------------

    def live(self) -> list[str]:
        """Return the attempts that are running, in the order of their start."""
        now = self._clock.now()
        return [attempt for attempt, session in self._sessions.items() if now < session.ends_at]

    def unarchived(self) -> list[str]:
        """Return the attempts whose result the engine has not stored."""
        return [attempt for attempt, session in self._sessions.items() if not session.is_archived]

    def lose(self, attempt: str) -> None:
        """Kill its supervisor: the session is gone, and how it ended is unknown."""
        session = self._sessions[attempt]
        if self._clock.now() < session.ends_at:
            session.ends_at, session.phase = self._clock.now(), "lost"
            self._watched(session)

    def ends_at(self, attempt: str) -> float:
        """Return when it ends or has ended, as far as known now."""
        return self._sessions[attempt].ends_at

    def print_output(self, attempt: str, text: str) -> None:
        """Let a session print something now, and continue."""
        session = self._sessions[attempt]
        printed = (self._clock.now() - session.started_at, text)
        later = tuple(sorted((*session.run.later, printed), key=lambda each: each[0]))
        session.run = msgspec.structs.replace(session.run, later=later)

    def cut(self, attempt: str, text: str, *, exit_code: int = 1, after: float = 0.0) -> None:
        """Let a session print something now, and end by itself `after` seconds later."""
        session, now = self._sessions[attempt], self._clock.now()
        if now < session.ends_at:
            printed = tuple(each for each in session.run.later if session.started_at + each[0] <= now)
            later = (*printed, (now - session.started_at, text))
            session.run = msgspec.structs.replace(session.run, later=later, exit_code=exit_code)
            session.ends_at = now + after
            self._watched(session)

    def reboot(self) -> None:
        """Lose every session at once."""
        for attempt in self.live():
            self.lose(attempt)

    def forget(self, attempt: str) -> None:
        """Remove a session as if it had never started."""
        self._sessions[attempt].ends_at = self._clock.now()
        del self._sessions[attempt]

    def _watched(self, session: _Session) -> ScriptedHandle:
        handle = ScriptedHandle(session, self._clock)
        heappush(self._ends, (session.ends_at, next(self._arrivals), handle))
        self._changed.set()
        return handle

    def _take_ended(self) -> list[Handle]:
        now = self._clock.now()
        ended: list[Handle] = []
        while self._ends and self._ends[0][0] <= now:
            handle = heappop(self._ends)[2]
            if handle.session.ends_at <= now and not handle.session.is_archived:
                ended.append(handle)
        return ended
