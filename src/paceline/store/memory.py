"""The store in plain dictionaries: for tests, for simulations, and as the model that other stores are compared with.

Nothing survives the process. Every change of a unit goes through `_put`, which keeps the books.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush

import msgspec

from paceline.core.unit_lifecycle import Counters, UnitState
from paceline.errors import IllegalStep, UnknownName
from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import (
    Added,
    Campaign,
    OutcomeRecord,
    Page,
    StoredEvent,
    StoredSlot,
    Unit,
    UnitCounts,
    UnitSpec,
)

replace = msgspec.structs.replace

Place = tuple[str, str | None]


class _Entry(msgspec.Struct):
    """A campaign, and its units in plan order."""

    number: int
    campaign: Campaign
    unit_ids: list[str]


class MemoryStore:
    """`Store` in memory."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._last_number = 0
        self._units: dict[str, Unit] = {}
        self._tallies: Counter[tuple[str, rules.Phase]] = Counter()
        self._claimable: Counter[Place] = Counter()
        # Heaps by position and by time. An entry may be out of date: what it points at decides.
        self._ready: dict[Place, list[int]] = {}
        self._parked: list[tuple[float, int, str]] = []
        self._events: list[tuple[int, str | None, bytes]] = []
        self._last_event = 0
        self._slots: dict[str, bytes] = {}
        self._states: dict[str, bytes] = {}
        self._leader: tuple[str, float] | None = None

    # -- campaigns ----------------------------------------------------------------------------------

    def together(self) -> AbstractContextManager[None]:
        """Nothing but a mistake can go wrong between two verbs."""
        return nullcontext()

    def add_campaign(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Added:
        rules.check_campaign(campaign)
        specs = list(rules.checked_specs(units))
        entry = self._save(campaign, now)
        added = unchanged = 0
        changed, updated = [], []
        for spec in specs:
            stored = self._units.get(rules.unit_id(campaign.name, spec.id))
            if stored is None:
                self._add(entry, spec)
                added += 1
            elif stored.spec == spec:
                unchanged += 1
            elif update and stored.state not in ("running", "done"):
                self._put(replace(stored, spec=spec))
                updated.append(stored.id)
            else:
                changed.append(stored.id)
        self.append_events(events)
        return Added(added=added, unchanged=unchanged, changed=tuple(changed), updated=tuple(updated))

    def add_campaign_in_steps(
        self, campaign: Campaign, units: Iterable[UnitSpec], *, update: bool, now: float, events: Sequence[Event] = ()
    ) -> Generator[None, None, Added]:
        yield
        return self.add_campaign(campaign, units, update=update, now=now, events=events)

    def campaigns(self) -> list[Campaign]:
        return [entry.campaign for entry in self._entries.values()]

    def set_campaign(self, campaign: Campaign) -> None:
        rules.check_campaign(campaign)
        self._entry(campaign.name).campaign = campaign

    def delete_campaign(self, name: str) -> None:
        entry = self._entry(name)
        if self._tallies[name, "running"]:
            raise IllegalStep(f"units of {name!r} are running: cancel it first")
        for identifier in entry.unit_ids:
            self._uncount(self._units.pop(identifier))
        self._ready = {place: heap for place, heap in self._ready.items() if place[0] != name}
        del self._entries[name]

    def counts(self) -> dict[str, UnitCounts]:
        return {
            name: rules.unit_counts({phase: self._tallies[name, phase] for phase in rules.PHASES})
            for name in self._entries
        }

    # -- the life of a unit -------------------------------------------------------------------------

    def claim_units(
        self, campaign: str, account: str, limit: int, *, attempt_ids: Sequence[str], lease_until: float, now: float
    ) -> list[Unit]:
        rules.check_attempt_ids(limit, len(attempt_ids))
        units: list[Unit] = []
        for attempt_id in attempt_ids[:limit]:
            found = self._next(campaign, account) or self._next(campaign, None)
            if found is None:
                break
            units.append(rules.claimed(found, account, attempt_id, lease_until, now))
            self._put(units[-1])
        return units

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        return [self._record_outcome(each, now) for each in records]

    def renew_units(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        stale = []
        for identifier, fence in fences.items():
            unit = self._units.get(identifier)
            if unit is not None and unit.state == "running" and unit.fence == fence:
                self._put(replace(unit, lease_until=lease_until))
            else:
                stale.append(identifier)
        return stale

    def wake_units(self, *, now: float, limit: int = 10_000) -> int:
        rules.check_limit(limit)
        woken = 0
        while woken < limit and (unit := self._first_parked()) is not None and (unit.resume_at or 0.0) <= now:
            self._put(replace(unit, resume_at=None))
            woken += 1
        return woken

    def wake_account(self, account: str, *, limit: int = 10_000) -> int:
        rules.check_limit(limit)
        parked = [
            (unit.resume_at, self._key(unit), unit)
            for unit in self._units.values()
            if unit.state == "todo" and unit.resume_at is not None and unit.account == account
        ]
        woken = sorted(parked)[:limit]
        for _, _, unit in woken:
            self._put(replace(unit, resume_at=None))
        return len(woken)

    def hold_units(self, unit_ids: Sequence[str], reason: str, *, now: float) -> int:
        held = 0
        for identifier in unit_ids:
            unit = self._units.get(identifier)
            if unit is not None and unit.state == "todo":
                self._put(replace(unit, state="held", reason=rules.mended(reason), resume_at=None, ended_at=now))
                held += 1
        return held

    def retry_units(self, campaign: str) -> int:
        stopped = [unit for unit in self._of(campaign) if unit.state in ("held", "quarantined")]
        for unit in stopped:
            self._put(replace(unit, state="todo", counters=Counters(), reason=None, ended_at=None, exit_code=None))
        return len(stopped)

    def cancel_units(self, campaign: str, *, now: float) -> list[str]:
        open_units = [unit for unit in self._of(campaign) if unit.state not in ("done", "cancelled")]
        for unit in open_units:
            self._put(replace(unit, state="cancelled", resume_at=None, lease_until=None, ended_at=now))
        return [unit.id for unit in open_units if unit.state == "running"]

    def forget_conversation(self, unit_id: str) -> None:
        if unit_id not in self._units:
            raise UnknownName(f"there is no unit {unit_id!r}")
        self._put(replace(self._units[unit_id], conversation_id=None))

    # -- looking in ---------------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit | None:
        return self._units.get(unit_id)

    def units(
        self,
        *,
        campaign: str | None = None,
        state: UnitState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        rules.check_limit(limit)
        after = rules.key_after(cursor)
        names = self._entries if campaign is None else (self._entry(campaign).campaign.name,)
        found: list[Unit] = []
        for unit in (unit for name in names for unit in self._of(name)):
            if self._key(unit) > after and state in (None, unit.state):
                if len(found) == limit:
                    return Page(units=tuple(found), cursor=str(self._key(found[-1])))
                found.append(_without_prompt(unit))
        return Page(units=tuple(found))

    def running_units(self) -> list[Unit]:
        running = [_without_prompt(unit) for unit in self._units.values() if unit.state == "running"]
        return sorted(running, key=self._key)

    def next_resume_at(self) -> float | None:
        unit = self._first_parked()
        return None if unit is None else unit.resume_at

    def claimable(self) -> dict[Place, int]:
        return {place: units for place, units in self._claimable.items() if units}

    # -- the engine's own ---------------------------------------------------------------------------

    def append_events(self, events: Sequence[Event]) -> int:
        encoded = [(event.unit, rules.encode_event(event)) for event in events]
        for unit, body in encoded:
            self._last_event += 1
            self._events.append((self._last_event, rules.mended(unit), body))
        return self._last_event

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        rules.check_limit(limit)
        found = [entry for entry in self._events if entry[0] > after and unit in (None, entry[1])]
        return [StoredEvent(number, rules.decode_event(body)) for number, _, body in found[:limit]]

    def trim_events(self, *, keep: int) -> None:
        self._events = self._events[max(0, len(self._events) - keep) :]

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        self._slots |= {slot.id: rules.encode_slot(slot) for slot in kept}
        for slot_id in dropped:
            self._slots.pop(slot_id, None)

    def slots(self) -> list[StoredSlot]:
        return [rules.decode_slot(body) for body in self._slots.values()]

    def slot(self, slot_id: str) -> StoredSlot | None:
        body = self._slots.get(slot_id)
        return None if body is None else rules.decode_slot(body)

    def save_state(self, key: str, value: bytes) -> None:
        self._states[key] = value

    def load_state(self, key: str) -> bytes | None:
        return self._states.get(key)

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        if self._leader is not None and self._leader[0] != owner and self._leader[1] > now:
            return False
        self._leader = (owner, until)
        return True

    def resign(self, owner: str) -> None:
        if self._leader is not None and self._leader[0] == owner:
            self._leader = None

    def close(self) -> None:
        """There is nothing to let go of."""

    # -- the books ----------------------------------------------------------------------------------

    def _save(self, campaign: Campaign, now: float) -> _Entry:
        entry = self._entries.get(campaign.name)
        if entry is None:
            self._last_number += 1
            entry = _Entry(self._last_number, replace(campaign, created_at=now), [])
            self._entries[campaign.name] = entry
        else:
            before = entry.campaign
            entry.campaign = replace(campaign, state=before.state, created_at=before.created_at)
        return entry

    def _add(self, entry: _Entry, spec: UnitSpec) -> None:
        name = entry.campaign.name
        unit = Unit(id=rules.unit_id(name, spec.id), campaign=name, spec=spec, position=len(entry.unit_ids))
        entry.unit_ids.append(unit.id)
        self._put(unit)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise rules.unknown_campaign(name, self._entries)
        return self._entries[name]

    def _of(self, campaign: str) -> list[Unit]:
        return [self._units[identifier] for identifier in self._entry(campaign).unit_ids]

    def _key(self, unit: Unit) -> int:
        return rules.unit_key(self._entries[unit.campaign].number, unit.position)

    def _put(self, unit: Unit) -> None:
        before = self._units.get(unit.id)
        if before is not None:
            self._uncount(before)
        self._units[unit.id] = unit
        self._tallies[unit.campaign, _phase(unit)] += 1
        place = _claimable_place(unit)
        if place is not None:
            self._claimable[place] += 1
            if before is None or _claimable_place(before) != place:
                heappush(self._ready.setdefault(place, []), unit.position)
        elif unit.resume_at is not None and (before is None or before.resume_at != unit.resume_at):
            heappush(self._parked, (unit.resume_at, self._key(unit), unit.id))

    def _uncount(self, unit: Unit) -> None:
        self._tallies[unit.campaign, _phase(unit)] -= 1
        place = _claimable_place(unit)
        if place is not None:
            self._claimable[place] -= 1

    def _next(self, campaign: str, account: str | None) -> Unit | None:
        """The first unit of the campaign that may be claimed and is bound to the account, or to none."""
        heap = self._ready.get((campaign, account), [])
        while heap:
            unit = self._units[self._entries[campaign].unit_ids[heap[0]]]
            if _claimable_place(unit) == (campaign, account):
                return unit
            heappop(heap)
        return None

    def _first_parked(self) -> Unit | None:
        while self._parked:
            resume_at, key, identifier = self._parked[0]
            unit = self._units.get(identifier)
            if unit is not None and unit.resume_at == resume_at and self._key(unit) == key:
                return unit
            heappop(self._parked)
        return None

    def _record_outcome(self, record: OutcomeRecord, now: float) -> bool:
        unit = self._units.get(record.unit_id)
        transition = record.transition
        if unit is None or unit.fence != record.fence:
            return False
        if unit.state != "running":
            return unit.state == transition.state and unit.counters == transition.counters
        self._put(
            replace(
                unit,
                state=transition.state,
                counters=transition.counters,
                resume_at=transition.resume_at if transition.state == "todo" else None,
                reason=rules.mended(transition.reason),
                account=unit.account if record.account is None else record.account,
                conversation_id=rules.mended(record.conversation_id),
                ended_at=now,
                exit_code=transition.exit_code,
                lease_until=None,
            )
        )
        return True


def _phase(unit: Unit) -> rules.Phase:
    return rules.phase_of(unit.state, unit.resume_at)


def _claimable_place(unit: Unit) -> Place | None:
    """The campaign and the account that its conversation is bound to, if it may be claimed."""
    if _phase(unit) != "todo":
        return None
    return unit.campaign, unit.account if unit.conversation_id is not None else None


def _without_prompt(unit: Unit) -> Unit:
    return replace(unit, spec=replace(unit.spec, prompt=""))
