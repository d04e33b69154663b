"""A store that is made of tables: every verb of the interface, handed to the table that carries it out.

Here: the verbs, and what each kind of table provides. Never here: how something is stored.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.events import Event
from paceline.store.client_keys import ClientKey, HashedKey
from paceline.store.interface import (
    Added,
    Campaign,
    OutcomeRecord,
    Page,
    Phase,
    StoredEvent,
    StoredSlot,
    Topic,
    Unit,
    UnitCounts,
    UnitSpec,
)
from paceline.store.spend import SpendRow
from paceline.store.stopped_units import StoppedUnits
from paceline.store.unit_result import UnitResult


class Transactions(Protocol):
    """What all tables of a store share."""

    def together(self) -> AbstractContextManager[None]: ...
    def check(self) -> None: ...
    def close(self) -> None: ...


class CampaignTable(Protocol):
    def add(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Added: ...
    def add_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Generator[None, None, Added]: ...
    def all(self) -> list[Campaign]: ...
    def set(self, campaign: Campaign) -> None: ...
    def delete(self, name: str) -> None: ...
    def counts(self) -> dict[str, UnitCounts]: ...


class LifecycleTable(Protocol):
    """The engine's verbs for units."""

    def claim(
        self,
        campaign: str,
        account: str,
        limit: int,
        *,
        attempt_ids: Sequence[str],
        lease_until: float,
        now: float,
        only_bound: bool = False,
    ) -> list[Unit]: ...
    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]: ...
    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool: ...
    def renew(self, fences: dict[str, int], *, lease_until: float) -> list[str]: ...
    def wake(self, *, now: float, limit: int) -> int: ...
    def wake_account(self, account: str, *, limit: int, campaign: str | None = None) -> int: ...
    def rename_account(self, campaign: str, before: str, after: str) -> int: ...
    def shorten_backoffs(self, *, now: float) -> int: ...
    def hasten(self, resume_times: Mapping[str, float]) -> None: ...
    def find(self, unit_id: str) -> Unit | None: ...
    def page(self, campaign: str | None, state: UnitState | None, limit: int, cursor: str | None) -> Page: ...
    def running(self) -> list[Unit]: ...
    def next_resume_at(self) -> float | None: ...
    def stopped(self, *, limit: int) -> list[StoppedUnits]: ...
    def claimable(self) -> dict[tuple[str, str | None], int]: ...
    def bound(self, campaign: str, account: str, *, limit: int) -> list[str]: ...


