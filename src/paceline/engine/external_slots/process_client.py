"""The asking side of a program that reaches the store: one slot, requested and released by commands there."""

import secrets

import msgspec

from paceline.core.signals import AnySignal
from paceline.engine import command_log
from paceline.engine.external_slots.registry import process_id, ticket_of
from paceline.executors.proc_table import ancestors_of
from paceline.shared_leadership import this_machine
from paceline.store import ProcessId, Store, StoredSlot


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


class ProcessClient:
    """One slot of one program. The leader answers in the store."""

    def __init__(
        self, store: Store, scopes: tuple[str, ...], *, priority: int, holder: ProcessId, parent: str | None = None
    ) -> None:
        self._store = store
        self._slot = StoredSlot(id=secrets.token_hex(8), scopes=scopes, priority=priority, holder=holder, parent=parent)

    @property
    def ticket_id(self) -> str:
        return ticket_of(self._slot).id

    def request(self, now: float) -> None:
        command_log.send(self._store, "slot_request", now=now, slot=msgspec.to_builtins(self._slot))

    def read(self) -> StoredSlot | None:
        """Return the slot as the leader stored it; None until a leader has read the request."""
        return self._store.slot(self._slot.id)

    def report(self, scope: str, signal: AnySignal, now: float) -> None:
        """Report a signal that the program received, as one of this slot."""
        signed = msgspec.structs.replace(signal, ticket=ticket_of(self._slot).id)
        command_log.send(self._store, "slot_report", now=now, scope=scope, signal=msgspec.to_builtins(signed))

    def show_life(self, now: float) -> None:
        """Show a leader on another machine that the program is there."""
        command_log.send(self._store, "slot_alive", now=now, id=self._slot.id)

    def release(self, now: float) -> None:
        command_log.send(self._store, "slot_release", now=now, id=self._slot.id)
