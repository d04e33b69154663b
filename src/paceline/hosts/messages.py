"""What is known of a host, and the values that the leading engine and a worker exchange, as JSON over HTTP.

Of a host: what it is and has, what it has left, whether it is there, and what is stored of it.

A worker only ever asks. It joins, then holds one request for orders open, and posts reports. Orders and reports are
numbered within one joining: each side repeats what the other has not confirmed, and ignores what it has seen. All
times are those of the leader's clock: a worker learns the difference from the answers. A `SessionOrder` has everything
that a machine needs to start a session but its own environment and files.
"""

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account, GatewayAddress
from paceline.agents.billing_check import refuse_billing
from paceline.agents.dialect import RunSummary
from paceline.agents.launch import EnvironmentRules, Task, prepare_session
from paceline.core.signals import AnySignal
from paceline.core.values.fields import fields_of
from paceline.executors.interface import Launch, OutputLimits, SessionState
from paceline.settings import LOCAL_HOST, HostSettings
from paceline.store import Store


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """An account as one host has it. `problem` says why no session can use it there."""

    account: str
    problem: str | None = None


class HostCli(msgspec.Struct, frozen=True, kw_only=True):
    """An agent CLI as one host has it. Without a `version` it is missing or does not answer; one may be unknown."""

    agent: str
    version: str | None = None
    path: str | None = None


class HostLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has left now. `leaves_at` is when its allocation ends, where it has one."""

    free_memory: int | None = None
    """Bytes that programs can still get."""
    free_disk: int | None = None
    load: float | None = None
    leaves_at: float | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is and has. It is reported when a worker joins, and again when it changes."""

    version: str
    """The version of Paceline."""
    machine: str
    """What identifies the machine (`leadership.election.this_machine`)."""
    hostname: str
    home: str
    """The folder of the worker: its spool, its workspaces, its copies of repositories."""
    user_home: str
    cpus: int
    memory: int
    labels: tuple[str, ...] = ()
    logins: tuple[Login, ...] = ()
    clis: tuple[HostCli, ...] = ()
    variables: dict[str, str] = {}
    """What may differ between machines and matters to agents: PATH, LANG, TZ and the like. Never a secret."""


END_VARIABLE = "SLURM_JOB_END_TIME"
"""The variable in which Slurm states when an allocation ends, in Unix seconds."""
_MEMINFO = Path("/proc/meminfo")


def read_load(home: Path, leaves_at: float | None = None) -> HostLoad:
    """Return what the host has left now."""
    free_disk = load = None
    with contextlib.suppress(OSError):
        found = os.statvfs(home)
        free_disk = found.f_bavail * found.f_frsize
    with contextlib.suppress(OSError):
        load = round(os.getloadavg()[0], 2)
    return HostLoad(free_memory=memory("MemAvailable"), free_disk=free_disk, load=load, leaves_at=leaves_at)


def memory(field: str) -> int | None:
    """Return a field of /proc/meminfo in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def allocation_end(environ: Mapping[str, str]) -> float | None:
    """Return when the allocation ends that this process runs in, where the environment states it."""
    try:
        return float(environ[END_VARIABLE])
    except (KeyError, ValueError):
        return None


Presence = Literal["absent", "joined", "silent", "lost", "leaving"]
"""`absent`: no worker has joined. `silent`: it has not answered for a while, and its sessions may run. `lost`: it has
been silent for so long that its sessions have ended. `leaving`: its worker ends, or its allocation does."""


class HostPresence(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a host is there, and what it runs. Times are wall time of the leader."""

    name: str
    presence: Presence = "absent"
    sessions: int = 0
    heard_at: float | None = None
    problem: str | None = None
    """Why its worker could not be started, where Paceline starts it."""


class HostState(HostPresence, frozen=True, kw_only=True):
    """One host at one moment."""

    fleet_name: str | None = None
    """What plans also call it: the name of the leader's own machine while it does not lead."""
    settings: HostSettings
    facts: HostFacts | None = None
    load: HostLoad = HostLoad()


HOSTS_STATE: Final = "hosts"


