"""Slots for a program that Paceline did not start, with or without an engine.

All programs of a home request slots in the same way. While no engine leads the home, one of the programs leads it
(`SlotHost`), and steps back as soon as an engine starts. Here: leading without an engine. Never here: campaigns, and
how programs agree on who leads; a `Seat` knows that.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from paceline.clock import SystemClock
from paceline.core import Deferred, Governor, GovernorSettings, Granted, PollUsage, Ticket
from paceline.core.signals import AnySignal
from paceline.engine import command_log
from paceline.engine.external_slots.process_client import ProcessClient, holder_id
from paceline.engine.external_slots.registry import SILENT_SECONDS, ExternalSlots
from paceline.engine.external_slots.thread_polls import ThreadPolls
from paceline.engine.governor_state import load_governor
from paceline.engine.offline_state import OfflineState
from paceline.engine.settings import EngineSettings
from paceline.engine.store_outage import OUTAGES, StoreOutage
from paceline.errors import LeadLost
from paceline.events import Event
from paceline.executors.spool import Spool, is_locked
from paceline.limiter.usage_polls import UsageSource
from paceline.store import Store, StoredSlot

log = logging.getLogger("paceline.engine")

READ_SECONDS = 0.2
"""How often a waiting program reads its slot from the store: short for a person, long for the disk."""
SERVE_SECONDS = 0.5
"""How often a host serves while its own program runs. An engine that starts waits longer than this for it."""


LIFE_SECONDS = 15.0
"""How often a program shows a leader on another machine that it is there."""


class Seat(Protocol):
    """The lead of a home without an engine, which one program at a time can have."""

    lease: float | None
    """How long the lead lasts in the store; None for as long as that of an engine."""

    def engine_leads(self) -> bool:
        """Return whether an engine leads, or wants to."""

    def take(self, now: float) -> str | None:
        """Return the name under which this program may try to lead; None if another one does."""

    def announce(self) -> None:
        """Store who leads now. Called inside the transaction that takes the lead."""

    def leave(self) -> None:
        """Let others take the lead."""

    def is_elsewhere(self, attempt_id: str) -> bool:
        """Return whether the attempt was started on another machine."""


class SlotHost:
    """Leads a home that no engine leads, for as long as a program needs it: it grants slots and runs no campaign.

    `running` returns the tickets of sessions that outlived their engine: they count, and are left alone.
    """

    def __init__(
        self,
        store: Store,
        settings: GovernorSettings,
        *,
        owner: str,
        lease: float,
        running: Callable[[], Iterable[Ticket]] = tuple,
        usage: Mapping[str, UsageSource] | None = None,
        announce: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._announce = announce
        self._settings = settings
        self._owner = owner
        self._lease = lease
        self._running = running
        self._polls = ThreadPolls(usage or {})
        self._governor: Governor | None = None
        self._events: list[Event] = []
        self._now = 0.0

    def serve(self, now: float) -> None:
        """Lead if no other process does, and answer requests. All of it is one transaction."""
        self._serve(now, is_last=False)

    def resign(self, now: float) -> None:
        """Answer once more, so that our own release is carried out, and give up the lead."""
        if self._governor is not None:
            self._serve(now, is_last=True)
            self._governor = None

    def forget(self) -> None:
        """Drop everything: another process leads. From now on this one stores as others do."""
        self._governor = None
        self._store.resign(self._owner)

    def _serve(self, now: float, *, is_last: bool) -> None:
        """Answer requests. A host that has lost the lead drops what it knows: it grants nothing and stores nothing."""
        try:
            with self._store.together():
                if self._store.leader() != self._owner:  # another one may have led, and even have resigned since
                    self._governor = None
                if is_last and self._governor is None:
                    return
                if not self._store.lead(self._owner, until=now + self._lease, now=now):
                    self._governor = None
                    return
                if self._governor is None:
                    self._take_over(now)
                self._answer(now)
                if is_last:
                    self._store.resign(self._owner)
        except BaseException:
            self._governor = None  # it may know of grants that were not stored
            raise

    def _take_over(self, now: float) -> None:
        """Load what other leaders have learnt and stored. It is read only now, so that nothing is missed."""
        self._announce()
        self._governor = load_governor(self._store, self._settings, now)
        for ticket in self._running():
            self._governor.adopt(ticket, now=now)
        self._events = []
        self._slots = ExternalSlots(self._store, self._governor, self._emit)
        self._slots.recover(now)
        self._commands = command_log.CommandReader(self._store)
        self._polls.forget()

    def _answer(self, now: float) -> None:
        governor = self._governor
        assert governor is not None
        self._now = now
        commands = self._commands.read()
        command_log.carry_out(governor, commands, now)
        self._slots.carry_out(commands, now)
        for scope, usage in self._polls.answers():
            governor.report(scope, usage, now=now)
        for effect in governor.advance(now=now):
            match effect:
                case Granted():
                    self._slots.on_granted(effect)
                case Event():
                    self._events.append(effect)
                    self._slots.mark_learnt()
                case PollUsage():
                    self._polls.ask(effect.scope)
        if commands:
            self._slots.mark_learnt()
        self._slots.tidy(now)
        if self._events:
            self._commands.skip_own(self._store.append_events(self._events), len(self._events))
            self._events = []
        self._commands.done()

    def _emit(self, name: str, *, scope: str | None = None, **fields: object) -> None:
        self._events.append(Event(name, self._now, scope, None, fields))


class ProcessSlot:
    """The slot of this process, one at a time. `seat` is the lead of the home while no engine has it."""

    def __init__(
        self,
        store: Store,
        settings: EngineSettings,
        spool: Spool,
        *,
        seat: Seat,
        usage: Mapping[str, UsageSource] | None = None,
    ) -> None:
        self._store = store
        self._usage = dict(usage or {})
        self._settings = settings
        self._spool = spool
        self._seat = seat
        self._client: ProcessClient | None = None
        self._host: SlotHost | None = None
        self._counted: set[str] = set()
        self._served_at = 0.0
        self._shown_at = 0.0
        self._has_warned = False
        self._outage = StoreOutage(SystemClock())

    def check(self, scopes: tuple[str, ...], priority: int) -> None:
        """Raise `InvalidInput` if no slot could ever be granted for these scopes and this priority."""
        offline = OfflineState(self._store, self._settings, time.time())
        offline.governor.check(Ticket("check", scopes, priority=priority))

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
        holder = holder_id(self._store, os.getpid())
        client = ProcessClient(self._store, scopes, priority=priority, holder=holder, parent=parent)
        while not self._stored(lambda: client.request(time.time())):
            time.sleep(READ_SECONDS)
        self._client = client
        last: tuple[str, str] | None = None
        while True:
            self.serve(at_once=True)
            slot = self._read(client)
            if slot is not None and slot.granted_at is not None:
                return
            if slot is not None and slot.waiting is not None:
                reason = (slot.waiting.reason, slot.waiting.scope)
                if reason != last:
                    on_waiting(slot.waiting)
                    last = reason
            time.sleep(READ_SECONDS)

    def wait(self, until: float) -> None:
        """Let time pass without a slot. Others are still served if this process leads."""
        while (left := until - time.time()) > 0:
            self.serve()
            time.sleep(min(READ_SECONDS, left))

    def report(self, scope: str, signal: AnySignal) -> None:
        """Report a signal of the program that uses the slot."""
        client = self._client
        if client is not None:
            self._stored(lambda: client.report(scope, signal, time.time()))

    def release(self) -> None:
        """Give the slot back, or stop waiting for it."""
        client = self._client
        if client is not None:
            self._client = None
            self._stored(lambda: client.release(time.time()))  # else the leader finds that the program has ended
            self.serve(at_once=True)

    def close(self) -> None:
        """Give the slot back, and the lead if this process has it."""
        self.release()
        self._stored(self._step_back)

    # -- leading while no engine does ------------------------------------------------------------

    def serve(self, *, at_once: bool = False) -> None:
        """Do one round if this process leads, or if it should; at most every half second unless `at_once`."""
        now = time.time()
        if not at_once and now - self._served_at < SERVE_SECONDS:
            return
        self._served_at = now
        self._stored(lambda: self._serve(now))
        self._show_life(now)

    def _serve(self, now: float) -> None:
        if self._seat.engine_leads():
            self._step_back()
        elif self._host is not None or self._take_lead(now):
            self._serve_as_host(now)

    def _show_life(self, now: float) -> None:
        client = self._client
        if client is None or not self._store.is_shared or 0 <= now - self._shown_at < LIFE_SECONDS:
            return
        if self._stored(lambda: client.show_life(now)):
            self._shown_at = now
        elif self._shown_at and now - self._shown_at > SILENT_SECONDS and not self._has_warned:
            self._has_warned = True
            log.warning("no sign of life could be stored for a minute: another program may have the slot by now")

    def _stored(self, store: Callable[[], object]) -> bool:
        """Store something. Returns whether that was possible: the program continues while the store is away.

        A host that has lost the lead knows nothing more. From then on it stores as others do.
        """
        try:
            store()
        except LeadLost:
            self._forget_host()
            return False
        except OUTAGES as error:
            self._outage.begin(error)
            return False
        self._outage.end()
        return True

    def _read(self, client: ProcessClient) -> StoredSlot | None:
        found: list[StoredSlot | None] = []
        self._stored(lambda: found.append(client.read()))
        return found[0] if found else None

    def _forget_host(self) -> None:
        if self._host is not None:
            self._host.forget()
            self._host = None

    def _take_lead(self, now: float) -> bool:
        owner = self._seat.take(now)
        if owner is None:
            return False
        self._host = SlotHost(
            self._store,
            self._settings.governor,
            owner=owner,
            lease=self._seat.lease or self._settings.lease,
            running=self._tickets,
            usage=self._usage,
            announce=self._seat.announce,
        )
        return True

    def _serve_as_host(self, now: float) -> None:
        """Serve once. Sessions of an engine that has stopped count until they end."""
        assert self._host is not None
        live = self._live_sessions()
        if self._counted - live:
            self._host.resign(now)  # it counts sessions again as soon as it takes the lead back
        self._counted = live
        self._host.serve(now)

    def _live_sessions(self) -> set[str]:
        """Return the units whose sessions run. Whether those on another machine have ended cannot be seen from here."""
        return {unit.id for unit in self._store.running_units() if self._has_session(unit.attempt_id or "")}

    def _has_session(self, attempt_id: str) -> bool:
        folder = self._spool.folder(attempt_id)
        return is_locked(folder) if folder is not None else self._seat.is_elsewhere(attempt_id)

    def _tickets(self) -> list[Ticket]:
        offline = OfflineState(self._store, self._settings, time.time())
        live = self._live_sessions()
        return [ticket for unit_id, ticket in offline.tickets.items() if unit_id in live]

    def _step_back(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.resign(time.time())
        self._seat.leave()
