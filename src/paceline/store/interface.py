"""The interface of a store: its verbs, and the values they take and return.

Every verb is one transaction: it is stored whole, or not at all. `together` makes several verbs one transaction.
Implementations are synchronous and are used from one thread at a time. Never here, and not in an implementation:
deciding which unit may run and what becomes of it. That comes from the core.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

import msgspec

from paceline.core.unit_lifecycle import Counters, Transition, UnitState
from paceline.core.values.tickets import Deferred
from paceline.events import Event
from paceline.store.spend import BatchId, ClientKey, HashedKey, SpendRow
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


class Store(Protocol):
    """The verbs of a store. Every implementation passes the suite in `paceline.testing.store_contract`."""

    is_shared: bool
    """Whether engines on several machines may use the store. One leads, by its lease; the others stand by."""

    def together(self) -> AbstractContextManager[None]:
        """Make all writes in the block one transaction. If the block raises, none of them is stored."""

    # campaigns
    def add_campaign(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Added:
        """Add a campaign, or more units to it, together with `events`. Idempotent by unit id; done units stay done.

        Units that differ from the stored ones are listed and kept. With `update` they are replaced, except those that
        run or are done. The campaign's settings are replaced; its state and age are kept. Raise `InvalidInput` and
        store nothing if the name is not valid, a unit comes twice, or text is not Unicode.
        """

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        """Add a campaign as `add_campaign` does, in steps of a few milliseconds, so that others can use the thread.

        Nothing is visible before the last step, which returns the result. If it is never reached, nothing is stored.
        Raise `StoreBusy` if another process adds to the campaign meanwhile.
        """

    def campaigns(self) -> list[Campaign]:
        """Return all campaigns in the order they were added."""

    def set_campaign(self, campaign: Campaign) -> None:
        """Replace the settings and the state of a campaign. Raise `UnknownName` if it does not exist."""

    def delete_campaign(self, name: str) -> None:
        """Delete a campaign and all its units. Raise `IllegalStep` while one of them runs."""

    def counts(self) -> dict[str, UnitCounts]:
        """Return the counts of each campaign. The cost does not grow with the number of units."""

    # the life cycle of units
    def claim_units(
        self,
        campaign: str,
        account: str,
        limit: int,
        *,
        attempt_ids: Sequence[str],
        lease_until: float,
        now: float,
        only_bound: bool = False,
    ) -> list[Unit]:
        """Move up to `limit` units of the campaign that may run on the account from `todo` to `running`.

        Units whose conversation lives on the account come first, then, unless `only_bound`, those without one in plan
        order. A unit whose conversation lives on another account is never claimed, and a parked one only after
        `wake_units` woke it. Each unit gets one of `attempt_ids` and the phase `working`, and the claim counts as an
        attempt. The cost does not grow with the number of units. If the result of a claim is lost, the units show in
        `running_units` and their leases run out.
        """

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        """Store the outcomes and results of attempts in one transaction. Return False for each whose fence is stale.

        A stale outcome changes nothing. Recording an outcome again returns True as long as it is still current. The
        outcome of an attempt whose unit was cancelled while it ran ends its lease, and what it has used is stored.
        """

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        """Store what a running unit is at and what is known of its work. None keeps what is stored.

        Return False, and store nothing, if the fence is stale or the unit does not run.
        """

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        """Extend the leases of running units. Return the ids whose fence is stale."""

    def wake_units(
        self, *, now: float = 0.0, account: str | None = None, campaign: str | None = None, limit: int = 10_000
    ) -> int:
        """Make due units without a lease claimable, the earliest first. Return how many; at `limit` more may be due.

        With an `account`, whose window reopened, those that are parked on it instead, of one `campaign` or of all.
        Units that back off stay where they are then: no window holds them.
        """

    def rename_account(self, campaign: str, before: str, after: str) -> int:
        """Give the units of the campaign on one account another account, with their conversations. Return how many."""

    def hasten_units(self, resume_times: Mapping[str, float], *, set_back_to: float | None = None) -> int:
        """Let waiting units that resume later than the given times resume at those times. Others stay as they are.

        If the clock was set back, each unit that backs off since a later time begins its wait then, with its length.
        Units that are parked for a window keep their time. Return how many begin their wait again.
        """

    def move_units(self, unit_ids: Sequence[str], to: Literal["held", "done"], reason: str, *, now: float) -> int:
        """Move the given `todo` units to `held`, or the `unverified` ones to `done`. Return how many moved."""

    def retry_units(self, campaign: str, unit_ids: Sequence[str] | None = None, *, also_cancelled: bool = False) -> int:
        """Move held, quarantined and unverified units of the campaign to `todo`, or also the cancelled ones.

        Return how many moved. Their counters are reset and their checks forgotten; the rest of their results is kept.
        `unit_ids` chooses among those of the campaign; None means all. One with a lease waits for its end.
        """

    def cancel_units(self, campaign: str, unit_ids: Sequence[str] | None = None, *, now: float) -> list[str]:
        """Cancel all units, or the given ones, that are not done. Return those that ran: they keep their leases."""

    def forget_conversation(self, unit_id: str) -> None:
        """Let the next attempt of the unit start over: a new conversation on any account, in a new workspace.

        What its attempts have used stays in its result; its work is forgotten. A parked unit is woken.
        """

    # reading units
    def unit(self, unit_id: str) -> Unit | None:
        """Return the unit with its prompt and its whole result, or None."""

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        bound_to: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Return one page of units without long texts: prompts may be 1 MB each, answers and checks many kB.

        The order is by campaign as they were added, then as in the plan. With `bound_to`, only claimable units whose
        conversation lives on that account, in the order of a claim and without a cursor: the cost does not grow.
        """

    def running_units(self, *, also_cancelled: bool = False) -> list[Unit]:
        """Return all running units in the order of `units`, without prompts, with their whole results.

        Or also those that were cancelled while they ran, and whose attempts have not ended: they keep their leases.
        """

    def next_resume_at(self) -> float | None:
        """Return when the first parked unit is due. One that has a lease is not."""

    def stopped_units(self, *, limit: int) -> list[StoppedUnits]:
        """Return the units that wait for a person by campaign, state and reason, the most frequent first."""

    def claimable(self) -> dict[tuple[str, str | None], int]:
        """Count the claimable units by campaign and by the account that their conversation is bound to."""

    # the engine's own records
    def append_events(self, events: Sequence[Event]) -> int:
        """Append events. Return the id of the last one. Ids are never reused."""

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        """Return events with an id above `after`, oldest first. One that is damaged is logged and left out."""

    def trim_events(
        self,
        *,
        keep: int | None = None,
        keep_slots: int | None = None,
        before: float | None = None,
        through: int = 0,
        limit: int = 1000,
    ) -> int:
        """Delete all events but the last `keep`; of those about slots of programs all but `keep_slots`, or `keep`.

        With `before`, delete the oldest that are from before that time, at most `limit`, and none with an id above
        `through`. Return how many were that old; if it is `limit`, more may be left.
        """

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        """Add or replace the slots in `kept`, then delete the slots whose ids are in `dropped`, in one transaction.

        Unknown ids in `dropped` are ignored. Raise `InvalidInput` for text that is not Unicode. If `kept` is empty, a
        loss of power may bring back dropped slots; their leases run out by themselves.
        """

    def slots(self, slot_id: str | None = None) -> list[StoredSlot]:
        """Return all slots in the order they were first saved, or the one with the id.

        One that is damaged is logged and left out.
        """

    def client_keys(self) -> list[HashedKey]:
        """Return all keys of clients as they were created, also revoked ones. A damaged one is logged and left out."""

    def create_client_key(self, key: ClientKey, digest: str) -> None:
        """Store a key with the digest of its text. Raise `IllegalStep` if one that is not revoked has the name."""

    def revoke_client_key(self, name: str, *, now: float) -> ClientKey:
        """Revoke the key of that name, and return it. Raise `UnknownName` if there is none that is not revoked."""

    def save_state(self, key: str, value: bytes) -> None:
        """Save a value under the key, in place of an earlier one."""

    def load_state(self, key: str) -> bytes | None:
        """Return the value saved under the key, or None."""

    # what calls of the gateway cost
    def add_spend(self, rows: Sequence[SpendRow], batch: BatchId | None = None) -> None:
        """Add to the sums of the gateway, in one transaction. No-op if the batch, or a later one, was added before.

        So a writer that has seen a time-out can repeat its batch, whether it was written or not.
        """

    def spend(self, *, since: str = "", key: str | None = None, by_model: bool = True) -> list[SpendRow]:
        """Return the sums (of one key) from that day on, `2026-11-16`, in order of day, key, account and model.

        Without `by_model` they are those of all models, and `model` is ''.
        """

    # the lead
    def lead(self, owner: str, *, until: float, now: float) -> bool:
        """Take or keep the lead among engines, for `until - now` seconds. Return False while another's lease runs.

        A shared store counts those seconds on its own clock. It also fences: once another engine has taken the lead,
        every write through this object raises `LeadLost`, until `resign` was called.
        """

    def leader(self, *, now: float) -> LeadLease | None:
        """Return who took the lead last and has not resigned, also if its lease has run out."""

    def resign(self, owner: str) -> None:
        """Give up the lead, if this owner has it."""

    def subscribe(self, on_change: Callable[[Topic], object]) -> Callable[[], None]:
        """Call `on_change` when another process changed something, until the returned function is called.

        It is called from another thread, once the change can be read; it must be quick and use no verb of the store.
        After each connection, every topic is called once, as something may have been missed. SQLite never calls: its
        engines poll at every heartbeat.
        """

    def check(self) -> None:
        """Raise `StoreDamaged` if anything in the store cannot be read. It reads all of it."""

    def close(self) -> None:
        """Close files. Closing twice is harmless."""
