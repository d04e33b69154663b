"""What must survive, as verbs. Every verb is one transaction: all of it is stored, or none of it.

Implementations decide nothing: which unit may run, and what becomes of it, comes from the core.
They are synchronous and used from one thread at a time; several verbs are one transaction in `together`.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import msgspec

from paceline.core.unit_lifecycle import Counters, Transition, UnitState
from paceline.core.values.verdicts import Deferred
from paceline.events import Event

CampaignState = Literal["active", "paused", "cancelled"]


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and how it is to be run. Names as in plan files; times in seconds."""

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
    state: CampaignState = "active"
    created_at: float = 0.0


class UnitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work as the plan names it. `id` is unique in its campaign."""

    id: str
    prompt: str = ""
    cwd: str = ""
    output: str | None = None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A stored unit. `id` is `campaign/unit`; `fence` grows with every claim, and a transition must carry it."""

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


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What adding a plan did; `changed` units differ from the stored ones and were left, or `updated`."""

    added: int = 0
    unchanged: int = 0
    changed: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()


class OutcomeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One ended try to store. `conversation_id` is the conversation to resume, None to start afresh.

    Without `account` it is the one that the try was claimed for.
    """

    unit_id: str
    fence: int
    transition: Transition
    account: str | None = None
    conversation_id: str | None = None


class UnitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many units of a campaign are in each state; parked ones are among the todo."""

    todo: int = 0
    running: int = 0
    done: int = 0
    quarantined: int = 0
    held: int = 0
    cancelled: int = 0
    parked: int = 0


class StoredEvent(msgspec.Struct, frozen=True):
    """An event and its place in the stream."""

    id: int
    event: Event


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some units without their prompts, and the cursor that continues after them (None at the end)."""

    units: tuple[Unit, ...]
    cursor: str | None = None


class ProcessId(msgspec.Struct, frozen=True):
    """One process of one machine for ever: a pid alone is used again."""

    pid: int
    start_ticks: int
    boot_id: str


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a holder that is known by nothing but its calls has of its slot: a number and a time.

    `key` is the caller's own name for its request: asked again with it, it is told of the same slot.
    """

    token: int
    ttl: float
    expires_at: float
    key: str | None = None


class StoredSlot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slot of a program that the engine did not start, or its wait for one (`granted_at` is None).

    It is held by a process of this machine (`holder`), or by whoever renews its `lease`. `waiting` says what
    stands against it. `parent` is the ticket of the session that it belongs to.
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


class Store(Protocol):
    """The contract. `paceline.testing.store_contract` has the suite that every implementation passes."""

    def together(self) -> AbstractContextManager[None]:
        """What is written in the block is one transaction: where it raises, none of it is stored."""

    # campaigns
    def add_campaign(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Added:
        """Add a campaign, or more units to it, and `events` with them. Idempotent by unit id; done units stay done.

        Units that differ from the stored ones are named and left, unless `update` (never those that
        run or are done). The campaign's own settings are replaced; its state and age are kept.
        `InvalidInput`, and nothing is stored, for a name that cannot be one, the same unit twice, or
        text that is not Unicode.
        """

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        """The same a few milliseconds at a time, so that whoever shares the thread has its turn in between.

        Nothing of it is to be seen before the last step, which returns what was done; none of it where that never
        comes. `StoreBusy` where another process comes between.
        """

    def campaigns(self) -> list[Campaign]:
        """In the order they were added."""

    def set_campaign(self, campaign: Campaign) -> None:
        """Replace its settings and state; `UnknownName` if there is none."""

    def delete_campaign(self, name: str) -> None:
        """With all its units; refused (`IllegalStep`) while one of them runs."""

    def counts(self) -> dict[str, UnitCounts]:
        """Per campaign, at a cost that does not grow with the number of units."""

    # the life of a unit
    def claim_units(
        self, campaign: str, account: str, limit: int, *, attempt_ids: Sequence[str], lease_until: float, now: float
    ) -> list[Unit]:
        """Up to `limit` units that may run on the account now become `running`, in order.

        Those whose conversation lives on the account first, then in plan order; parked ones only once
        `wake_units` has woken them; never one whose conversation lives elsewhere. `attempt_ids` are the
        names of the attempt folders, one each. A claim counts as a try. The cost is flat in the number of
        units. A claim whose answer was lost shows in `running_units`, and its lease runs out.
        """

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        """Store how tries ended, all in one transaction. False for one whose fence is stale: it changes nothing.

        Idempotent: what is stored already, and is still so, is answered with True again.
        """

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        """Extend leases; the ids whose fence is stale come back."""

    def wake_units(self, *, now: float, limit: int = 10_000) -> int:
        """Parked units whose time has come may be claimed again, the earliest first.

        How many were woken; when it is `limit`, more may be due: a million at once would hold up the pass.
        """

    def wake_account(self, account: str, *, limit: int = 10_000) -> int:
        """Units parked on the account may be claimed now, for its window has reopened; how many, up to `limit`."""

    def hold_units(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        """Those of them that are todo wait for a person; how many."""

    def retry_units(self, campaign: str) -> int:
        """Held and quarantined units of the campaign become todo, with their counters at zero; how many."""

    def cancel_units(self, campaign: str, *, now: float) -> list[str]:
        """All that are not done; the ids of those that ran, for the engine to end."""

    def forget_conversation(self, unit_id: str) -> None:
        """The next try starts afresh, on any account."""

    # looking in
    def unit(self, unit_id: str) -> Unit | None:
        """All of it, with its prompt."""

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """By campaign in the order they were added, then in plan order; without prompts, which may be 1 MB each."""

    def running_units(self) -> list[Unit]:
        """All of them in the order of `units`, without prompts."""

    def next_resume_at(self) -> float | None:
        """When the first parked unit is due."""

    def claimable(self) -> dict[tuple[str, str | None], int]:
        """How many units could be claimed now, by campaign and the account their conversation is bound to."""

    # the engine's own
    def append_events(self, events: Sequence[Event]) -> int:
        """The id of the last one; ids are never used again."""

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        """Those with an id above `after`, oldest first."""

    def trim_events(self, *, keep: int) -> None:
        """Forget all but the last `keep`."""

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        """Slots of programs outside: add or replace the `kept`, then forget those whose ids are in `dropped`.

        All in one transaction. Ids that are not known are forgotten already. `InvalidInput` for text that is not
        Unicode. Where nothing is kept, a loss of power may bring back what was dropped: its lease runs out by itself.
        """

    def slots(self) -> list[StoredSlot]:
        """All of them, in the order in which they were first saved."""

    def slot(self, slot_id: str) -> StoredSlot | None:
        """One of them."""

    def save_state(self, key: str, value: bytes) -> None:
        """Replace what is kept under the key."""

    def load_state(self, key: str) -> bytes | None:
        """What was kept under the key."""

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        """Become or stay the one engine that decides; false while another one's lease runs."""

    def resign(self, owner: str) -> None:
        """Stop leading, if it is this owner that leads."""

    def close(self) -> None:
        """Let go of files; closing twice is harmless."""
