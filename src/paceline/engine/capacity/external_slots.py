"""Slots of programs that the engine did not start: who holds one, and how a program of this machine asks.

They share all limits with its sessions. There are two kinds of holder. A program of this machine (`paceline exec`) is
known by its pid and start time, gives its slot back by exiting, and asks with a command in the store, where the leader
also answers. A program that is known by its HTTP calls alone has a lease that it renews (`leases.py`). Either way the
slot is stored, so that the next leader counts it first. Never here: how an engine is started where none leads.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable

import msgspec

from paceline.clock import SystemClock
from paceline.core import Deferred, Ticket
from paceline.core.signals import AnySignal
from paceline.engine import command_log
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES
from paceline.executors.proc_table import ancestors_of, boot_id, has_ended, start_ticks
from paceline.leadership.election import this_machine
from paceline.redaction import signal_without_secrets
from paceline.store import ProcessId, Store, StoredSlot

log = logging.getLogger("paceline.engine")

LOST_GRACE_SECONDS = 30.0
"""How long a lost slot still counts: its holder learns of the loss at its next call, and ends its work."""
EXTERNAL_SLOTS = "outside"
"""The namespace of their tickets. It is stored with reports and reasons, so its value stays."""
TICKET_PREFIX = f"{EXTERNAL_SLOTS}:"
SILENT_SECONDS = 60.0
"""How long a program on another machine may be silent before its slot is released: four of its signs of life."""


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


def is_there(slot: StoredSlot, silent_seconds: float = 0.0) -> bool:
    """Return whether its program still waits for the slot or uses it.

    A lease that is stored counts until a leader has waited for its renewal: while none leads, nobody can renew it. A
    holder on another machine is gone once it has shown no sign of life for long.
    """
    if slot.lease is not None:
        return slot.granted_at is not None
    if slot.holder is not None and is_elsewhere(slot.holder):
        return silent_seconds <= SILENT_SECONDS
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
        self._store, self._ensure_engine = store, ensure_engine
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
        name, holder = secrets.token_hex(8), holder_id(self._store, os.getpid())
        slot = StoredSlot(id=name, scopes=scopes, priority=priority, holder=holder, parent=parent)
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
        found: list[StoredSlot] = []

        def read() -> None:
            self._ensure_engine()
            found.extend(self._store.slots(slot_id))

        self._try(read)
        self.show_life()
        return found[0] if found else None

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
