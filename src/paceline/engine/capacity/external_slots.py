"""Slots of programs that the engine did not start: how they are kept, and how a program asks.

They share all limits with its sessions. There are two kinds of holder. A program of this machine (`paceline exec`) is
known by its pid and start time, gives its slot back by exiting, and asks with a command in the store, where the leader
also answers. A program that is known by its HTTP calls alone has a lease that it renews (`leases.py`). Either way the
slot is stored, so that the next leader counts it first. Never here: how an engine is started where none leads.
"""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

import msgspec

from paceline.clock import SystemClock
from paceline.core import Deferred, Ticket
from paceline.core.signals import AnySignal
from paceline.engine import command_log
from paceline.engine.command_log import stored_number
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES, CapacityError, StoreError
from paceline.executors.proc_table import ancestors_of, boot_id, has_ended, start_ticks
from paceline.leadership.election import this_machine
from paceline.redaction import signal_without_secrets
from paceline.store import ProcessId, Store, StoredSlot

log = logging.getLogger("paceline.engine")

TOKENS_STATE = "slot_tokens"
TOKENS_AT_ONCE = 1000
"""Fencing tokens reserved by one write. More means fewer writes, and larger gaps after a restart, which do no harm."""
REMEMBERED_LOSSES = 10_000
"""Lost slots whose holders still get "lease not renewed" instead of "no such slot". More costs memory."""
LOST_GRACE_SECONDS = 30.0
"""How long a lost slot still counts: its holder learns of the loss at its next call, and ends its work."""
SWEEP_SLACK = 1000
"""Entries of released slots that may stay in the expiry heap before it is rebuilt, so that rebuilding stays rare."""


def closed_error() -> CapacityError:
    """Return the error of a call that an engine which stops cannot answer."""
    return CapacityError("the engine is stopping; ask again when it is back")


