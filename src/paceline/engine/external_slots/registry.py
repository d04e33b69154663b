"""Slots for programs that the engine did not start, shared with everything else on the machine. The leader's side.

One kind of slot, two kinds of holder. A program of this machine (`paceline exec`) is known by its pid and start time,
and gives its slot back by dying; it asks by a command in the store. A program that is known by its HTTP calls alone
has a lease that it renews (`leases.py`). Either way the slot is stored, so that who leads next counts it first.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import AnySignal
from paceline.core.values.verdicts import Verdict
from paceline.engine import command_log as control
from paceline.engine.governor_state import CommandReader, load_governor, save_governor
from paceline.errors import PacelineError
from paceline.events import Event
from paceline.executors.proc_table import boot_id, start_ticks
from paceline.metrics import MetricsRegistry
from paceline.store import ProcessId, Store, StoredEvent, StoredSlot

log = logging.getLogger("paceline.engine")

EXTERNAL_SLOTS = "outside"
"""The namespace of their tickets. It is stored with reports and reasons, so its value stays."""
TICKET_PREFIX = f"{EXTERNAL_SLOTS}:"
TOKENS_STATE = "slot_tokens"
TOKENS_AT_ONCE = 1000
REMEMBERED_LOSSES = 10_000
LEAST_SWEPT = 1000

replace = msgspec.structs.replace
Tell = Callable[..., object]


def process_id(pid: int) -> ProcessId:
    return ProcessId(pid, start_ticks(pid) or 0, boot_id())


def is_alive(process: ProcessId) -> bool:
    return start_ticks(process.pid) == process.start_ticks and boot_id() == process.boot_id


def is_there(slot: StoredSlot, now: float) -> bool:
    """Whether somebody still waits for it or holds it."""
    if slot.lease is not None:
        return slot.granted_at is not None and now < slot.lease.expires_at
    return slot.holder is not None and is_alive(slot.holder)


def ticket_of(slot: StoredSlot) -> Ticket:
    """The Governor keeps no time for it: that its holder is gone is found out here."""
    return Ticket(TICKET_PREFIX + slot.id, slot.scopes, "", slot.priority, slot.since, parent=slot.parent, leased=False)


class OutsideSlots:
    """Takes requests in, tells grants, and lets go of holders that are gone. `save` stores what has changed since."""

    def __init__(
        self, store: Store, governor: Governor, tell: Tell | None = None, metrics: MetricsRegistry | None = None
    ) -> None:
        self._store = store
        self._governor = governor
        self._tell = tell or (lambda name, **fields: None)
        self._metrics = metrics or MetricsRegistry()
        self._slots: dict[str, StoredSlot] = {}
        self._by_key: dict[str, str] = {}
        self._due: list[tuple[float, str]] = []
        self._lost: dict[str, None] = {}
        self._unsaved: dict[str, None] = {}
        self._token = self._reserved_tokens = 0
        self._has_learnt = False
        self.on_granted: Callable[[StoredSlot], object] = lambda slot: None

    def recover(self, now: float) -> None:
        """Those that were there before this leader: slots that are held stay held, the others wait anew."""
        self._token = self._reserved_tokens = int(self._store.load_state(TOKENS_STATE) or b"0")
        waiting: list[StoredSlot] = []
        for slot in self._store.slots():
            if not is_there(slot, now):
                self._unsaved[slot.id] = None
                self._tell_if_lost(slot, now)
            elif slot.granted_at is None:
                waiting.append(slot)
            else:
                self._keep(slot)
                self._governor.adopt(ticket_of(slot), now=now)
        for slot in waiting:
            self._ask_or_drop(slot, now)

    # -- asking, getting, giving back ------------------------------------------------------------

    def ask(self, slot: StoredSlot, now: float, *, may_wait: bool = True) -> Verdict:
        """Put it in line, or with `may_wait=False` let it in now or not at all."""
        ask = self._governor.request if may_wait else self._governor.try_request
        verdict = ask(ticket_of(slot), now=now)
        if isinstance(verdict, Granted):
            self._keep(slot)
            self.granted(verdict)
        elif may_wait:
            self._keep(slot)
        return verdict

    def granted(self, effect: Granted) -> bool:
        """One that asked has its slot; whether it will look for the answer in the store."""
        slot = self._slots.get(effect.ticket_id.removeprefix(TICKET_PREFIX))
        if slot is None:  # it left in this very moment
            self._governor.abandon(effect.ticket_id, now=effect.granted_at)
            return False
        lease = slot.lease
        if lease is not None:
            lease = replace(lease, token=self._next_token(), expires_at=effect.granted_at + lease.ttl)
        slot = replace(slot, granted_at=effect.granted_at, waiting=None, lease=lease)
        self._keep(slot)
        self._metrics.granted(effect.waited)
        self._tell("slot.granted", scope=slot.scopes[-1], ticket=slot.id, waited=effect.waited)
        self.on_granted(slot)
        return lease is None

    def renew(self, slot: StoredSlot, now: float) -> StoredSlot:
        """Its lease runs anew from now."""
        assert slot.lease is not None
        renewed = replace(slot, lease=replace(slot.lease, expires_at=now + slot.lease.ttl))
        self._slots[slot.id] = renewed
        self._unsaved[slot.id] = None
        return renewed

    def let_go(self, slot_id: str, now: float, *, was_used: bool = True) -> bool:
        """Give its slot back, or leave the line; whether it was there. From one that was not used nothing is learnt."""
        slot = self._forget(slot_id)
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
        self._tell("slot.released", scope=slot.scopes[-1], ticket=slot_id, held=max(0.0, now - slot.granted_at))
        return True

    def report(self, slot: StoredSlot, signal: AnySignal, now: float) -> None:
        """What the slot's provider answered."""
        self._report(slot.scopes[-1], replace(signal, ticket=ticket_of(slot).id), now)
        self.learnt()

    def learnt(self) -> None:
        """The Governor was told something by a program outside: it is stored when the pass goes by."""
        self._has_learnt = True

    def _report(self, scope: str, signal: AnySignal, now: float) -> None:
        self._governor.report(scope, signal, now=now)
        self._metrics.reported(scope, signal)

    # -- looking ---------------------------------------------------------------------------------

    def find(self, slot_id: str) -> StoredSlot | None:
        return self._slots.get(slot_id)

    def find_by_key(self, key: str) -> StoredSlot | None:
        slot_id = self._by_key.get(key)
        return None if slot_id is None else self._slots[slot_id]

    def why(self, slot: StoredSlot, now: float) -> Deferred | None:
        """What holds one that waits."""
        return self._governor.why(ticket_of(slot).id, now=now)

    def was_lost(self, slot_id: str) -> bool:
        """Whether its lease ran out; remembered for the last few thousand, by this leader."""
        return slot_id in self._lost

    # -- time ------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When the first lease may run out."""
        return self._due[0][0] if self._due else None

    def reclaim(self, now: float) -> None:
        """Give on what was leased to those who did not renew."""
        while self._due and self._due[0][0] <= now:
            slot = self._slots.get(heappop(self._due)[1])
            if slot is None or slot.lease is None:
                continue  # released long ago
            if slot.lease.expires_at > now:
                heappush(self._due, (slot.lease.expires_at, slot.id))
                continue
            self._forget(slot.id)
            self._tell_if_lost(slot, now)
            self._governor.abandon(ticket_of(slot).id, now=now)

    def tidy(self, now: float) -> None:
        """Let go of the gone, tell the others where they stand, and store all of it at once."""
        self.reclaim(now)
        of_processes = [slot for slot in self._slots.values() if slot.holder is not None]
        for slot in of_processes:
            if not is_there(slot, now):
                self.let_go(slot.id, now)
            elif slot.granted_at is None and (why := self.why(slot, now)) != slot.waiting:
                self._keep(replace(slot, waiting=why))
        if self._has_learnt:
            save_governor(self._store, self._governor)
            self._has_learnt = False
        self.save()

    # -- commands of programs on this machine --------------------------------------------------------

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
                self.ask(msgspec.convert(event.fields["slot"], StoredSlot), now)
            case "slot_release":
                self.let_go(str(event.fields["id"]), now)
            case "slot_report":
                self._report(event.scope or "", msgspec.convert(event.fields["signal"], AnySignal), now)

    # -- what is kept ----------------------------------------------------------------------------

    @property
    def is_saved(self) -> bool:
        return not self._unsaved

    def save(self) -> None:
        """One transaction for all that came, changed and went."""
        if self._unsaved:
            self._reserve_tokens()
            kept = [self._slots[slot_id] for slot_id in self._unsaved if slot_id in self._slots]
            self._store.save_slots(kept, [slot_id for slot_id in self._unsaved if slot_id not in self._slots])
            self._unsaved.clear()

    def _keep(self, slot: StoredSlot) -> None:
        """One that waits for a lease is not stored: it waits for as long as its call lasts."""
        self._slots[slot.id] = slot
        lease = slot.lease
        if lease is not None and lease.key is not None:
            self._by_key[lease.key] = slot.id
        if lease is None or slot.granted_at is not None:
            self._unsaved[slot.id] = None
        if lease is not None and slot.granted_at is not None:
            self._watch(lease.expires_at, slot.id)

    def _watch(self, expires_at: float, slot_id: str) -> None:
        heappush(self._due, (expires_at, slot_id))
        if len(self._due) > LEAST_SWEPT + 2 * len(self._slots):  # most of it was released long before
            leases = [(slot.lease, slot.id) for slot in self._slots.values() if slot.granted_at is not None]
            self._due = [(lease.expires_at, slot_id) for lease, slot_id in leases if lease is not None]
            heapify(self._due)

    def _forget(self, slot_id: str) -> StoredSlot | None:
        slot = self._slots.pop(slot_id, None)
        if slot is not None:
            if slot.lease is not None and slot.lease.key is not None:
                del self._by_key[slot.lease.key]
            if slot.lease is None or slot.granted_at is not None:
                self._unsaved[slot_id] = None
        return slot

    def _tell_if_lost(self, slot: StoredSlot, now: float) -> None:
        if slot.lease is not None:
            self._tell("slot.lost", scope=slot.scopes[-1], ticket=slot.id, reclaimed_at=now)
            self._tell("slot.reclaimed", scope=slot.scopes[-1], ticket=slot.id)
            self._lost[slot.id] = None
            if len(self._lost) > REMEMBERED_LOSSES:
                del self._lost[next(iter(self._lost))]

    def _ask_or_drop(self, slot: StoredSlot, now: float) -> None:
        try:
            self.ask(slot, now)
        except PacelineError as error:  # the limits have changed so that it must be asked in another way
            log.warning("%s waits for a slot no longer: %s", slot.id, error)
            self._unsaved[slot.id] = None

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    def _reserve_tokens(self) -> None:
        """Tokens grow over restarts too: those that may be told soon are set apart in the store."""
        if self._token > self._reserved_tokens:
            reserved = self._token + TOKENS_AT_ONCE
            self._store.save_state(TOKENS_STATE, str(reserved).encode())
            self._reserved_tokens = reserved


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
        self._slot = StoredSlot(id=secrets.token_hex(8), scopes=scopes, priority=priority, holder=holder)

    def request(self, now: float) -> None:
        control.send(self._store, "slot_request", now=now, slot=msgspec.to_builtins(self._slot))

    def look(self) -> StoredSlot | None:
        """Where it stands; None until a leader has taken note."""
        return self._store.slot(self._slot.id)

    def report(self, scope: str, signal: AnySignal, now: float) -> None:
        """Tell what the program met; the signal counts as this slot's."""
        signed = replace(signal, ticket=ticket_of(self._slot).id)
        control.send(self._store, "slot_report", now=now, scope=scope, signal=msgspec.to_builtins(signed))

    def release(self, now: float) -> None:
        control.send(self._store, "slot_release", now=now, id=self._slot.id)
