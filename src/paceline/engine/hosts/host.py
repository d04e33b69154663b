"""A machine that runs sessions, as the engine uses it, and the leader's own machine as one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from paceline.agents.session_environment import EnvironmentMemory
from paceline.engine.background_jobs import Job
from paceline.engine.leader_lease import LeaderLease
from paceline.engine.session_output import LocalOutput, SessionOutput
from paceline.executors import Executor, Handle
from paceline.executors.interface import DEFAULT_GRACE_SECONDS
from paceline.hosts.session_order import SessionOrder

Value = TypeVar("Value")

LOCAL = ""
"""The name of the leader's own machine in a login."""


class Jobs(Protocol):
    """Blocking work, such as git, on one machine."""

    def start(self, work: Callable[..., Value], *arguments: object) -> Job[Value]: ...


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
        self._environ = dict(environ)
        self._lead = lead
        self._environments = EnvironmentMemory()

    @property
    def user_home(self) -> str | None:
        """The home folder of the user that sessions run as."""
        return self._environ.get("HOME")

    def start(self, order: SessionOrder) -> Handle:
        """Start a session as a process."""
        launch = order.launch(
            self._environ,
            start_by=self._lead.trusted_until,
            make_environment=self._environments.session_environment,
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