class SlotTable:
    """Slots by id and by idempotency key. `save` stores everything that changed in one transaction.

    Callers wait in `stored` until their change is on disk. Until `close`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.slots: dict[str, StoredSlot] = {}
        self._by_key: dict[str, str] = {}
        self._expiries: list[tuple[float, str]] = []
        self._free_at: dict[str, float] = {}
        self._lost: dict[str, None] = {}
        self.unsaved: dict[str, None] = {}
        self.heard_at: dict[str, float] = {}
        """When the holders on other machines have last shown that they are there, by the ids of their slots."""
        self._waiting: list[asyncio.Future[None]] = []
        self._is_scheduled = False
        self.is_closed = False
        self._token = self._reserved_tokens = stored_number(store, TOKENS_STATE)

    def __iter__(self) -> Iterator[StoredSlot]:
        return iter(list(self.slots.values()))

    def __len__(self) -> int:
        return len(self.slots)

    def get(self, slot_id: str) -> StoredSlot | None:
        return self.slots.get(slot_id)

    def get_by_key(self, key: str) -> StoredSlot | None:
        slot_id = self._by_key.get(key)
        return None if slot_id is None else self.slots[slot_id]

    def put(self, slot: StoredSlot) -> None:
        """Add or replace a slot. One that waits for a lease is not stored: it waits as long as its call lasts."""
        self.slots[slot.id] = slot
        lease = slot.lease
        if lease is not None and lease.key is not None:
            self._by_key[lease.key] = slot.id
        if lease is None or slot.granted_at is not None:
            self.unsaved[slot.id] = None
        if lease is not None and slot.granted_at is not None:
            self._watch(lease.expires_at, slot.id)

    def renew(self, slot: StoredSlot) -> None:
        """Replace a slot by one that expires later. Its entry in the heap is corrected when it comes up."""
        self.slots[slot.id] = slot
        self.unsaved[slot.id] = None

    def pop(self, slot_id: str) -> StoredSlot | None:
        """Remove a slot, if there is one, also from the store with the next save."""
        slot = self.slots.pop(slot_id, None)
        self.heard_at.pop(slot_id, None)
        if slot is not None:
            self._free_at.pop(slot_id, None)
            if slot.lease is not None and slot.lease.key is not None:
                self._by_key.pop(slot.lease.key, None)
            if slot.lease is None or slot.granted_at is not None:
                self.unsaved[slot_id] = None
        return slot

    def drop_stored(self, slot_id: str) -> None:
        """Remove a slot from the store with the next save that never came into the table."""
        self.unsaved[slot_id] = None

    def is_silent(self, slot_id: str, holder: ProcessId, now: float) -> bool:
        """Return whether a holder on another machine has shown no sign of life for long."""
        return is_elsewhere(holder) and now - self.heard_at.setdefault(slot_id, now) > SILENT_SECONDS

    # -- expiry ----------------------------------------------------------------------------------

    def next_expiry(self) -> float | None:
        """Return when the first lease may expire, or the first lost slot becomes free."""
        return self._expiries[0][0] if self._expiries else None

    def lose_expired(self, now: float) -> Iterator[tuple[StoredSlot, float]]:
        """Mark the slots whose lease has expired as lost. Yields each with the time at which it becomes free."""
        while self._expiries and self._expiries[0][0] <= now:
            slot = self.slots.get(heappop(self._expiries)[1])
            if slot is None or slot.lease is None or slot.granted_at is None:
                continue  # released long ago
            if slot.lease.expires_at > now:
                heappush(self._expiries, (slot.lease.expires_at, slot.id))
            elif slot.id not in self._free_at:
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

    def shift_leases(self, seconds: float, now: float) -> None:
        """Move every expiry, and the end of every grace, by so many seconds. None lasts longer than one begun now."""
        for slot in self.slots.values():
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
        if len(self._expiries) > SWEEP_SLACK + 2 * len(self.slots):  # most of it was released long before
            self._watch_again()

    def _watch_again(self) -> None:
        leases = [(slot.lease, slot.id) for slot in self.slots.values() if slot.granted_at is not None]
        self._expiries = [
            (self._free_at.get(slot_id, lease.expires_at), slot_id) for lease, slot_id in leases if lease is not None
        ]
        heapify(self._expiries)

    # -- the store -------------------------------------------------------------------------------

    def save(self) -> None:
        """Store all added, changed and removed slots in one transaction."""
        if self.unsaved:
            if self._token > self._reserved_tokens:  # an upper bound is stored before any token is handed out
                reserved = self._token + TOKENS_AT_ONCE
                self._store.save_state(TOKENS_STATE, str(reserved).encode())
                self._reserved_tokens = reserved
            kept = [self.slots[slot_id] for slot_id in self.unsaved if slot_id in self.slots]
            self._store.save_slots(kept, [slot_id for slot_id in self.unsaved if slot_id not in self.slots])
            self.unsaved.clear()

    async def stored(self) -> None:
        """Wait until everything that has changed is stored. Raises what kept it from being stored."""
        self.check_open()
        if self.unsaved:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self.save_soon()
            await waiting

    def save_soon(self) -> None:
        """Store changes at the end of this turn of the loop, once for all callers."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._save_for_callers)

    def _save_for_callers(self) -> None:
        self._is_scheduled = False
        waiting, self._waiting = self._waiting, []
        failure: Exception | None = None
        try:
            if not self.is_closed:
                self.save()
        except Exception as error:
            failure = error  # its callers get it; the next save includes what is unsaved
            log.warning("slots could not be stored: %s", error, exc_info=not isinstance(error, StoreError))
        for each in waiting:
            if each.done():
                continue
            if failure is None:
                each.set_result(None)
            else:
                each.set_exception(failure)

    def close(self) -> None:
        """Fail the callers that wait. What is granted stays in the store, for the next leader."""
        self.is_closed = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(closed_error())

    def check_open(self) -> None:
        if self.is_closed:
            raise closed_error()

    def next_token(self) -> int:
        """Return a fencing token that is larger than all before it, also those of leaders before."""
        self._token += 1
        return self._token


EXTERNAL_SLOTS = "outside"
"""The namespace of their tickets. It is stored with reports and reasons, so its value stays."""
TICKET_PREFIX = f"{EXTERNAL_SLOTS}:"
SILENT_SECONDS = 60.0
"""How long a program on another machine may be silent before its slot is released: four of its signs of life."""
replace = msgspec.structs.replace


def process_id(pid: int, machine: str = "") -> ProcessId:
    """Return what identifies a process of this machine: a pid alone may be used again."""
    return ProcessId(pid, start_ticks(pid) or 0, boot_id(), machine)


def is_alive(process: ProcessId) -> bool:
    """Return whether the process is there, or may be. One that ended and was not reaped is not.

    With too many open files its start time cannot be read, and on another machine it cannot be seen at all.
    """
    if is_elsewhere(process):
        return True
    ticks = start_ticks(process.pid)
    if ticks is None:
        return os.path.exists(f"/proc/{process.pid}")
    return ticks == process.start_ticks and boot_id() == process.boot_id and not has_ended(process.pid)


def is_elsewhere(process: ProcessId) -> bool:
    """Return whether the process is on another machine."""
    return process.machine not in ("", this_machine())


