"""The engine's own records in memory: events, external slots, the cost of calls, saved state and leadership."""

import functools
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice, takewhile
from typing import NamedTuple

from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import StoredEvent, StoredSlot
from paceline.store.memory_undo import UndoLog
from paceline.store.spend import SpendId, SpendRow


class _EventEntry(NamedTuple):
    """An event, encoded as a file would have it."""

    id: int
    unit: str | None
    at: float
    is_slot: bool
    body: bytes

    def decoded(self) -> StoredEvent:
        event = rules.decode_event(self.body)
        assert event is not None
        return StoredEvent(self.id, event)


class MemoryEvents:
    """The stream of events."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._events: list[_EventEntry] = []
        self._last_id = 0

    def append(self, events: Sequence[Event]) -> int:
        encoded = [(event, rules.encode_event(event)) for event in events]
        self._undo.note(functools.partial(self._go_back, self._events, len(self._events), self._last_id))
        for event, body in encoded:
            self._last_id += 1
            unit = rules.storable_text(event.unit)
            self._events.append(_EventEntry(self._last_id, unit, event.at, rules.is_slot_event(event), body))
        return self._last_id

    def read(self, after: int, limit: int, unit: str | None) -> list[StoredEvent]:
        rules.check_page_size(limit)
        first = bisect_right(self._events, after, key=lambda entry: entry.id)
        found = (entry for entry in islice(self._events, first, None) if unit in (None, entry.unit))
        return [entry.decoded() for entry in islice(found, limit)]

    def trim(self, *, keep: int, keep_slots: int) -> None:
        room = {False: keep, True: keep_slots}
        kept: list[_EventEntry] = []
        for entry in reversed(self._events):
            if room[entry.is_slot]:
                room[entry.is_slot] -= 1
                kept.append(entry)
        self._replace(kept[::-1])

    def prune(self, *, before: float, through: int, limit: int) -> int:
        rules.check_page_size(limit)
        head = takewhile(lambda entry: entry.id <= through and entry.at < before, self._events)
        old = sum(1 for _ in islice(head, limit))
        self._replace(self._events[old:])
        return old

    def _replace(self, events: list[_EventEntry]) -> None:
        self._undo.note(functools.partial(self._go_back, self._events, len(self._events), self._last_id))
        self._events = events

    def _go_back(self, events: list[_EventEntry], length: int, last_id: int) -> None:
        del events[length:]
        self._events, self._last_id = events, last_id


class MemorySlots:
    """Slots of programs that the engine did not start."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._slots: dict[str, bytes] = {}

    def save(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        encoded = {slot.id: rules.encode_slot(slot) for slot in kept}
        if self._undo.is_active:
            self._undo.note(functools.partial(setattr, self, "_slots", dict(self._slots)))
        self._slots |= encoded
        for slot_id in dropped:
            self._slots.pop(slot_id, None)

    def all(self) -> list[StoredSlot]:
        return [slot for body in self._slots.values() if (slot := rules.decode_slot(body)) is not None]

    def find(self, slot_id: str) -> StoredSlot | None:
        body = self._slots.get(slot_id)
        return None if body is None else rules.decode_slot(body)


class MemorySpend:
    """What calls of the gateway have used."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._rows: dict[SpendId, SpendRow] = {}

    def add(self, rows: Sequence[SpendRow]) -> None:
        if self._undo.is_active:
            self._undo.note(functools.partial(setattr, self, "_rows", dict(self._rows)))
        for row in map(rules.storable_spend, rows):
            self._rows[row.id] = self._rows[row.id].plus(row) if row.id in self._rows else row

    def read(self, since: str, key: str | None) -> list[SpendRow]:
        return [row for _, row in sorted(self._rows.items()) if row.day >= since and key in (None, row.key)]


class MemoryEngineState:
    """Values saved under a key, and which engine leads."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._states: dict[str, bytes] = {}
        self._leader: tuple[str, float] | None = None

    def save(self, key: str, value: bytes) -> None:
        if self._undo.is_active:
            self._undo.note(functools.partial(setattr, self, "_states", dict(self._states)))
        self._states[key] = value

    def load(self, key: str) -> bytes | None:
        return self._states.get(key)

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        if self._leader is not None and self._leader[0] != owner and self._leader[1] > now:
            return False
        self._set_leader((owner, until))
        return True

    def leader(self) -> str | None:
        return None if self._leader is None else self._leader[0]

    def lease_left(self, *, now: float) -> float | None:
        return None if self._leader is None else self._leader[1] - now

    def while_leading(self, owner: str) -> AbstractContextManager[None]:
        return nullcontext()

    def resign(self, owner: str) -> None:
        if self._leader is not None and self._leader[0] == owner:
            self._set_leader(None)

    def _set_leader(self, leader: tuple[str, float] | None) -> None:
        self._undo.note(functools.partial(setattr, self, "_leader", self._leader))
        self._leader = leader
