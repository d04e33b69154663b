"""The asking side of a program that reaches the store: one slot, requested and released by commands there.

The leading engine answers in the store. Never here: how an engine is started where none leads.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable

import msgspec

from paceline.clock import SystemClock
from paceline.core import Deferred
from paceline.core.signals import AnySignal
from paceline.engine import command_log
from paceline.engine.capacity.external_slots import SILENT_SECONDS, process_id, ticket_of
from paceline.engine.store_outage import StoreOutage
from paceline.errors import OUTAGES
from paceline.executors.proc_table import ancestors_of
from paceline.leadership.election import this_machine
from paceline.redaction import signal_without_secrets
from paceline.store import ProcessId, Store, StoredSlot

log = logging.getLogger("paceline.engine")

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
