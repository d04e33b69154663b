"""The engine's own records in memory: events, external slots, saved state and leadership."""

from collections.abc import Sequence

from paceline.events import Event
from paceline.store import rules
from paceline.store.interface import StoredEvent, StoredSlot


class MemoryEvents:
    """The stream of events."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str | None, bytes]] = []
        self._last_id = 0

    def append(self, events: Sequence[Event]) -> int:
        encoded = [(event.unit, rules.encode_event(event)) for event in events]
        for unit, body in encoded:
            self._last_id += 1
            self._events.append((self._last_id, rules.storable_text(unit), body))
        return self._last_id

    def read(self, after: int, limit: int, unit: str | None) -> list[StoredEvent]:
        rules.check_page_size(limit)
        found = [entry for entry in self._events if entry[0] > after and unit in (None, entry[1])]
        return [StoredEvent(number, rules.decode_event(body)) for number, _, body in found[:limit]]

    def trim(self, *, keep: int) -> None:
        self._events = self._events[max(0, len(self._events) - keep) :]


class MemorySlots:
    """Slots of programs that the engine did not start."""

    def __init__(self) -> None:
        self._slots: dict[str, bytes] = {}

    def save(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        self._slots |= {slot.id: rules.encode_slot(slot) for slot in kept}
        for slot_id in dropped:
            self._slots.pop(slot_id, None)

    def all(self) -> list[StoredSlot]:
        return [rules.decode_slot(body) for body in self._slots.values()]

    def find(self, slot_id: str) -> StoredSlot | None:
        body = self._slots.get(slot_id)
        return None if body is None else rules.decode_slot(body)


class MemoryEngineState:
    """Values saved under a key, and which engine leads."""

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}
        self._leader: tuple[str, float] | None = None

    def save(self, key: str, value: bytes) -> None:
        self._states[key] = value

    def load(self, key: str) -> bytes | None:
        return self._states.get(key)

    def lead(self, owner: str, *, until: float, now: float) -> bool:
        if self._leader is not None and self._leader[0] != owner and self._leader[1] > now:
            return False
        self._leader = (owner, until)
        return True

    def resign(self, owner: str) -> None:
        if self._leader is not None and self._leader[0] == owner:
            self._leader = None
