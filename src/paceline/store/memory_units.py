"""Units in memory by campaign, with the counts and queues that make claims cheap."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.store import rules
from paceline.store.interface import Campaign, OutcomeRecord, Page, Phase, Unit, UnitCounts, UnitSpec
from paceline.store.memory_undo import UndoLog
from paceline.store.stopped_units import StoppedUnits
from paceline.store.unit_result import UnitResult

replace = msgspec.structs.replace

ClaimKey = tuple[str, str | None]
"""A campaign, and the account that the unit's conversation is bound to (None: any)."""


class CampaignEntry(msgspec.Struct):
    """A campaign, and the ids of its units in plan order."""

    number: int
    campaign: Campaign
    unit_ids: list[str]


class UnitTable:
    """All units by campaign. Every change of a unit goes through `put`, which keeps counts and queues up to date."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self.entries: dict[str, CampaignEntry] = {}
        self.units: dict[str, Unit] = {}
        self._last_number = 0
        self._tallies: Counter[tuple[str, rules.TallyPhase]] = Counter()
        self._claimable: Counter[ClaimKey] = Counter()
        # Heaps by position and by time. An entry may be out of date: the unit it points at decides.
        self._ready: dict[ClaimKey, list[tuple[int, int]]] = {}
        self._parked: list[tuple[float, int, str]] = []

    # -- campaigns ----------------------------------------------------------------------------------

    def save_campaign(self, campaign: Campaign, now: float) -> CampaignEntry:
        """Add the campaign, or replace its settings and keep its state and age."""
        self._note_all()
        entry = self.entries.get(campaign.name)
        if entry is None:
            self._last_number += 1
            entry = CampaignEntry(self._last_number, replace(campaign, created_at=now), [])
            self.entries[campaign.name] = entry
        else:
            before = entry.campaign
            entry.campaign = replace(
                campaign, state=before.state, pause_reason=before.pause_reason, created_at=before.created_at
            )
        return entry

    def entry(self, name: str) -> CampaignEntry:
        if name not in self.entries:
            raise rules.unknown_campaign(name, self.entries)
        return self.entries[name]

    def set_campaign(self, campaign: Campaign) -> None:
        entry = self.entry(campaign.name)
        self._undo.note(functools.partial(setattr, entry, "campaign", entry.campaign))
        entry.campaign = campaign

    def delete_campaign(self, name: str) -> None:
        unit_ids = self.entry(name).unit_ids
        self._note_all()
        for identifier in unit_ids:
            self._uncount(self.units.pop(identifier))
        self._ready = {key: heap for key, heap in self._ready.items() if key[0] != name}
        del self.entries[name]

    def counts(self, name: str) -> UnitCounts:
        return rules.unit_counts({phase: self._tallies[name, phase] for phase in rules.TALLY_PHASES})

    # -- units --------------------------------------------------------------------------------------

    def add(self, entry: CampaignEntry, spec: UnitSpec) -> None:
        name = entry.campaign.name
        unit = Unit(id=rules.unit_id(name, spec.id), campaign=name, spec=spec, position=len(entry.unit_ids))
        entry.unit_ids.append(unit.id)
        self.put(unit)

    def put(self, unit: Unit) -> None:
        before = self.units.get(unit.id)
        if before is not None:
            self._undo.note(functools.partial(self.put, before))
            self._uncount(before)
        self.units[unit.id] = unit
        self._tallies[unit.campaign, _phase(unit)] += 1
        key = _claim_key(unit)
        if key is not None:
            self._claimable[key] += 1
            if before is None or _claim_key(before) != key:
                heappush(self._ready.setdefault(key, []), (_claim_order(unit), unit.position))
        elif unit.resume_at is not None and (before is None or before.resume_at != unit.resume_at):
            heappush(self._parked, (unit.resume_at, self.sort_key(unit), unit.id))

    def _note_all(self) -> None:
        """Keep the way back from a change of the list of campaigns, or of their lists of units."""
        if not self._undo.is_active:
            return  # a copy of everything would be for nothing
        entries = {name: CampaignEntry(e.number, e.campaign, list(e.unit_ids)) for name, e in self.entries.items()}
        self._undo.note(functools.partial(self._go_back, entries, dict(self.units), self._last_number))

    def _go_back(self, entries: dict[str, CampaignEntry], units: dict[str, Unit], last_number: int) -> None:
        self.entries, self.units, self._last_number = entries, {}, last_number
        self._tallies, self._claimable, self._ready, self._parked = Counter(), Counter(), {}, []
        for unit in units.values():
            self.put(unit)

    def _uncount(self, unit: Unit) -> None:
        self._tallies[unit.campaign, _phase(unit)] -= 1
        key = _claim_key(unit)
        if key is not None:
            self._claimable[key] -= 1

    def record(self, record: OutcomeRecord, now: float) -> bool:
        """Store how an attempt ended. Return False if its fence is stale."""
        unit = self.units.get(record.unit_id)
        transition = record.transition
        if unit is None or unit.fence != record.fence:
            return False
        if unit.state != "running":
            return unit.state == transition.state and unit.counters == transition.counters
        account = unit.account if record.account is None else record.account
        self.put(
            replace(
                unit,
                state=transition.state,
                counters=transition.counters,
                resume_at=transition.resume_at if transition.state == "todo" else None,
                reason=rules.storable_text(transition.reason),
                account=account,
                conversation_id=rules.storable_text(record.conversation_id) if account else None,
                ended_at=now,
                exit_code=transition.exit_code,
                lease_until=None,
                is_parked=record.is_parked,
                denials=record.denials,
                warnings=rules.storable_texts(record.warnings),
                phase=None,
                resume_cost=record.resume_cost,
                result=unit.result if record.result is None else rules.storable_result(record.result),
            )
        )
        return True

    def of_campaign(self, name: str) -> list[Unit]:
        return [self.units[identifier] for identifier in self.entry(name).unit_ids]

    def sort_key(self, unit: Unit) -> int:
        return rules.unit_key(self.entries[unit.campaign].number, unit.position)

    def next_claimable(self, campaign: str, account: str | None) -> Unit | None:
        """Return the first claimable unit of the campaign whose conversation is bound to the account, or to none."""
        heap = self._ready.get((campaign, account), [])
        while heap:
            unit = self.units[self.entries[campaign].unit_ids[heap[0][1]]]
            if _claim_key(unit) == (campaign, account) and _claim_order(unit) == heap[0][0]:
                return unit
            heappop(heap)
        return None

    def claimable(self) -> dict[ClaimKey, int]:
        return {key: units for key, units in self._claimable.items() if units}

    def bound(self, campaign: str, account: str, limit: int) -> list[str]:
        """Return the ids of the first claimable units whose conversation is bound to the account."""
        key = campaign, account
        unit_ids = self.entries[campaign].unit_ids if campaign in self.entries else []
        ready = [self.units[unit_ids[at]] for _, at in self._ready.get(key, ())]
        found = {(unit.resume_cost, unit.position): unit.id for unit in ready if _claim_key(unit) == key}
        return [found[order] for order in sorted(found)[:limit]]

    def first_parked(self) -> Unit | None:
        """Return the parked unit that is due first."""
        while self._parked:
            resume_at, key, identifier = self._parked[0]
            unit = self.units.get(identifier)
            if unit is not None and unit.resume_at == resume_at and self.sort_key(unit) == key:
                return unit
            heappop(self._parked)
        return None


class MemoryUnits:
    """The units of one table."""

    def __init__(self, table: UnitTable) -> None:
        self._table = table

    # -- their life cycle ---------------------------------------------------------------------------

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
    ) -> list[Unit]:
        rules.check_attempt_ids(limit, len(attempt_ids))
        units: list[Unit] = []
        for attempt_id in attempt_ids[:limit]:
            found = self._table.next_claimable(campaign, account)
            if found is None and not only_bound:
                found = self._table.next_claimable(campaign, None)
            if found is None:
                break
            units.append(rules.claimed(found, account, attempt_id, lease_until, now))
            self._table.put(units[-1])
        return units

    def record_outcomes(self, records: Sequence[OutcomeRecord], *, now: float) -> list[bool]:
        rules.check_outcomes(records)
        return [self._table.record(each, now) for each in records]

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        unit = self._table.units.get(unit_id)
        if unit is None or unit.state != "running" or unit.fence != fence:
            return False
        kept = unit.result if result is None else rules.storable_result(result)
        self._table.put(replace(unit, phase=phase or unit.phase, result=kept))
        return True

    def renew(self, fences: dict[str, int], *, lease_until: float) -> list[str]:
        stale = []
        for identifier, fence in fences.items():
            unit = self._table.units.get(identifier)
            if unit is not None and unit.state == "running" and unit.fence == fence:
                self._table.put(replace(unit, lease_until=lease_until))
            else:
                stale.append(identifier)
        return stale

    def wake(self, *, now: float, limit: int) -> int:
        rules.check_page_size(limit)
        woken = 0
        while woken < limit and (unit := self._table.first_parked()) is not None and (unit.resume_at or 0.0) <= now:
            self._table.put(replace(unit, resume_at=None, is_parked=False))
            woken += 1
        return woken

    def wake_account(self, account: str, *, limit: int, campaign: str | None = None) -> int:
        rules.check_page_size(limit)
        parked = [
            (unit.resume_at, self._table.sort_key(unit), unit)
            for unit in self._table.units.values()
            if unit.state == "todo" and unit.resume_at is not None and unit.is_parked and unit.account == account
            if campaign in (None, unit.campaign)
        ]
        woken = sorted(parked)[:limit]
        for _, _, unit in woken:
            self._table.put(replace(unit, resume_at=None, is_parked=False))
        return len(woken)

    def rename_account(self, campaign: str, before: str, after: str) -> int:
        units = [unit for unit in self._table.of_campaign(campaign) if unit.account == before]
        for unit in units:
            self._table.put(replace(unit, account=after))
        return len(units)

    def shorten_backoffs(self, *, now: float) -> int:
        begun_later = [
            unit
            for unit in self._table.units.values()
            if unit.resume_at is not None and not unit.is_parked and unit.ended_at is not None and unit.ended_at > now
        ]
        for unit in begun_later:
            assert unit.resume_at is not None
            assert unit.ended_at is not None
            self._table.put(replace(unit, resume_at=now + unit.resume_at - unit.ended_at, ended_at=now))
        return len(begun_later)

    def hasten(self, resume_times: Mapping[str, float]) -> None:
        for unit_id, resume_at in resume_times.items():
            unit = self._table.units.get(unit_id)
            if unit is None or unit.state != "todo" or unit.resume_at is None:
                continue
            if unit.resume_at > resume_at:
                self._table.put(replace(unit, resume_at=resume_at))

    # -- reading ------------------------------------------------------------------------------------

    def find(self, unit_id: str) -> Unit | None:
        return self._table.units.get(unit_id)

    def page(self, campaign: str | None, state: UnitState | None, limit: int, cursor: str | None) -> Page:
        rules.check_page_size(limit)
        after = rules.key_after(cursor)
        names = self._table.entries if campaign is None else (self._table.entry(campaign).campaign.name,)
        found: list[Unit] = []
        for unit in (unit for name in names for unit in self._table.of_campaign(name)):
            if self._table.sort_key(unit) > after and state in (None, unit.state):
                if len(found) == limit:
                    return Page(units=tuple(found), cursor=str(self._table.sort_key(found[-1])))
                found.append(replace(_without_prompt(unit), result=unit.result.without_texts()))
        return Page(units=tuple(found))

    def running(self) -> list[Unit]:
        running = [_without_prompt(unit) for unit in self._table.units.values() if unit.state == "running"]
        return sorted(running, key=self._table.sort_key)

    def next_resume_at(self) -> float | None:
        unit = self._table.first_parked()
        return None if unit is None else unit.resume_at

    def stopped(self, *, limit: int) -> list[StoppedUnits]:
        rules.check_page_size(limit)
        names: dict[tuple[str, UnitState, str | None], list[str]] = {}
        for entry in self._table.entries.values():
            for unit in (self._table.units[unit_id] for unit_id in entry.unit_ids):
                if unit.state in rules.STOPPED_STATES:
                    names.setdefault((unit.campaign, unit.state, unit.reason), []).append(unit.spec.id)
        found = [rules.stopped_group(*key, len(each), each[0]) for key, each in names.items()]
        return sorted(found, key=lambda each: -each.units)[:limit]

    def claimable(self) -> dict[ClaimKey, int]:
        return self._table.claimable()

    def bound(self, campaign: str, account: str, *, limit: int) -> list[str]:
        rules.check_page_size(limit)
        return self._table.bound(campaign, account, limit)


def _phase(unit: Unit) -> rules.TallyPhase:
    return rules.tally_phase(unit)


def _claim_key(unit: Unit) -> ClaimKey | None:
    """Return where the unit waits to be claimed; None if it may not be claimed."""
    if _phase(unit) != "todo":
        return None
    return unit.campaign, unit.account if unit.conversation_id is not None else None


def _claim_order(unit: Unit) -> int:
    """Return what orders the units of a claim before their positions."""
    return unit.resume_cost if unit.conversation_id is not None else 0


def _without_prompt(unit: Unit) -> Unit:
    return replace(unit, spec=replace(unit.spec, prompt=""))
