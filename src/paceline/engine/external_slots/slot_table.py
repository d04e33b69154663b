"""The external slots of one leader in memory, with what of them is not stored yet and when their leases expire."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import msgspec

from paceline.engine.command_log import stored_number
from paceline.store import Store, StoredSlot

TOKENS_STATE = "slot_tokens"
TOKENS_AT_ONCE = 1000
"""Fencing tokens reserved by one write. More means fewer writes, and larger gaps after a restart, which do no harm."""
REMEMBERED_LOSSES = 10_000
"""Lost slots whose holders still get "lease not renewed" instead of "no such slot". More costs memory."""
LOST_GRACE_SECONDS = 30.0
"""How long a lost slot still counts: its holder learns of the loss at its next call, and ends its work."""
SWEEP_SLACK = 1000
"""Entries of released slots that may stay in the expiry heap before it is rebuilt, so that rebuilding stays rare."""


class SlotTable:
    """Slots by id and by idempotency key. `save` stores everything that changed in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._slots: dict[str, StoredSlot] = {}
        self._by_key: dict[str, str] = {}
        self._expiries: list[tuple[float, str]] = []
        self._free_at: dict[str, float] = {}
        self._lost: dict[str, None] = {}
        self._unsaved: dict[str, None] = {}
        self._token = self._reserved_tokens = stored_number(store, TOKENS_STATE)

    def __iter__(self) -> Iterator[StoredSlot]:
        return iter(list(self._slots.values()))

    def get(self, slot_id: str) -> StoredSlot | None:
        return self._slots.get(slot_id)

    def get_by_key(self, key: str) -> StoredSlot | None:
        slot_id = self._by_key.get(key)
        return None if slot_id is None else self._slots[slot_id]

    def put(self, slot: StoredSlot) -> None:
        """Add or replace a slot. One that waits for a lease is not stored: it waits as long as its call lasts."""
        self._slots[slot.id] = slot
        lease = slot.lease
        if lease is not None and lease.key is not None:
            self._by_key[lease.key] = slot.id
        if lease is None or slot.granted_at is not None:
            self._unsaved[slot.id] = None
        if lease is not None and slot.granted_at is not None:
            self._watch(lease.expires_at, slot.id)

    def renew(self, slot: StoredSlot) -> None:
        """Replace a slot by one that expires later. Its entry in the heap is corrected when it comes up."""
        self._slots[slot.id] = slot
        self._unsaved[slot.id] = None

    def pop(self, slot_id: str) -> StoredSlot | None:
        """Remove a slot, if there is one, also from the store with the next save."""
        slot = self._slots.pop(slot_id, None)
        if slot is not None:
            self._free_at.pop(slot_id, None)
            if slot.lease is not None and slot.lease.key is not None:
                self._by_key.pop(slot.lease.key, None)
            if slot.lease is None or slot.granted_at is not None:
                self._unsaved[slot_id] = None
        return slot

    def drop_stored(self, slot_id: str) -> None:
        """Remove a slot from the store with the next save that never came into the table."""
        self._unsaved[slot_id] = None

    # -- expiry ----------------------------------------------------------------------------------

    def next_expiry(self) -> float | None:
        """Return when the first lease may expire, or the first lost slot becomes free."""
        return self._expiries[0][0] if self._expiries else None

    def lose_expired(self, now: float) -> Iterator[tuple[StoredSlot, float]]:
        """Mark the slots whose lease has expired as lost. Yields each with the time at which it becomes free."""
        for slot in self._due(now):
            if slot.id not in self._free_at:
                free_at = self._free_at[slot.id] = now + LOST_GRACE_SECONDS
                self._watch(free_at, slot.id)
                self._lost[slot.id] = None
                if len(self._lost) > REMEMBERED_LOSSES:
                    del self._lost[next(iter(self._lost))]
                yield slot, free_at

    def pop_lost(self, now: float) -> list[StoredSlot]:
        """Remove the lost slots whose grace is over."""
        over = [slot_id for slot_id, free_at in self._free_at.items() if free_at <= now]
        return [slot for slot_id in over if (slot := self.pop(slot_id)) is not None]

    def _due(self, now: float) -> Iterator[StoredSlot]:
        while self._expiries and self._expiries[0][0] <= now:
            slot = self._slots.get(heappop(self._expiries)[1])
            if slot is None or slot.lease is None or slot.granted_at is None:
                continue  # released long ago
            if slot.lease.expires_at > now:
                heappush(self._expiries, (slot.lease.expires_at, slot.id))
                continue
            yield slot

    def shift_leases(self, seconds: float, now: float) -> None:
        """Move every expiry, and the end of every grace, by so many seconds. None lasts longer than one begun now."""
        for slot in self._slots.values():
            lease = slot.lease
            if slot.id in self._free_at:
                self._free_at[slot.id] = min(self._free_at[slot.id] + seconds, now + LOST_GRACE_SECONDS)
            elif lease is not None and slot.granted_at is not None:
                expires_at = min(lease.expires_at + seconds, now + lease.ttl)
                self.renew(msgspec.structs.replace(slot, lease=msgspec.structs.replace(lease, expires_at=expires_at)))
        self._watch_again()

    def was_lost(self, slot_id: str) -> bool:
        """Return whether the lease of the slot expired; known for the last few thousand, by this leader."""
        return slot_id in self._lost

    def _watch(self, at: float, slot_id: str) -> None:
        heappush(self._expiries, (at, slot_id))
        if len(self._expiries) > SWEEP_SLACK + 2 * len(self._slots):  # most of it was released long before
            self._watch_again()

    def _watch_again(self) -> None:
        leases = [(slot.lease, slot.id) for slot in self._slots.values() if slot.granted_at is not None]
        self._expiries = [
            (self._free_at.get(slot_id, lease.expires_at), slot_id) for lease, slot_id in leases if lease is not None
        ]
        heapify(self._expiries)

    # -- the store -------------------------------------------------------------------------------

    @property
    def is_saved(self) -> bool:
        return not self._unsaved

    def save(self) -> None:
        """Store all added, changed and removed slots in one transaction."""
        if self._unsaved:
            self._reserve_tokens()
            kept = [self._slots[slot_id] for slot_id in self._unsaved if slot_id in self._slots]
            self._store.save_slots(kept, [slot_id for slot_id in self._unsaved if slot_id not in self._slots])
            self._unsaved.clear()

    def next_token(self) -> int:
        """Return a fencing token that is larger than all before it, also those of leaders before."""
        self._token += 1
        return self._token

    def _reserve_tokens(self) -> None:
        """Store an upper bound of the tokens that may be handed out, before any of them is."""
        if self._token > self._reserved_tokens:
            reserved = self._token + TOKENS_AT_ONCE
            self._store.save_state(TOKENS_STATE, str(reserved).encode())
            self._reserved_tokens = reserved
