"""What a person does in memory: add, change and delete campaigns; hold, retry, revive, accept and cancel units."""

from collections.abc import Generator, Iterable, Sequence

import msgspec

from paceline.core.unit_lifecycle import Counters
from paceline.errors import IllegalStep, UnknownName
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import Added, Campaign, Unit, UnitCounts, UnitSpec
from paceline.store.memory_records import MemoryEvents
from paceline.store.memory_units import UnitTable

replace = msgspec.structs.replace


class MemoryCampaigns:
    """The campaigns of one table."""

    def __init__(self, table: UnitTable, events: MemoryEvents) -> None:
        self._table = table
        self._events = events

    def add(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Added:
        rules.check_campaign(campaign)
        specs = list(rules.checked_specs(units))
        entry = self._table.save_campaign(campaign, now)
        added = unchanged = 0
        changed, updated = [], []
        for spec in specs:
            stored = self._table.units.get(rules.unit_id(campaign.name, spec.id))
            if stored is None:
                self._table.add(entry, spec)
                added += 1
            elif stored.spec == spec:
                unchanged += 1
            elif update and stored.state not in ("running", "done"):
                is_ready_again = stored.state in ("quarantined", "unverified")
                self._table.put(replace(_ready_again(stored) if is_ready_again else stored, spec=spec))
                updated.append(stored.id)
            else:
                changed.append(stored.id)
        self._events.append(events)
        return Added(added=added, unchanged=unchanged, changed=tuple(changed), updated=tuple(updated))

    def add_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event]
    ) -> Generator[None, None, Added]:
        yield
        return self.add(campaign, units, update=update, now=now, events=events)

    def all(self) -> list[Campaign]:
        return [entry.campaign for entry in self._table.entries.values()]

    def set(self, campaign: Campaign) -> None:
        rules.check_campaign(campaign)
        self._table.set_campaign(campaign)

    def delete(self, name: str) -> None:
        self._table.entry(name)
        if self._table.counts(name).running:
            raise IllegalStep(f"units of {name!r} are running: cancel it first")
        self._table.delete_campaign(name)

    def counts(self) -> dict[str, UnitCounts]:
        return {name: self._table.counts(name) for name in self._table.entries}


class MemoryUnitControl:
    """The operator's verbs for the units of one table."""

    def __init__(self, table: UnitTable) -> None:
        self._table = table

    def hold(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        held = 0
        text = rules.storable_text(reason)
        for identifier in unit_ids:
            unit = self._table.units.get(identifier)
            if unit is not None and unit.state == "todo":
                self._table.put(replace(unit, state="held", reason=text, resume_at=None, ended_at=now))
                held += 1
        return held

    def retry(self, campaign: str, unit_ids: Sequence[str] | None) -> int:
        stopped = [unit for unit in self._chosen(campaign, unit_ids) if unit.state in rules.STOPPED_STATES]
        for unit in stopped:
            self._table.put(_ready_again(unit))
        return len(stopped)

    def revive(self, campaign: str, unit_ids: Sequence[str] | None, *, resume_at: float) -> int:
        cancelled = [unit for unit in self._chosen(campaign, unit_ids) if unit.state == "cancelled"]
        for unit in cancelled:
            self._table.put(replace(_ready_again(unit), resume_at=resume_at))
        return len(cancelled)

    def accept(self, campaign: str, unit_ids: Sequence[str], *, now: float) -> int:
        unverified = [unit for unit in self._chosen(campaign, unit_ids) if unit.state == "unverified"]
        for unit in unverified:
            self._table.put(replace(unit, state="done", reason=rules.ACCEPTED, ended_at=now))
        return len(unverified)

    def _chosen(self, campaign: str, unit_ids: Sequence[str] | None) -> list[Unit]:
        units = self._table.of_campaign(campaign)
        return [unit for unit in units if unit_ids is None or unit.id in unit_ids]

    def cancel(self, campaign: str, unit_ids: Sequence[str] | None, *, now: float) -> list[str]:
        open_units = [unit for unit in self._chosen(campaign, unit_ids) if unit.state not in ("done", "cancelled")]
        for unit in open_units:
            self._table.put(
                replace(unit, state="cancelled", resume_at=None, lease_until=None, ended_at=now, phase=None)
            )
        return [unit.id for unit in open_units if unit.state == "running"]

    def forget_conversation(self, unit_id: str) -> None:
        unit = self._table.units.get(unit_id)
        if unit is None:
            raise UnknownName(f"there is no unit {unit_id!r}")
        resume_at = None if unit.is_parked else unit.resume_at
        result = unit.result.without_work()
        self._table.put(replace(unit, conversation_id=None, resume_at=resume_at, is_parked=False, result=result))


def _ready_again(unit: Unit) -> Unit:
    return replace(
        unit,
        state="todo",
        counters=Counters(),
        reason=None,
        ended_at=None,
        exit_code=None,
        is_parked=False,
        denials=0,
        warnings=(),
        result=replace(unit.result, checks=()),
    )