class OperatorTable(Protocol):
    """What a person does to units."""

    def hold(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int: ...
    def retry(self, campaign: str, unit_ids: Sequence[str] | None) -> int: ...
    def revive(self, campaign: str, unit_ids: Sequence[str] | None, *, resume_at: float) -> int: ...
    def accept(self, campaign: str, unit_ids: Sequence[str], *, now: float) -> int: ...
    def cancel(self, campaign: str, unit_ids: Sequence[str] | None, *, now: float) -> list[str]: ...
    def forget_conversation(self, unit_id: str) -> None: ...


class EventTable(Protocol):
    def append(self, events: Sequence[Event]) -> int: ...
    def read(self, after: int, limit: int, unit: str | None) -> list[StoredEvent]: ...
    def trim(self, *, keep: int, keep_slots: int) -> None: ...
    def prune(self, *, before: float, through: int, limit: int) -> int: ...


class ExternalSlotTable(Protocol):
    def save(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None: ...
    def all(self) -> list[StoredSlot]: ...
    def find(self, slot_id: str) -> StoredSlot | None: ...


class SpendTable(Protocol):
    def add(self, rows: Sequence[SpendRow]) -> None: ...
    def read(self, since: str, key: str | None) -> list[SpendRow]: ...


class ClientKeyTable(Protocol):
    def create(self, key: ClientKey, digest: str) -> None: ...
    def revoke(self, name: str, *, now: float) -> ClientKey: ...
    def all(self) -> list[HashedKey]: ...


class StateTable(Protocol):
    def save(self, key: str, value: bytes) -> None: ...
    def load(self, key: str) -> bytes | None: ...
    def lead(self, owner: str, *, until: float, now: float) -> bool: ...
    def leader(self) -> str | None: ...
    def lease_left(self, *, now: float) -> float | None: ...
    def while_leading(self, owner: str) -> AbstractContextManager[None]: ...
    def resign(self, owner: str) -> None: ...


class ChangeSource(Protocol):
    """Where a process receives changes by others."""

    def subscribe(self, on_change: Callable[[Topic], object]) -> Callable[[], None]: ...
    def close(self) -> None: ...


class NoChangeSource:
    """For stores that announce nothing."""

    def subscribe(self, on_change: Callable[[Topic], object]) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        pass


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of a store."""

    campaigns: CampaignTable
    units: LifecycleTable
    control: OperatorTable
    events: EventTable
    slots: ExternalSlotTable
    spend: SpendTable
    state: StateTable
    client_keys: ClientKeyTable
    changes: ChangeSource = NoChangeSource()


class TableStore:
    """`Store` over tables."""

    is_shared = False

    def __init__(self, transactions: Transactions, tables: Tables) -> None:
        self._transactions = transactions
        self._campaigns = tables.campaigns
        self._units = tables.units
        self._control = tables.control
        self._events = tables.events
        self._slots = tables.slots
        self._spend = tables.spend
        self._state = tables.state
        self._client_keys = tables.client_keys
        self._changes = tables.changes
        self._ending = ExitStack()
        self._ending.callback(transactions.close)
        self._ending.callback(tables.changes.close)

    def together(self) -> AbstractContextManager[None]:
        return self._transactions.together()

    def check(self) -> None:
        self._transactions.check()

    def subscribe(self, on_change: Callable[[Topic], object]) -> Callable[[], None]:
        return self._changes.subscribe(on_change)

    def close(self) -> None:
        self._ending.close()

    # -- campaigns ----------------------------------------------------------------------------------

    def add_campaign(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Added:
        return self._campaigns.add(campaign, units, update=update, now=now, events=events)

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        return self._campaigns.add_in_steps(campaign, units, update=update, now=now, events=events)

    def campaigns(self) -> list[Campaign]:
        return self._campaigns.all()

    def set_campaign(self, campaign: Campaign) -> None:
        self._campaigns.set(campaign)

    def delete_campaign(self, name: str) -> None:
        self._campaigns.delete(name)

    def counts(self) -> dict[str, UnitCounts]:
        return self._campaigns.counts()

    # -- the life cycle of units --------------------------------------------------------------------

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
        return self._units.claim(
            campaign,
            account,
            limit,
            attempt_ids=attempt_ids,
            lease_until=lease_until,
            now=now,
            only_bound=only_bound,
        )

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        return self._units.record_outcomes(records, now=now)

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        return self._units.save_progress(unit_id, fence, phase=phase, result=result)

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        return self._units.renew(fences, lease_until=lease_until)

    def wake_units(self, *, now: float, limit: int = 10_000) -> int:
        return self._units.wake(now=now, limit=limit)

    def wake_account(self, account: str, *, limit: int = 10_000, campaign: str | None = None) -> int:
        return self._units.wake_account(account, limit=limit, campaign=campaign)

    def rename_account(self, campaign: str, before: str, after: str) -> int:
        return self._units.rename_account(campaign, before, after)

    def shorten_backoffs(self, *, now: float) -> int:
        return self._units.shorten_backoffs(now=now)

    def hasten_units(self, resume_times: Mapping[str, float]) -> None:
        self._units.hasten(resume_times)

    def hold_units(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        return self._control.hold(unit_ids, reason, now=now)

    def retry_units(self, campaign: str, unit_ids: Sequence[str] | None = None) -> int:
        return self._control.retry(campaign, unit_ids)

    def revive_units(self, campaign: str, unit_ids: Sequence[str] | None = None, *, resume_at: float) -> int:
        return self._control.revive(campaign, unit_ids, resume_at=resume_at)

    def accept_units(self, campaign: str, unit_ids: Sequence[str], *, now: float) -> int:
        return self._control.accept(campaign, unit_ids, now=now)

    def cancel_units(self, campaign: str, unit_ids: Sequence[str] | None = None, *, now: float) -> list[str]:
        return self._control.cancel(campaign, unit_ids, now=now)

    def forget_conversation(self, unit_id: str) -> None:
        self._control.forget_conversation(unit_id)

    # -- reading units ------------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit | None:
        return self._units.find(unit_id)

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        return self._units.page(campaign, state, limit, cursor)

    def running_units(self) -> list[Unit]:
        return self._units.running()

    def next_resume_at(self) -> float | None:
        return self._units.next_resume_at()

    def stopped_units(self, *, limit: int) -> list[StoppedUnits]:
        return self._units.stopped(limit=limit)

    def claimable(self) -> dict[tuple[str, str | None], int]:
        return self._units.claimable()

    def bound_units(self, campaign: str, account: str, *, limit: int) -> list[str]:
        return self._units.bound(campaign, account, limit=limit)

    # -- the engine's own records -------------------------------------------------------------------

    def append_events(self, events: Sequence[Event]) -> int:
        return self._events.append(events)

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        return self._events.read(after, limit, unit)

    def trim_events(self, *, keep: int, keep_slots: int | None = None) -> None:
        self._events.trim(keep=keep, keep_slots=keep if keep_slots is None else keep_slots)

    def prune_events(self, *, before: float, through: int, limit: int) -> int:
        return self._events.prune(before=before, through=through, limit=limit)

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        self._slots.save(kept, dropped)

    def slots(self) -> list[StoredSlot]:
        return self._slots.all()

    def slot(self, slot_id: str) -> StoredSlot | None:
        return self._slots.find(slot_id)

    def client_keys(self) -> list[HashedKey]:
        return self._client_keys.all()

    def create_client_key(self, key: ClientKey, digest: str) -> None:
        self._client_keys.create(key, digest)

    def revoke_client_key(self, name: str, *, now: float) -> ClientKey:
        return self._client_keys.revoke(name, now=now)

    def save_state(self, key: str, value: bytes) -> None:
        self._state.save(key, value)

    def load_state(self, key: str) -> bytes | None:
        return self._state.load(key)

    def add_spend(self, rows: Sequence[SpendRow]) -> None:
        self._spend.add(rows)

    def spend(self, *, since: str = "", key: str | None = None) -> list[SpendRow]:
        return self._spend.read(since, key)

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        return self._state.lead(owner, until=until, now=now)

    def leader(self) -> str | None:
        return self._state.leader()

    def lease_left(self, *, now: float) -> float | None:
        return self._state.lease_left(now=now)

    def while_leading(self, owner: str) -> AbstractContextManager[None]:
        return self._state.while_leading(owner)

    def resign(self, owner: str) -> None:
        self._state.resign(owner)
