"""Slots of programs that the engine did not start: how a program asks, and how the leader sees them.

They share all limits with its sessions. There are two kinds of holder. A program of this machine (`paceline exec`) is
known by its pid and start time, gives its slot back by exiting, and asks with a command in the store, where the leader
also answers. A program that is known by its HTTP calls alone has a lease that it renews (`leases.py`). Either way the
slot is stored, so that the next leader counts it first. Never here: how an engine is started where none leads.
"""

import asyncio
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

import msgspec

from paceline.clock import SystemClock
from paceline.core import Deferred, Governor, Granted, Ticket, Verdict
from paceline.core.signals import AnySignal
from paceline.engine import command_log
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.command_log import stored_number
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES, CapacityError, PacelineError, StoreError
from paceline.events import Event
from paceline.executors.proc_table import ancestors_of, boot_id, has_ended, start_ticks
from paceline.leadership.election import this_machine
from paceline.metrics import MetricsRegistry
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
        self._slots: dict[str, StoredSlot] = {}
        self._by_key: dict[str, str] = {}
        self._expiries: list[tuple[float, str]] = []
        self._free_at: dict[str, float] = {}
        self._lost: dict[str, None] = {}
        self._unsaved: dict[str, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._is_scheduled = False
        self.is_closed = False
        self._token = self._reserved_tokens = stored_number(store, TOKENS_STATE)

    def __iter__(self) -> Iterator[StoredSlot]:
        return iter(list(self._slots.values()))

    def __len__(self) -> int:
        return len(self._slots)

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
    def is_idle(self) -> bool:
        """Whether there are no slots, and the store knows that."""
        return not (self._slots or self._unsaved)

    def save(self) -> None:
        """Store all added, changed and removed slots in one transaction."""
        if self._unsaved:
            self._reserve_tokens()
            kept = [self._slots[slot_id] for slot_id in self._unsaved if slot_id in self._slots]
            self._store.save_slots(kept, [slot_id for slot_id in self._unsaved if slot_id not in self._slots])
            self._unsaved.clear()

    async def stored(self) -> None:
        """Wait until everything that has changed is stored. Raises what kept it from being stored."""
        self.check_open()
        if self._unsaved:
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

    def _reserve_tokens(self) -> None:
        """Store an upper bound of the tokens that may be handed out, before any of them is."""
        if self._token > self._reserved_tokens:
            reserved = self._token + TOKENS_AT_ONCE
            self._store.save_state(TOKENS_STATE, str(reserved).encode())
            self._reserved_tokens = reserved


EXTERNAL_SLOTS = "outside"
"""The namespace of their tickets. It is stored with reports and reasons, so its value stays."""
TICKET_PREFIX = f"{EXTERNAL_SLOTS}:"
SILENT_SECONDS = 60.0
"""How long a program on another machine may be silent before its slot is released: four of its signs of life."""
PRESENCE_STATE = "slots_present_at"
PRESENCE_SECONDS = 10.0
"""How often a leader stores that it is there: the credit after a kill is too long by at most this."""

replace = msgspec.structs.replace
Emit = Callable[..., object]


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


class ExternalSlots:
    """Asks the Governor for slots, and gives back those whose holder is gone. `save` stores what changed since."""

    def __init__(
        self,
        store: Store,
        governor: Governor,
        emit: Emit,
        metrics: MetricsRegistry,
        *,
        on_leased: Callable[[StoredSlot], object] = lambda slot: None,
    ) -> None:
        """`on_leased` is called with every slot that was granted, before it is stored."""
        self._store = store
        self._governor = governor
        self._emit = emit
        self._metrics = metrics
        self._on_leased = on_leased
        self.table = SlotTable(store)
        self._has_learnt = False
        self._present_at = -math.inf
        self._heard_at: dict[str, float] = {}
        """When the holders on other machines have last shown that they are there, by the ids of their slots."""

    def recover(self, now: float) -> None:
        """Count the slots that were granted by the leader before, and ask again for those that waited."""
        waiting: list[StoredSlot] = []
        for slot in self._store.slots():
            if slot.granted_at is not None:
                self._governor.adopt(ticket_of(slot), now=now)
            if not is_there(slot):
                self.table.drop_stored(slot.id)
                self._governor.abandon(ticket_of(slot).id, now=now)  # its provider may still count it
            elif slot.granted_at is None:
                waiting.append(slot)
            else:
                self.table.put(slot)
        self.table.shift_leases(self._seconds_without_leader(now), now)
        for slot in waiting:
            self._ask_again(slot, now)

    # -- a slot from request to release ------------------------------------------------------------

    def ask(self, slot: StoredSlot, now: float, *, may_wait: bool = True) -> Verdict:
        """Request a slot; with `may_wait=False` it is granted now or not at all."""
        ask = self._governor.request if may_wait else self._governor.try_request
        verdict = ask(ticket_of(slot), now=now)
        if isinstance(verdict, Granted):
            self.table.put(slot)
            self.on_granted(verdict)
        elif may_wait:
            self.table.put(slot)
        return verdict

    def on_granted(self, effect: Granted) -> bool:
        """Take note of a grant. Returns whether its program will look for the answer in the store."""
        slot = self.table.get(effect.ticket_id.removeprefix(TICKET_PREFIX))
        if slot is None:  # it gave up in the same moment
            self._governor.abandon(effect.ticket_id, now=effect.granted_at)
            return False
        lease = slot.lease
        if lease is not None:
            lease = replace(lease, token=self.table.next_token(), expires_at=effect.granted_at + lease.ttl)
        slot = replace(slot, granted_at=effect.granted_at, waiting=None, lease=lease)
        self.table.put(slot)
        self._metrics.granted(effect.waited)
        self._emit("slot.granted", scope=slot.scopes[-1], ticket=slot.id, waited=effect.waited)
        self._on_leased(slot)
        return lease is None

    def renew(self, slot: StoredSlot, now: float) -> StoredSlot:
        """Start the lease again from now."""
        assert slot.lease is not None
        renewed = replace(slot, lease=replace(slot.lease, expires_at=now + slot.lease.ttl))
        self.table.renew(renewed)
        return renewed

    def give_back(self, slot_id: str, now: float, *, was_used: bool = True) -> bool:
        """Release the slot, or stop waiting for it. Returns whether there was one.

        From a slot that was not used nothing is learnt.
        """
        slot = self.table.pop(slot_id)
        self._heard_at.pop(slot_id, None)
        if slot is None:
            return False
        ticket_id = ticket_of(slot).id
        if slot.granted_at is None:
            self._governor.cancel(ticket_id, now=now)
            return True
        if was_used:
            self._governor.release(ticket_id, now=now)
        else:
            self._governor.abandon(ticket_id, now=now)
        self._emit("slot.released", scope=slot.scopes[-1], ticket=slot_id, held=max(0.0, now - slot.granted_at))
        return True

    def report(self, slot: StoredSlot, signal: AnySignal, now: float) -> None:
        """Report what the slot's provider answered."""
        self._report(slot.scopes[-1], replace(signal, ticket=ticket_of(slot).id), now)
        self.mark_learnt()

    def mark_learnt(self) -> None:
        """Store the Governor with the next `tidy`: a program reported something."""
        self._has_learnt = True

    def why(self, slot: StoredSlot, now: float) -> Deferred | None:
        """Return why the slot waits."""
        return self._governor.why(ticket_of(slot).id, now=now)

    def _report(self, scope: str, signal: AnySignal, now: float) -> None:
        self._governor.report(scope, signal_without_secrets(signal), now=now)
        self._metrics.reported(scope, signal)

    # -- time ------------------------------------------------------------------------------------

    def reclaim(self, now: float) -> None:
        """Report the leases that were not renewed in time as lost, and give back those whose grace is over."""
        for slot, free_at in self.table.lose_expired(now):
            self._emit("slot.lost", scope=slot.scopes[-1], ticket=slot.id, reclaimed_at=free_at)
        for slot in self.table.pop_lost(now):
            self._emit("slot.reclaimed", scope=slot.scopes[-1], ticket=slot.id)
            self._governor.abandon(ticket_of(slot).id, now=now)

    def note_presence(self, now: float, *, at_once: bool = False) -> None:
        """Store that leases could be renewed up to now. The next leader credits them with the time since then."""
        if self.table.next_expiry() is not None and (at_once or not 0 <= now - self._present_at < PRESENCE_SECONDS):
            self._store.save_state(PRESENCE_STATE, repr(now).encode())
            self._present_at = now

    def _seconds_without_leader(self, now: float) -> float:
        """Return how long nobody could renew a lease. A store of an older version does not say: all begin again."""
        try:
            return max(0.0, now - float(self._store.load_state(PRESENCE_STATE) or b"0"))
        except ValueError:
            return now

    def tidy(self, now: float) -> None:
        """Release slots of dead holders, refresh wait reasons, and store both in one transaction."""
        self.reclaim(now)
        for slot in self.table:
            if slot.holder is None:
                continue
            if not is_there(slot) or self._is_silent(slot.id, slot.holder, now):
                self.give_back(slot.id, now)
            elif slot.granted_at is None and (why := self.why(slot, now)) != slot.waiting:
                self.table.put(replace(slot, waiting=why))
        if self._has_learnt:
            save_governor(self._store, self._governor)
            self._has_learnt = False
        self.table.save()

    @property
    def is_busy(self) -> bool:
        """Whether there are slots to look after, or something of them is not stored yet."""
        return self._has_learnt or not self.table.is_idle

    def _is_silent(self, slot_id: str, holder: ProcessId, now: float) -> bool:
        """Return whether a holder on another machine has shown no sign of life for long."""
        return is_elsewhere(holder) and now - self._heard_at.setdefault(slot_id, now) > SILENT_SECONDS

    # -- commands of programs -----------------------------------------------------------------------

    def carry_out(self, command: str, event: Event, now: float) -> None:
        """Carry out the command of a program."""
        match command:
            case "slot_request":
                self.ask(msgspec.convert(event.fields["slot"], StoredSlot), now)
            case "slot_alive":
                self._heard_at[str(event.fields["id"])] = now
            case "slot_release":
                self.give_back(str(event.fields["id"]), now)
            case "slot_report":
                self._report(event.scope or "", msgspec.convert(event.fields["signal"], AnySignal), now)
                self.mark_learnt()

    # -- recovery ----------------------------------------------------------------------------------

    def _ask_again(self, slot: StoredSlot, now: float) -> None:
        try:
            self.ask(slot, now)
        except PacelineError as error:  # limits have changed so that its scopes cannot be requested any more
            log.warning("the request for slot %s was dropped: %s", slot.id, error)
            self.table.drop_stored(slot.id)


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
