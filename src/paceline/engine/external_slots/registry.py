"""Slots of programs that the engine did not start, as the leader sees them. They share all limits with its sessions.

There are two kinds of holder. A program of this machine (`paceline exec`) is known by its pid and start time, gives
its slot back by exiting, and asks with a command in the store (`process_client.py`). A program that is known by its
HTTP calls alone has a lease that it renews (`leases.py`). Either way the slot is stored, so that the next leader
counts it first.
"""

import logging
import math
import os
from collections.abc import Callable, Sequence

import msgspec

from paceline.core import Deferred, Governor, Granted, Ticket
from paceline.core.signals import AnySignal
from paceline.core.values.verdicts import Verdict
from paceline.engine import command_log
from paceline.engine.external_slots.slot_table import SlotTable
from paceline.engine.governor_state import save_governor
from paceline.errors import PacelineError
from paceline.events import Event
from paceline.executors.proc_table import boot_id, start_ticks
from paceline.metrics import MetricsRegistry
from paceline.shared_leadership import this_machine
from paceline.store import ProcessId, Store, StoredEvent, StoredSlot

log = logging.getLogger("paceline.engine")

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
    """Return whether the process is there, or may be.

    With too many open files its start time cannot be read, and on another machine it cannot be seen at all.
    """
    if is_elsewhere(process):
        return True
    ticks = start_ticks(process.pid)
    if ticks is None:
        return os.path.exists(f"/proc/{process.pid}")
    return ticks == process.start_ticks and boot_id() == process.boot_id


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
        self, store: Store, governor: Governor, emit: Emit | None = None, metrics: MetricsRegistry | None = None
    ) -> None:
        self._store = store
        self._governor = governor
        self._emit = emit or (lambda name, **fields: None)
        self._metrics = metrics or MetricsRegistry()
        self.table = SlotTable(store)
        self._has_learnt = False
        self._present_at = -math.inf
        self._heard_at: dict[str, float] = {}
        """When the holders on other machines have last shown that they are there, by the ids of their slots."""
        self.on_leased: Callable[[StoredSlot], object] = lambda slot: None
        """Called with every slot that was granted, before it is stored."""

    def recover(self, now: float) -> None:
        """Count the slots that were granted by the leader before, and ask again for those that waited."""
        waiting: list[StoredSlot] = []
        for slot in self._store.slots():
            if not is_there(slot):
                self.table.drop_stored(slot.id)
            elif slot.granted_at is None:
                waiting.append(slot)
            else:
                self.table.put(slot)
                self._governor.adopt(ticket_of(slot), now=now)
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
        self.on_leased(slot)
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
        self._governor.report(scope, signal, now=now)
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

    def _is_silent(self, slot_id: str, holder: ProcessId, now: float) -> bool:
        """Return whether a holder on another machine has shown no sign of life for long."""
        return is_elsewhere(holder) and now - self._heard_at.setdefault(slot_id, now) > SILENT_SECONDS

    # -- commands of programs -----------------------------------------------------------------------

    def carry_out(self, commands: Sequence[StoredEvent], now: float) -> None:
        """Carry out commands. One that cannot be read is logged and skipped: it must not stop the others."""
        for command in commands:
            try:
                self._carry_out(command.event, now)
            except (PacelineError, msgspec.ValidationError, KeyError) as error:
                log.warning("%s could not be carried out: %s", command.event.name, error)

    def _carry_out(self, event: Event, now: float) -> None:
        match event.name.removeprefix(command_log.PREFIX):
            case "slot_request":
                self.ask(msgspec.convert(event.fields["slot"], StoredSlot), now)
            case "slot_alive":
                self._heard_at[str(event.fields["id"])] = now
            case "slot_release":
                self.give_back(str(event.fields["id"]), now)
            case "slot_report":
                self._report(event.scope or "", msgspec.convert(event.fields["signal"], AnySignal), now)

    # -- recovery ----------------------------------------------------------------------------------

    def _ask_again(self, slot: StoredSlot, now: float) -> None:
        try:
            self.ask(slot, now)
        except PacelineError as error:  # limits have changed so that its scopes cannot be requested any more
            log.warning("the request for slot %s was dropped: %s", slot.id, error)
            self.table.drop_stored(slot.id)