def known_hosts(store: Store) -> dict[str, HostSettings]:
    """Return the hosts that were added, by name."""
    stored = store.load_state(HOSTS_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, HostSettings])


def save_hosts(store: Store, hosts: Mapping[str, HostSettings]) -> None:
    """Keep these hosts in place of the present ones. Called in a transaction that has read those."""
    store.save_state(HOSTS_STATE, msgspec.json.encode(dict(hosts)))


JOINED_STATE: Final = "hosts_joined"
LOCAL_STATE: Final = "hosts_local"
"""The name of the machine in a fleet that logins without a host mean: that of the leader."""


class StoredHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the next leader must know of a host whose worker has joined."""

    worker: str
    host_lease: float | None
    """None for the machine of a leader: what it has started there runs until somebody serves the machine."""
    facts: HostFacts


def stored_host_states(store: Store, configured: Mapping[str, HostSettings]) -> list[HostState]:
    """Return the hosts as a process knows them that does not lead. Who is there now, only the leader knows."""
    settings = {**known_hosts(store), **configured}
    joined = stored_hosts(store)
    own = (LOCAL_HOST, local_machine(store))
    names = [name for name in dict.fromkeys((*settings, *joined)) if name not in own]
    return [
        HostState(
            name=name,
            settings=settings.get(name) or HostSettings(name=name),
            presence="silent" if name in joined else "absent",
            facts=joined[name].facts if name in joined else None,
        )
        for name in names
    ]


def stored_hosts(store: Store) -> dict[str, StoredHost]:
    """Return the hosts whose workers have joined, by their names."""
    stored = store.load_state(JOINED_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, StoredHost])


def local_machine(store: Store) -> str | None:
    """Return the machine of the fleet that logins without a host mean; None in a home of its own."""
    stored = store.load_state(LOCAL_STATE)
    return None if stored is None else stored.decode()


# -- messages ------------------------------------------------------------------------------------------------


class SessionOrder(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """One session, or one command of a plan, to start. An attempt that was started before is followed."""

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
    is_begun: bool = False
    """Whether it was ordered before: then it is not started, but read from its beginning, and reported."""

    @property
    def attempt_id(self) -> str:
        return self.task.attempt_id

    def launch(self, environ: Mapping[str, str], *, start_by: float = math.inf) -> Launch:
        """Return what an executor of this machine is to start.

        Raise `InvalidInput` if it cannot be started, and `WouldBillKey` if the CLI's own configuration would bill a key
        that the account does not allow.
        """
        task, profile, account = self.task, self.profile, self.account
        run = prepare_session(profile, task, account, environ, self.gateway, self.rules)
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


PROTOCOL = 2
"""Grows with every change after which an older worker or engine would misunderstand the other."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The first request of a worker. `worker` identifies its home, `facts` may still lack logins and CLIs."""

    worker: str
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


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End a session. Without a grace it is killed."""

    attempt_id: str
    grace: float | None


class Archive(msgspec.Struct, frozen=True, kw_only=True, tag="archive"):
    """Put a session away: its outcome is stored."""

    attempt_id: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True, tag="sweep"):
    """End every session that is not in `keep`."""

    keep: tuple[str, ...]


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Do a piece of work (`jobs.py`), and report its result under `call_id`."""

    call_id: str
    job: str
    arguments: msgspec.Raw
    leader: msgspec.Raw = msgspec.Raw(b"{}")
    """What the leader's repository adds."""


Order = SessionOrder | Stop | Archive | Sweep | Call
NumberedOrder = tuple[int, Order]


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
    report about a followed session, and no other, is about what was printed before.
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


Report = SessionReport | CallReport
NumberedReport = tuple[int, Report]


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """News of a worker. An empty list still says that it is there."""

    joining: str
    load: HostLoad
    facts: HostFacts | None = None
    """None if they are as they were reported before."""
    reports: tuple[NumberedReport, ...] = ()
    is_leaving: bool = False
    """Whether the worker ends: its sessions continue, and a new worker of the same home finds them."""


class ReportsTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the last report that was taken. The worker forgets those up to it."""

    now: float
    through: int
