"""A machine that runs sessions, as the engine uses it, what it reports of a session, and the leader's own machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from paceline.agents.dialect import RunSummary
from paceline.agents.launch import EnvironmentMemory
from paceline.core.signals import Signal
from paceline.detect import StreamReader
from paceline.executors import Executor, Handle
from paceline.executors.interface import DEFAULT_GRACE_SECONDS
from paceline.executors.session_end import output_problem
from paceline.hosts.jobs import Jobs
from paceline.hosts.messages import SessionOrder
from paceline.leadership.lease import LeaderLease
from paceline.store import Unit

LOCAL = ""
"""The name of the leader's own machine in a login."""


class SessionOutput(Protocol):
    """What a session says. `facts` are those known by now."""

    is_behind: bool
    """Whether the last read found something: there may be more."""
    is_catching_up: bool
    """Whether it reads what was printed before the session was adopted."""
    start_error: str | None
    """The class of the error for which it was never started, where a worker found it."""

    @property
    def facts(self) -> StreamReader | RunSummary: ...

    def read(self, now: float) -> list[Signal]:
        """Read what is new, or a piece of it. Returns the signals in it, dated when it was written."""

    def close(self, exit_code: int | None, seen_at: float) -> list[Signal]:
        """Read what was left open when the process ended, and conclude. Returns the last signals."""

    def output_problem(self, unit: Unit) -> str | None:
        """Return what is wrong with the file that the plan expects; None if it is there or none is expected."""


class LocalOutput:
    """The output of a session of this machine."""

    start_error: str | None = None

    def __init__(self, handle: Handle, provider: str, tz: str) -> None:
        self.facts = StreamReader(provider, tz=tz)
        self.is_behind = False
        self.is_catching_up = False
        self._handle = handle

    def read(self, now: float) -> list[Signal]:
        """Read one piece of the new output of each channel."""
        signals: list[Signal] = []
        self.is_behind = False
        for channel in self._handle.channels:
            if chunk := self._handle.read_new(channel):
                self.is_behind = True
                written_at = self._handle.written_at(channel)
                seen_at = now if written_at is None else min(written_at, now)
                signals += self.facts.feed(chunk, channel=channel, seen_at=seen_at)
        self.is_catching_up = self.is_catching_up and self.is_behind
        return signals

    def close(self, exit_code: int | None, seen_at: float) -> list[Signal]:
        return self.facts.close(exit_code=exit_code, seen_at=seen_at)

    def output_problem(self, unit: Unit) -> str | None:
        return output_problem(unit.spec.cwd, unit.spec.output, unit.begun_at or unit.started_at or 0.0)


class Host(Protocol):
    """One machine. A session is known by its attempt id."""

    @property
    def name(self) -> str:
        """The name in logins; empty for the leader's own machine."""

    @property
    def jobs(self) -> Jobs: ...

    @property
    def home(self) -> Path:
        """The folder of the machine that holds workspaces."""

    def start(self, order: SessionOrder) -> Handle:
        """Start a session. Raise as `SessionOrder.launch` and `Executor.start` do, where it is known at once."""

    def begin(self, order: SessionOrder) -> Handle:
        """Start a session, or return the one that was started before under the same attempt id."""

    def adopt(self, order: SessionOrder) -> Handle | None:
        """Return the session of the order if an earlier engine has started it; None if it is known that none has."""

    def output_of(self, handle: Handle, provider: str, tz: str) -> SessionOutput:
        """Return what the session prints, read into signals and facts."""

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None: ...

    def kill(self, handle: Handle) -> None: ...

    def archive(self, handle: Handle) -> None: ...


class LocalHost:
    """The leader's own machine: sessions are processes of its executor, and start only while the engine leads."""

    name = LOCAL

    def __init__(
        self, executor: Executor, jobs: Jobs, *, home: Path, environ: Mapping[str, str], lead: LeaderLease
    ) -> None:
        self.executor = executor
        self.jobs = jobs
        self.home = home
        self.environ = dict(environ)
        self._lead = lead
        self.environments = EnvironmentMemory()

    @property
    def user_home(self) -> str | None:
        """The home folder of the user that sessions run as."""
        return self.environ.get("HOME")

    def start(self, order: SessionOrder) -> Handle:
        """Start a session as a process."""
        launch = order.launch(
            self.environ,
            start_by=self._lead.trusted_until,
            make_environment=self.environments.session_environment,
        )
        self._lead.check()
        return self.executor.start(launch)

    def begin(self, order: SessionOrder) -> Handle:
        """Adopt the session of an earlier engine, or start it."""
        return self.adopt(order) or self.start(order)

    def adopt(self, order: SessionOrder) -> Handle | None:
        return self.executor.adopt(order.attempt_id)

    def output_of(self, handle: Handle, provider: str, tz: str) -> SessionOutput:
        return LocalOutput(handle, provider, tz)

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        self.executor.stop(handle, grace)

    def kill(self, handle: Handle) -> None:
        self.executor.kill(handle)

    def archive(self, handle: Handle) -> None:
        self.executor.archive(handle)
