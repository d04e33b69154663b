"""All machines of one leading engine: its own, and those whose workers have joined.

Here: which machine a login or a session is on, and when a silent host counts as lost. What must survive a change of the
leader is stored: the home and the lease of every worker that has joined. Never here: what workers ask for
(`worker_requests.py`), and where a unit runs.
"""

import logging
import math
from collections.abc import Callable
from typing import Final

import msgspec

from paceline.agents.account import split_login
from paceline.clock import seconds_since_boot
from paceline.engine.hosts.host import LOCAL, Host, LocalHost
from paceline.engine.hosts.host_seat import Clocks, HostSeat
from paceline.engine.hosts.remote_host import RemoteHost
from paceline.engine.hosts.remote_session import RemoteHandle
from paceline.engine.hosts.stored_hosts import JOINED_STATE, stored_hosts
from paceline.engine.settings import EngineSettings
from paceline.executors import Handle
from paceline.hosts.host_facts import HostFacts
from paceline.hosts.host_state import HostState
from paceline.hosts.known_hosts import known_hosts
from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST
from paceline.store import Store, Unit

log = logging.getLogger("paceline.engine")

SETTINGS_SECONDS: Final = 1.0
"""How often the hosts that people add are read."""

Emit = Callable[..., None]


class HostRegistry:
    """The hosts of one leader. All methods are called on its loop."""

    def __init__(
        self,
        store: Store,
        local: LocalHost,
        *,
        settings: EngineSettings,
        owner: str,
        now: Callable[[], float],
        elapsed: Callable[[], float] = seconds_since_boot,
        is_leader: bool = True,
    ) -> None:
        self.local = local
        self.is_leader = is_leader
        self.problems: dict[str, str] = {}
        """Why the worker of a host could not be started, by name. The daemon that starts workers keeps it."""
        self.wake: Callable[[], None] = lambda: None
        self.emit: Emit = lambda *_, **__: None
        self._store = store
        self._owner = owner
        self._configured = settings.hosts
        self._clocks = Clocks(now, elapsed)
        self._seats: dict[str, HostSeat] = {}
        self._settings: dict[str, HostSettings] = {}
        self._settings_read_at = -math.inf
        self.read_settings()
        for name, stored in stored_hosts(store).items():
            self._new_seat(name, stored.facts).remember(stored)

    # -- which machine -------------------------------------------------------------------------

    def of(self, login: str | None) -> Host:
        """Return the machine of a login."""
        _, name = split_login(login or "")
        return self.local if name == LOCAL else self.seat(name).host

    def of_unit(self, unit: Unit) -> Host:
        return self.of(unit.account)

    def named(self, name: str | None) -> Host:
        """Return the host of that name. The leader's own machine has many: those of all leaders before."""
        return self.seat(name).host if name and self.is_remote(name) else self.local

    def is_remote(self, name: str) -> bool:
        """Return whether the name is that of a host with a worker."""
        return name != LOCAL_HOST and (name in self._seats or name in self._settings)

    def stop(self, handle: Handle) -> None:
        self._of_handle(handle).stop(handle)

    def kill(self, handle: Handle) -> None:
        self._of_handle(handle).kill(handle)

    def archive(self, handle: Handle) -> None:
        self._of_handle(handle).archive(handle)

    def _of_handle(self, handle: Handle) -> Host:
        return self.seat(handle.host).host if isinstance(handle, RemoteHandle) else self.local

    # -- who is there --------------------------------------------------------------------------

    def step(self) -> None:
        """Move the work of hosts on, and give up the sessions of those that have been silent for too long."""
        if self._clocks.elapsed() - self._settings_read_at >= SETTINGS_SECONDS:
            self.read_settings()
        for name, seat in self._seats.items():
            seat.host.jobs.step()
            if seat.is_overdue:
                reason = f"{name} has not answered for {seat.silence / 60:.0f} min"
                log.warning("%s: its sessions have ended by now, and their units are given back", reason)
                self.emit("host.lost", scope=f"host:{name}", sessions=seat.host.sessions, reason=reason)
                seat.lose(reason)

    def answer_all(self) -> None:
        """Let workers that wait for orders have their answers now: this process ends, or does not lead any more."""
        for seat in self._seats.values():
            seat.host.news.set()

    def states(self) -> list[HostState]:
        """Return every known host now, also those whose workers never joined, and `local` if it has settings."""
        names = dict.fromkeys((*self._settings, *self._seats))
        return [self._state(name) for name in names]

    def remote_states(self) -> list[HostState]:
        """Return the hosts with workers."""
        return [state for state in self.states() if state.name != LOCAL_HOST]

    def _state(self, name: str) -> HostState:
        seat = self._seats.get(name)
        settings = self.settings_of(name) or HostSettings(name=name)
        absent = HostState(name=name, settings=settings, presence="joined" if name == LOCAL_HOST else "absent")
        state = absent if seat is None else seat.state(settings)
        return msgspec.structs.replace(state, problem=self.problems[name]) if name in self.problems else state

    def settings_of(self, name: str) -> HostSettings | None:
        """Return the settings of a host that is known by paceline.toml or by `paceline hosts add`."""
        return self._settings.get(name)

    def read_settings(self) -> None:
        """Read which hosts were added or removed. A removed one is forgotten once nothing runs there."""
        self._settings = {**known_hosts(self._store), **self._configured}
        self._settings_read_at = self._clocks.elapsed()
        removed = [name for name, seat in self._seats.items() if name not in self._settings and not seat.host.is_busy]
        if removed and self.is_leader:
            self._seats = {name: seat for name, seat in self._seats.items() if name not in removed}
            self.save()

    def seat(self, name: str) -> HostSeat:
        """Return the place of a host, also of one that is not known any more but has sessions."""
        return self._seats.get(name) or self._new_seat(name, None)

    def _new_seat(self, name: str, facts: HostFacts | None) -> HostSeat:
        settings = self.settings_of(name)
        host = RemoteHost(name, facts, self.local.jobs, owner=self._owner)
        host.jobs.remote = None if settings is None else settings.git_remote
        seat = self._seats[name] = HostSeat(host, self._clocks)
        return seat

    def save(self) -> None:
        """Store what the next leader must know."""
        stored = {name: seat.stored for name, seat in self._seats.items() if seat.stored is not None}
        self._store.save_state(JOINED_STATE, msgspec.json.encode(stored))
