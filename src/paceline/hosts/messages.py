"""The values that the leading engine and a worker exchange, as JSON over HTTP.

A worker only ever asks. It joins, then holds one request for orders open, and posts reports. Orders and reports are
numbered within one joining: each side repeats what the other has not confirmed, and ignores what it has seen. All
times are those of the leader's clock: a worker learns the difference from the answers. A `SessionOrder` has everything
that a machine needs to start a session but its own environment and files.
"""

import math
from collections.abc import Mapping

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account, GatewayAddress
from paceline.agents.billing_check import refuse_billing
from paceline.agents.dialect import RunSummary
from paceline.agents.launch import EnvironmentRules, MakeEnvironment, Task, prepare_session, session_environment
from paceline.core.signals import AnySignal
from paceline.core.values.fields import fields_of
from paceline.executors.interface import Launch, OutputLimits, SessionState
from paceline.hosts.values import HostFacts, HostLoad


class SessionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One session, or one command of a plan, to start."""

    profile: AgentProfile
    task: Task
    account: Account | None = None
    rules: EnvironmentRules = EnvironmentRules()
    timeout: float | None = None
    stall: float | None = None
    gateway: GatewayAddress | None = None
    """Where it makes its calls if its account says so. To a worker it goes with the key of that account alone, and the
    worker puts its own way to the leader in place of the URL."""
    output: str | None = None
    """The file that the plan expects, which must have been written since `begun_at`."""
    begun_at: float | None = None
    is_command: bool = False
    """Whether it is a setup, a check or a delivery of the plan, whose output is recorded as a terminal shows it."""

    @property
    def attempt_id(self) -> str:
        return self.task.attempt_id

    def launch(
        self,
        environ: Mapping[str, str],
        *,
        start_by: float = math.inf,
        make_environment: MakeEnvironment = session_environment,
    ) -> Launch:
        """Return what an executor of this machine is to start.

        Raise `InvalidInput` if it cannot be started, and `WouldBillKey` if the CLI's own configuration would bill a key
        that the account does not allow.
        """
        task, profile, account = self.task, self.profile, self.account
        run = prepare_session(profile, task, account, environ, self.gateway, self.rules, make_environment)
        if not self.is_command:
            refuse_billing(profile, account, run, self.rules, model=task.model)
        return Launch(
            attempt_id=task.attempt_id,
            **fields_of(Launch, run),
            timeout=self.timeout,
            terminal=not self.is_command and profile.stream == "screen",
            stall=self.stall,
            start_by=start_by,
            merged=self.is_command,
        )


PROTOCOL = 1
"""Grows with every change after which an older worker or engine would misunderstand the other."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The first request of a worker. `worker` identifies its home, `facts` may still lack logins and CLIs."""

    worker: str
    pid: int
    facts: HostFacts
    protocol: int = PROTOCOL
    attempts: tuple[str, ...] = ()
    """The sessions that run or have ended here and that no leader has put away."""


class ProbedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account that a worker looks for: which agents use it, and how. It holds no secret."""

    account: str
    provider: str
    env: dict[str, str] = {}
    key_env: str | None = None
    agents: tuple[str, ...] = ()
    needs_login: bool = True
    """Whether its sessions use a login or a key of the host. Those that call the gateway do not."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know of the settings of its leader."""

    accounts: tuple[ProbedAccount, ...] = ()
    agents: tuple[str, ...] = ()
    programs: dict[str, str] = {}
    """The programs of agents that are not shipped with Paceline, by agent."""
    output: OutputLimits = OutputLimits()
    """How much output of ended sessions the host keeps."""


class Joined(WorkerSettings, frozen=True, kw_only=True):
    """The answer to a worker that joined. `joining` names this joining in all later requests."""

    joining: str
    leader: str
    """The owner that leads. A worker that has joined another one forgets the orders of the one before."""
    host_lease: float
    """Seconds without an answer after which the worker ends its sessions."""
    now: float


# -- orders --------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Start a session. An attempt that was started before is followed."""

    session: SessionOrder


class Follow(msgspec.Struct, frozen=True, kw_only=True, tag="follow"):
    """Read a session from its beginning, and report it."""

    attempt_id: str
    provider: str
    """The name by which its output is read; empty for a command of a plan, whose last output is reported."""
    cwd: str = ""
    output: str | None = None
    begun_at: float | None = None


def follow_of(order: SessionOrder) -> Follow:
    """Return the order to follow a session that was ordered before."""
    return Follow(
        attempt_id=order.attempt_id,
        provider="" if order.is_command else order.profile.provider,
        cwd=order.task.cwd,
        output=order.output,
        begun_at=order.begun_at,
    )


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    attempt_id: str
    grace: float


class Kill(msgspec.Struct, frozen=True, kw_only=True, tag="kill"):
    attempt_id: str


class Archive(msgspec.Struct, frozen=True, kw_only=True, tag="archive"):
    """Put a session away: its outcome is stored."""

    attempt_id: str
    keep_output: bool = True


class Sweep(msgspec.Struct, frozen=True, kw_only=True, tag="sweep"):
    """End every session that is not in `keep`."""

    keep: tuple[str, ...]


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Do a piece of work (`jobs.py`), and report its result under `call_id`."""

    call_id: str
    job: str
    arguments: msgspec.Raw


Order = Start | Follow | Stop | Kill | Archive | Sweep | Call


class NumberedOrder(msgspec.Struct, frozen=True):
    number: int
    order: Order


class OrdersRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for orders above `after`, waiting up to `wait` seconds for one."""

    joining: str
    after: int = 0
    wait: float = 0.0


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    orders: tuple[NumberedOrder, ...] = ()


# -- reports -------------------------------------------------------------------------------------------------


class SessionReport(msgspec.Struct, frozen=True, kw_only=True, tag="session", omit_defaults=True):
    """What became of a session since the last report. `state` is None if the host has never started it.

    A report with a state that is over is the last one: all output was read, and `summary.outcome` is known. The first
    report after `Follow`, and no other, is about what was printed before.
    """

    attempt_id: str
    state: SessionState | None
    summary: RunSummary = RunSummary()
    signals: tuple[AnySignal, ...] = ()
    is_catching_up: bool = False
    """Whether it is about what was printed before the session was followed."""
    tail: str = ""
    """The end of the output of a plan's command, when it is over."""
    output_problem: str | None = None
    """What is wrong with the file that the plan expects, when it is over."""
    error: str | None = None
    """The class of the error for which it was not started; its text is the message of the state."""


class CallReport(msgspec.Struct, frozen=True, kw_only=True, tag="call", omit_defaults=True):
    """The result of a call, or the name and the text of the error that it raised."""

    call_id: str
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    text: str = ""
    is_campaigns: bool = False
    """Whether a `WorkspaceError` concerns the whole campaign."""


class FactsReport(msgspec.Struct, frozen=True, kw_only=True, tag="facts"):
    facts: HostFacts


Report = SessionReport | CallReport | FactsReport


class NumberedReport(msgspec.Struct, frozen=True):
    number: int
    report: Report


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """News of a worker. An empty list still says that it is there."""

    joining: str
    load: HostLoad
    reports: tuple[NumberedReport, ...] = ()
    is_leaving: bool = False
    """Whether the worker ends: its sessions continue, and a new worker of the same home finds them."""


class ReportsTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the last report that was taken. The worker forgets those up to it."""

    now: float
    through: int
