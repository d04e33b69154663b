"""A slot for a program that Paceline did not start: asked of the engine, or decided here while none runs.

All programs of a home ask in the same way. Where no engine leads, one of them leads for the time it is there
(`SlotHost`) and steps back as soon as an engine comes.
"""

import os
import time
from collections.abc import Callable

from paceline.cli.wiring import Home, resign
from paceline.core import Deferred, Ticket
from paceline.core.signals import AnySignal
from paceline.engine.external_slots.registry import OutsideClient, SlotHost, process_id
from paceline.executors.spool import is_locked
from paceline.leadership import ENGINE, HOST, Leader, new_owner
from paceline.settings import governor_settings

LOOK_SECONDS = 0.2
SERVE_SECONDS = 0.5
"""How often a host does its rounds while its own program runs; an engine waits longer than this for it to step back."""


class SlotDesk:
    """Gets one slot at a time for this process."""

    def __init__(self, home: Home, scopes: tuple[str, ...], priority: int) -> None:
        self._home = home
        self._scopes = scopes
        self._priority = priority
        self._client: OutsideClient | None = None
        self._host: SlotHost | None = None
        self._lock = home.lock(HOST)
        self._counted: set[str] = set()
        self._served_at = 0.0
        home.offline_state(time.time()).governor.check(Ticket("check", scopes, priority=priority))

    def acquire(self, on_waiting: Callable[[Deferred], None]) -> None:
        """Wait for a slot. `on_waiting` hears what holds it, once for each reason."""
        client = OutsideClient(self._home.store, self._scopes, priority=self._priority, holder=process_id(os.getpid()))
        client.request(time.time())
        self._client = client
        told: tuple[str, str] | None = None
        while True:
            self.serve(at_once=True)
            slot = client.look()
            if slot is not None and slot.granted_at is not None:
                return
            if slot is not None and slot.waiting is not None:
                reason = (slot.waiting.reason, slot.waiting.scope)
                if reason != told:
                    on_waiting(slot.waiting)
                    told = reason
            time.sleep(LOOK_SECONDS)

    def report(self, scope: str, signal: AnySignal) -> None:
        if self._client is not None:
            self._client.report(scope, signal, time.time())

    def release(self) -> None:
        """Give the slot back, or leave the line."""
        if self._client is not None:
            self._client.release(time.time())
            self._client = None
            self.serve(at_once=True)

    def close(self) -> None:
        self.release()
        self._step_back()

    # -- leading while no engine does ------------------------------------------------------------

    def serve(self, *, at_once: bool = False) -> None:
        """One round of whoever decides, if that is this process; else see whether it should be."""
        now = time.time()
        if not at_once and now - self._served_at < SERVE_SECONDS:
            return
        self._served_at = now
        if self._home.lock(ENGINE).holder() is not None:
            self._step_back()
        elif self._host is not None or self._take_lead(now):
            self._recount(now)

    def _take_lead(self, now: float) -> bool:
        owner = new_owner()
        if not self._lock.take(Leader(owner=owner, pid=os.getpid(), since=now)):
            return False
        store, settings = self._home.store, self._home.settings
        resign(store, self._lock.previous)
        resign(store, self._home.lock(ENGINE).left_behind())
        self._host = SlotHost(
            store, governor_settings(settings), owner=owner, lease=settings.engine.lease, running=self._tickets
        )
        return True

    def _recount(self, now: float) -> None:
        """A round; sessions of an engine that has stopped count as long as they run, and then no longer."""
        assert self._host is not None
        live = self._live_sessions()
        if self._counted - live:
            self._host.resign(now)  # it counts anew when it leads again, which is at once
        self._counted = live
        self._host.serve(now)

    def _live_sessions(self) -> set[str]:
        spool = self._home.spool()
        folders = {unit.id: spool.folder(unit.attempt_id or "") for unit in self._home.store.running_units()}
        return {unit_id for unit_id, folder in folders.items() if folder is not None and is_locked(folder)}

    def _tickets(self) -> list[Ticket]:
        offline = self._home.offline_state(time.time())
        live = self._live_sessions()
        return [ticket for unit_id, ticket in offline.tickets.items() if unit_id in live]

    def _step_back(self) -> None:
        if self._host is not None:
            self._host.resign(time.time())
            self._host = None
        self._lock.release()