def is_there(slot: StoredSlot) -> bool:
    """Return whether its program still waits for the slot or uses it.

    A lease that is stored counts until a leader has waited for its renewal: while none leads, nobody can renew it.
    """
    if slot.lease is not None:
        return slot.granted_at is not None
    return slot.holder is not None and is_alive(slot.holder)


def ticket_of(slot: StoredSlot) -> Ticket:
    """Return the slot's ticket. It has no lease in the Governor: this package finds out that its holder is gone."""
    return Ticket(TICKET_PREFIX + slot.id, slot.scopes, "", slot.priority, slot.since, parent=slot.parent, leased=False)


# -- the asking side ----------------------------------------------------------------------------------

READ_SECONDS = 0.2
"""How often a waiting program reads its slot from the store: short for a person, long for the disk."""
LIFE_SECONDS = 15.0
"""How often a program shows a leader on another machine that it is there."""


def holder_id(store: Store, pid: int) -> ProcessId:
    """Return what identifies a process as the holder of a slot in this store."""
    return process_id(pid, this_machine() if store.is_shared else "")


def enclosing_ticket(store: Store, pid: int) -> str | None:
    """Return the ticket of the nearest process above `pid` that has a slot here, or of the session it belongs to."""
    holders = {slot.holder: slot for slot in store.slots() if slot.holder is not None and slot.granted_at is not None}
    for parent in ancestors_of(pid) if holders else ():
        if (slot := holders.get(holder_id(store, parent))) is not None:
            return slot.parent or ticket_of(slot).id
    return None


class ProgramSlot:
    """The slot of this process, one at a time. `ensure_engine` starts an engine where none leads."""

    def __init__(self, store: Store, *, ensure_engine: Callable[[], object]) -> None:
        self._store = store
        self._ensure_engine = ensure_engine
        self._slot: StoredSlot | None = None
        self._shown_at = 0.0
        self._has_warned = False
        self._outage = StoreOutage(SystemClock())

    def acquire(
        self,
        scopes: tuple[str, ...],
        priority: int,
        on_waiting: Callable[[Deferred], None],
        parent: str | None = None,
    ) -> None:
        """Wait for a slot. `on_waiting` is called with each new reason to wait.

        `parent` is the ticket of the session that this process belongs to: its own place is used first.
        """
        slot = StoredSlot(
            id=secrets.token_hex(8),
            scopes=scopes,
            priority=priority,
            holder=holder_id(self._store, os.getpid()),
            parent=parent,
        )
        while not self._send("slot_request", slot=msgspec.to_builtins(slot)):
            time.sleep(READ_SECONDS)
        self._slot = slot
        last: tuple[str, str] | None = None
        while (found := self._read(slot.id)) is None or found.granted_at is None:
            if found is not None and (why := found.waiting) is not None and last != (why.reason, why.scope):
                on_waiting(why)
                last = why.reason, why.scope
            time.sleep(READ_SECONDS)

    def _read(self, slot_id: str) -> StoredSlot | None:
        """Return the slot as the leader stored it; None until a leader has read the request."""
        found: list[StoredSlot | None] = [None]

        def read() -> None:
            self._ensure_engine()
            found.extend(self._store.slots(slot_id))

        self._try(read)
        self.show_life()
        return found[-1]

    def report(self, scope: str, signal: AnySignal) -> None:
        """Report a signal of the program that uses the slot."""
        if self._slot is not None:
            signed = msgspec.structs.replace(signal_without_secrets(signal), ticket=ticket_of(self._slot).id)
            self._send("slot_report", scope=scope, signal=msgspec.to_builtins(signed))

    def release(self) -> None:
        """Give the slot back, or stop waiting for it. What cannot be stored, a leader finds out: the program ends."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._send("slot_release", id=slot.id)

    def show_life(self) -> None:
        """Show a leader on another machine now and then that the program is there."""
        now = time.time()
        if self._slot is None or not self._store.is_shared or 0 <= now - self._shown_at < LIFE_SECONDS:
            return
        if self._send("slot_alive", id=self._slot.id):
            self._shown_at = now
        elif self._shown_at and now - self._shown_at > SILENT_SECONDS and not self._has_warned:
            self._has_warned = True
            log.warning("no sign of life could be stored for a minute: another program may have the slot by now")

    def _send(self, command: str, *, scope: str | None = None, **fields: object) -> bool:
        return self._try(lambda: command_log.send(self._store, command, now=time.time(), scope=scope, **fields))

    def _try(self, use: Callable[[], object]) -> bool:
        """Use the store. Returns whether that was possible: the program continues while the store is away."""
        try:
            use()
        except OUTAGES as error:
            self._outage.begin(error)
            return False
        self._outage.end()
        return True
