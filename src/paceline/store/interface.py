"""The values that the verbs of a store take and return. Never here: the verbs (`sql_store.py`)."""

from typing import Literal, NamedTuple

import msgspec

from paceline.core.unit_lifecycle import Counters, Transition, UnitState
from paceline.core.values.tickets import Deferred
from paceline.events import Event
from paceline.store.unit_result import GitSettings, SessionFacts, UnitResult

CampaignState = Literal["active", "paused", "cancelled"]
Phase = Literal["working", "checking", "delivering"]
"""What a running unit is at: its agent works, its check runs, or its change is delivered."""
Permissions = Literal["read", "edit", "full"]
OnDenied = Literal["hold", "done"]
OnLongPark = Literal["resume", "restart"]
WorkspaceKind = Literal["worktree", "copy"]
Keep = Literal["failed", "all", "none"]
Delivery = Literal["branch", "patch"]
Topic = Literal["commands", "leader"]
"""What another process changed: it sent commands or added units, or the leading engine resigned."""


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the workspaces of a campaign are made. Fields are named as in plan files."""

    kind: WorkspaceKind = "worktree"
    base: str = "HEAD"
    branch: str = "paceline/{campaign}/{id}"
    include: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    keep: Keep = "failed"
    root: str | None = None
    bases: dict[str, str] = {}
    """The commit that `base` meant when the plan was added, by the top folder of each repository."""
    git: dict[str, GitSettings] = {}
    """The settings of git at that time, by the top folder of each repository."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of units and how to run it. Fields are named as in plan files; times are in seconds."""

    name: str
    priority: int = 0
    max_sessions: int | None = None
    strategy: str = "rush"
    deadline: float | None = None
    agent: str = "command"
    model: str | None = None
    accounts: tuple[str, ...] = ()
    max_attempts: int = 3
    timeout: float | None = None
    command: tuple[str, ...] = ()
    permissions: Permissions | None = None
    """What the agent may do. None: what its CLI allows by default."""
    on_denied: OnDenied = "hold"
    """How an attempt ends whose agent was denied tools."""
    args: tuple[str, ...] = ()
    """Added to the agent's command line."""
    env: dict[str, str] = {}
    """Added to the session's environment. Never a secret."""
    env_pass: tuple[str, ...] = ()
    """Names or patterns of variables that are not withheld from the session."""
    env_strict: bool = False
    allow_metered: bool = False
    check: tuple[str, ...] = ()
    """Runs in the workspace after the agent ended well. Exit code 0 means that the work is verified."""
    check_timeout: float = 600.0
    check_rounds: int = 2
    """How often a failed check is fed back into the conversation."""
    check_prompt: str | None = None
    commit: bool = True
    """Whether the work in a worktree is committed to its branch."""
    deliver: Delivery | tuple[str, ...] = "branch"
    workspace: WorkspaceSettings | None = None
    """How each unit gets a folder of its own. None: units work in their `cwd` itself."""
    hosts: tuple[str, ...] = ()
    """Names or patterns of the hosts that may run it; `local` is the leader's own machine. Empty: all that can."""
    labels: tuple[str, ...] = ()
    """What a host must have, all of it, to run it."""
    patience: float = 1800.0
    """Seconds that a conversation waits for its host before it is given up."""
    on_long_park: OnLongPark = "resume"
    """Whether a unit with a large conversation starts over after a long park, in its workspace."""
    state: CampaignState = "active"
    pause_reason: str | None = None
    """Why it paused itself. None if a person paused it, or it is not paused."""
    created_at: float = 0.0


class UnitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work as the plan describes it. `id` is unique in its campaign."""

    id: str
    prompt: str = ""
    cwd: str = ""
    output: str | None = None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A stored unit. `id` is `campaign/unit`. `fence` grows with every claim; to record an outcome you need it.

    `begun_at` is the start of the first attempt of its conversation. `is_parked`: its `resume_at` is that of a quota
    window; else it backs off after a failure or a refusal.
    """

    id: str
    campaign: str
    spec: UnitSpec
    position: int
    state: UnitState = "todo"
    counters: Counters = Counters()
    resume_at: float | None = None
    reason: str | None = None
    account: str | None = None
    conversation_id: str | None = None
    attempt_id: str | None = None
    fence: int = 0
    lease_until: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    begun_at: float | None = None
    is_parked: bool = False
    denials: int = 0
    warnings: tuple[str, ...] = ()
    phase: Phase | None = None
    """None unless it runs."""
    result: UnitResult = UnitResult()
    resume_cost: int = 0
    """Tokens that its conversation will use until the unit is done: the cheapest on a login continues first."""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adding a plan. Units that differ from the stored ones are `updated`, or else `changed` and kept."""

    added: int = 0
    unchanged: int = 0
    changed: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()


class OutcomeRecord(SessionFacts, frozen=True, kw_only=True):
    """The outcome of one attempt, ready to store.

    The next attempt resumes `conversation_id`, or starts a new conversation if it is None. Without an `account` the
    unit keeps the account that the attempt was claimed for. A conversation is not kept if that is '', no account.
    """

    unit_id: str
    fence: int
    transition: Transition
    result: UnitResult | None = None
    """Everything known about the work of the unit by now. None keeps what is stored."""
    resume_cost: int = 0

    @property
    def is_parked(self) -> bool:
        """Whether the unit waits for a quota window."""
        transition = self.transition
        return transition.state == "todo" and transition.ending == "parked" and transition.resume_at is not None


class UnitTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Units by state. Parked units are among the `todo`."""

    todo: int = 0
    running: int = 0
    done: int = 0
    unverified: int = 0
    quarantined: int = 0
    held: int = 0
    cancelled: int = 0


class UnitCounts(UnitTotals, frozen=True, kw_only=True):
    """The number of units of a campaign in each state. Parked units are also counted as `todo`."""

    parked: int = 0

    @property
    def total(self) -> int:
        return self.todo + self.running + self.done + self.cancelled + self.stopped

    @property
    def stopped(self) -> int:
        return self.unverified + self.quarantined + self.held


class StoppedUnits(msgspec.Struct, frozen=True, kw_only=True):
    """Units of one campaign that wait for a person, all in one state and for one reason."""

    campaign: str
    state: UnitState
    reason: str | None
    units: int
    example: str
    """The id of one of them."""


class StoredEvent(msgspec.Struct, frozen=True):
    """An event and its position in the stream."""

    id: int
    event: Event


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list of units. `cursor` continues after them; it is None at the end.

    They come without their prompts, and without the long texts of their results (`UnitResult.without_texts`).
    """

    units: tuple[Unit, ...]
    cursor: str | None = None


class ProcessId(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that no later process can be mistaken for. A pid alone is reused.

    `machine` is set where several machines share a store: only that one can see whether the process is there.
    """

    pid: int
    start_ticks: int
    boot_id: str
    machine: str = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The lease of a slot whose holder is known only by its calls: a fencing token and an expiry.

    `key` is the caller's own name for its request. A repeated request with the same key returns the same slot.
    """

    token: int
    ttl: float
    expires_at: float
    key: str | None = None


class StoredSlot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slot of a program that the engine did not start, or its wait for one (`granted_at` is None).

    Its holder is a process of this machine (`holder`), or the client that renews `lease`. `waiting` is the refusal
    while it waits. `parent` is the ticket of the session that it belongs to.
    """

    id: str
    scopes: tuple[str, ...]
    priority: int = 0
    session: str | None = None
    parent: str | None = None
    since: float | None = None
    granted_at: float | None = None
    waiting: Deferred | None = None
    holder: ProcessId | None = None
    lease: Lease | None = None


class LeadLease(NamedTuple):
    """Who leads, and for how many seconds by its lease: 0 or less if that has run out."""

    owner: str
    seconds: float
