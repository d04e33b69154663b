"""Slots for programs that the engine did not start (`paceline exec`), shared with everything else on the machine.

A program asks by a command in the store (`control.slot_*`); whoever leads the home answers in one stored value.
Where no engine leads, the asking program leads for as long as it needs to (`SlotHost`). A holder is known by its
pid and start time: one that died gives its slot back by dying.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence

import msgspec

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import AnySignal
from paceline.engine import control
from paceline.engine.remembered import CommandReader, load_governor, save_governor
from paceline.errors import PacelineError
from paceline.events import Event
from paceline.executors.processes import boot_id, start_ticks
from paceline.store import Store, StoredEvent

log = logging.getLogger("paceline.engine")

OUTSIDE_STATE = "outside"
TICKET_PREFIX = "outside:"


class ProcessId(msgspec.Struct, frozen=True):
    """One process for ever: a pid alone is used again."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        return cls(pid, start_ticks(pid) or 0, boot_id())

    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks and boot_id() == self.boot_id


class OutsideSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One program that waits for a slot or has one. `waiting` says what holds it."""

    id: str
    scopes: tuple[str, ...]
    priority: int
    holder: ProcessId
    is_granted: bool = False
    waiting: Deferred | None = None

    @property
    def ticket(self) -> Ticket:
        return Ticket(TICKET_PREFIX + self.id, self.scopes, priority=self.priority, leased=False)


class OutsideSlots:
    """The leader's side: takes requests in, tells grants, and lets go of holders that are gone."""

    def __init__(self, store: Store, governor: Governor) -> None:
        self._store = store
        self._governor = governor
        self._slots: dict[str, OutsideSlot] = {}
        self._stored = b"{}"

    def recover(self, now: float) -> None:
        """Those that were there before this leader: slots that are held stay held, the others wait anew."""
        for slot in read_slots(self._store).values():
            if slot.holder.is_alive():
                self._slots[slot.id] = slot
                if slot.is_granted:
                    self._governor.adopt(slot.ticket, now=now)
                else:
                    self._ask(slot, now)

    def carry_out(self, commands: Sequence[StoredEvent], now: float) -> None:
        """One that cannot be understood is passed over: it would come again at every pass, and stop all others."""
        for command in commands:
            try:
                self._carry_out(command.event, now)
            except (PacelineError, msgspec.ValidationError, KeyError) as error:
                log.warning("%s could not be carried out: %s", command.event.name, error)

    def _carry_out(self, event: Event, now: float) -> None:
        match event.name.removeprefix(control.PREFIX):
            case "slot_request":
                self._ask(msgspec.convert(event.fields["slot"], OutsideSlot), now)
            case "slot_release":
                self._let_go(str(event.fields["id"]), now)
            case "slot_report":
                signal = msgspec.convert(event.fields["signal"], AnySignal)
                self._governor.report(event.scope or "", signal, now=now)

    def granted(self, effect: Granted) -> None:
        """One that waited has its slot."""
        slot_id = effect.ticket_id.removeprefix(TICKET_PREFIX)
        self._slots[slot_id] = msgspec.structs.replace(self._slots[slot_id], is_granted=True, waiting=None)

    def tidy(self, now: float) -> None:
        """Let go of the dead, and tell the others where they stand."""
        for slot in [slot for slot in self._slots.values() if not slot.holder.is_alive()]:
            self._let_go(slot.id, now)
        for slot in self._slots.values():
            if not slot.is_granted:
                why = self._governor.why(slot.ticket.id, now=now)
                self._slots[slot.id] = msgspec.structs.replace(slot, waiting=why)
        self._save()

    def _ask(self, slot: OutsideSlot, now: float) -> None:
        verdict = self._governor.request(slot.ticket, now=now)
        self._slots[slot.id] = slot
        if isinstance(verdict, Granted):
            self.granted(verdict)

    def _let_go(self, slot_id: str, now: float) -> None:
        slot = self._slots.pop(slot_id, None)
        if slot is not None and slot.is_granted:
            self._governor.release(slot.ticket.id, now=now)
        elif slot is not None:
            self._governor.cancel(slot.ticket.id, now=now)

    def _save(self) -> None:
        encoded = msgspec.json.encode(self._slots)
        if encoded != self._stored:
            self._store.save_state(OUTSIDE_STATE, encoded)
            self._stored = encoded


class SlotHost:
    """Leads a home that no engine leads, for the time a program needs: it serves slots and runs no campaign.

    `running` are the tickets of sessions that outlived their engine: they count, and are left alone.
    """

    def __init__(
        self,
        store: Store,
        settings: GovernorSettings,
        *,
        owner: str,
        lease: float,
        running: Callable[[], Iterable[Ticket]] = tuple,
    ) -> None:
        self._store = store
        self._settings = settings
        self._owner = owner
        self._lease = lease
        self._running = running
        self._governor: Governor | None = None

    def serve(self, now: float) -> None:
        """One round: lead if nobody else does, and answer those who ask."""
        if not self._store.lead(self._owner, until=now + self._lease, now=now):
            self._governor = None
        elif self._governor is None:
            self._take_over(now)
        else:
            self._answer(self._governor, now)

    def resign(self, now: float) -> None:
        """Answer once more, so that our own release is carried out, and let others lead."""
        if self._governor is not None:
            self._answer(self._governor, now)
            self._governor = None
            self._store.resign(self._owner)

    def _take_over(self, now: float) -> None:
        """What others have learnt and stored since counts, so it is read only now."""
        self._governor = load_governor(self._store, self._settings, now)
        for ticket in self._running():
            self._governor.adopt(ticket, now=now)
        self._outside = OutsideSlots(self._store, self._governor)
        self._outside.recover(now)
        self._commands = CommandReader(self._store)
        self._answer(self._governor, now)

    def _answer(self, governor: Governor, now: float) -> None:
        commands = self._commands.read()
        control.carry_out(governor, commands, now)
        self._outside.carry_out(commands, now)
        for effect in governor.advance(now=now):
            if isinstance(effect, Granted):
                self._outside.granted(effect)
        if commands:
            save_governor(self._store, governor)
        self._outside.tidy(now)
        self._commands.done()


class OutsideClient:
    """The asking side: one slot of one program."""

    def __init__(self, store: Store, scopes: tuple[str, ...], *, priority: int, holder: ProcessId) -> None:
        self._store = store
        self._slot = OutsideSlot(id=secrets.token_hex(8), scopes=scopes, priority=priority, holder=holder)

    def request(self, now: float) -> None:
        control.send(self._store, "slot_request", now=now, slot=msgspec.to_builtins(self._slot))

    def look(self) -> OutsideSlot | None:
        """Where it stands; None until a leader has taken note."""
        return read_slots(self._store).get(self._slot.id)

    def report(self, scope: str, signal: AnySignal, now: float) -> None:
        """Tell what the program met; the signal counts as this slot's."""
        signed = msgspec.structs.replace(signal, ticket=self._slot.ticket.id)
        control.send(self._store, "slot_report", now=now, scope=scope, signal=msgspec.to_builtins(signed))

    def release(self, now: float) -> None:
        control.send(self._store, "slot_release", now=now, id=self._slot.id)


def read_slots(store: Store) -> dict[str, OutsideSlot]:
    """All programs that have or wait for a slot, as the leader last told."""
    stored = store.load_state(OUTSIDE_STATE)
    return msgspec.json.decode(stored, type=dict[str, OutsideSlot]) if stored else {}
