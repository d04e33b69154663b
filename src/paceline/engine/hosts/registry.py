"""All machines of one leading engine: its own, and those whose workers have joined.

Here: who has joined, who is silent, and when a silent host counts as lost. What must survive a change of the leader is
stored: the home and the lease of every worker that has joined. Never here: HTTP, and where a unit runs.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from paceline.agents.account import Account, portable_account, split_login
from paceline.clock import seconds_since_boot
from paceline.engine.hosts.host import LOCAL, Host, LocalHost
from paceline.engine.hosts.remote_host import RemoteHost
from paceline.engine.hosts.remote_session import RemoteHandle
from paceline.engine.settings import EngineSettings
from paceline.errors import HostTaken, NotJoined, UnknownName, VersionMismatch
from paceline.executors import Handle
from paceline.hosts.host_state import HostState, Presence
from paceline.hosts.known_hosts import known_hosts
from paceline.hosts.messages import (
    PROTOCOL,
    Call,
    CallReport,
    FactsReport,
    HostFacts,
    HostLoad,
    Joined,
    JoinRequest,
    Orders,
    OrdersRequest,
    ProbedAccount,
    Reports,
    ReportsTaken,
    SessionReport,
)
from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST
from paceline.store import Store, Unit

log = logging.getLogger("paceline.engine")

JOINED_STATE: Final = "hosts_joined"
LOSS_MARGIN_SECONDS: Final = 60.0
"""Waited beyond the lease of a silent host: its worker ends its sessions at the lease, which takes seconds."""
SILENT_SECONDS: Final = 15.0
"""Without a word for this long, a host gets nothing new: its worker reports every few seconds."""
SETTINGS_SECONDS: Final = 1.0
"""How often the hosts that people add are read."""
LONGEST_POLL_SECONDS: Final = 25.0
"""How long a request for orders is held open: shorter than proxies wait for an answer."""

Emit = Callable[..., None]


class StoredHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the next leader must know of a host whose worker has joined."""

    worker: str
    host_lease: float
    facts: HostFacts


class _Seat(msgspec.Struct):
    """One host and its worker, as far as this leader has heard of them."""

    host: RemoteHost
    lease: float
    """The lease that its worker goes by, which may be that of earlier settings."""
    worker: str | None = None
    joining: str = ""
    joined_at: float | None = None
    heard_at: float | None = None
    heard_since: float = -math.inf
    """The same on a clock that nobody sets."""
    load: HostLoad = HostLoad()
    is_leaving: bool = False
    is_lost: bool = False
    last_report: int = 0


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
        self._store = store
        self._owner = owner
        self._engine = settings
        self._now = now
        self._elapsed = elapsed
        self._started = elapsed()
        self._seats: dict[str, _Seat] = {}
        self._settings: dict[str, HostSettings] = {}
        self._settings_read_at = -math.inf
        self.wake: Callable[[], None] = lambda: None
        self.emit: Emit = lambda *_, **__: None
        self._load()

    def _load(self) -> None:
        self._read_settings()
        for name, entry in _stored_hosts(self._store).items():
            seat = self._new_seat(name, self.settings_of(name) or HostSettings(name=name), entry.facts)
            seat.lease = max(seat.lease, entry.host_lease)
            seat.worker = entry.worker
            seat.heard_since = self._started  # it may have heard of the leader before until a moment ago
            seat.heard_at = self._now()

    # -- for the engine ------------------------------------------------------------------------

    def of(self, login: str | None) -> Host:
        """Return the machine of a login."""
        _, name = split_login(login or "")
        return self.local if name == LOCAL else self._seat(name).host

    def of_unit(self, unit: Unit) -> Host:
        return self.of(unit.account)

    def named(self, name: str | None) -> Host:
        """Return the host of that name. The leader's own machine has many: those of all leaders before."""
        return self._seat(name).host if name and self.is_remote(name) else self.local

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
        if not isinstance(handle, RemoteHandle):
            return self.local
        return self._seat(handle.host).host

    def step(self) -> None:
        """Move the work of hosts on, and give up the sessions of those that have been silent for too long."""
        if self._elapsed() - self._settings_read_at >= SETTINGS_SECONDS:
            self._read_settings()
        for name, seat in self._seats.items():
            seat.host.jobs.step()
            silence = self._silence(seat)
            if seat.is_lost or silence <= seat.lease + LOSS_MARGIN_SECONDS:
                continue
            seat.is_lost = True
            seat.joining = ""
            reason = f"{name} has not answered for {silence / 60:.0f} min"
            log.warning("%s: its sessions have ended by now, and their units are given back", reason)
            self.emit("host.lost", scope=f"host:{name}", sessions=seat.host.sessions, reason=reason)
            seat.host.lose_all(reason)

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
        if seat is None:
            return HostState(name=name, settings=settings, presence="joined" if name == LOCAL_HOST else "absent")
        return HostState(
            name=name,
            settings=settings,
            presence=self._presence(seat),
            facts=seat.host.facts,
            load=seat.load,
            sessions=seat.host.sessions,
            joined_at=seat.joined_at,
            heard_at=seat.heard_at,
        )

    def _presence(self, seat: _Seat) -> Presence:
        if seat.is_lost:
            return "lost"
        if seat.is_leaving:
            return "leaving"
        if not seat.joining or self._silence(seat) > SILENT_SECONDS:
            return "silent"
        return "joined"

    def _silence(self, seat: _Seat) -> float:
        return self._elapsed() - seat.heard_since

    def settings_of(self, name: str) -> HostSettings | None:
        """Return the settings of a host that is known by paceline.toml or by `paceline hosts add`."""
        return self._settings.get(name)

    def _read_settings(self) -> None:
        """Read which hosts were added or removed."""
        self._settings = {**known_hosts(self._store), **self._engine.hosts}
        self._settings_read_at = self._elapsed()

    def _seat(self, name: str) -> _Seat:
        seat = self._seats.get(name)
        return self._new_seat(name, self.settings_of(name) or HostSettings(name=name), None) if seat is None else seat

    def _new_seat(self, name: str, settings: HostSettings, facts: HostFacts | None) -> _Seat:
        host = RemoteHost(name, facts, self.local.jobs, owner=self._owner)
        host.jobs.remote = settings.git_remote
        seat = self._seats[name] = _Seat(host, settings.host_lease, heard_since=self._started)
        return seat

    # -- for workers ---------------------------------------------------------------------------

    def join(self, name: str, request: JoinRequest) -> Joined:
        """Let the worker of a host join. Raise if the host has another one, or if it speaks another language."""
        if request.protocol != PROTOCOL:
            raise VersionMismatch(
                f"the worker of {name} is Paceline {request.facts.version} (protocol {request.protocol}), and the "
                f"engine speaks protocol {PROTOCOL}: install the same version on both"
            )
        self._read_settings()
        settings = self.settings_of(name)
        if settings is None or name == LOCAL_HOST:
            raise UnknownName(f"there is no host {name!r:.80}: add it with `paceline hosts add`, or in paceline.toml")
        seat = self._seat(name)
        if seat.worker not in (None, request.worker) and not self._may_replace(seat):
            where = "unknown" if seat.host.facts is None else f"{seat.host.facts.home} on {seat.host.facts.hostname}"
            raise HostTaken(
                f"host {name} has a worker already ({where}): stop that one, or give this one a name of its own "
                "with `paceline hosts add`"
            )
        seat.lease, seat.host.jobs.remote = settings.host_lease, settings.git_remote
        seat.worker, seat.joining = request.worker, secrets.token_hex(8)
        seat.joined_at, seat.last_report = self._now(), 0
        seat.is_leaving = seat.is_lost = False
        seat.host.facts = request.facts
        self._hear(seat)
        self._save()
        seat.host.welcome(request.attempts)
        self.emit("host.joined", scope=f"host:{name}", hostname=request.facts.hostname, version=request.facts.version)
        log.info("the worker of %s has joined (%s, %s)", name, request.facts.hostname, request.facts.home)
        self.wake()
        return Joined(
            joining=seat.joining,
            leader=self._owner,
            host_lease=settings.host_lease,
            now=self._now(),
            accounts=tuple(
                _probed(each, self._engine.logins, self.local.user_home) for each in self._engine.campaign_accounts
            ),
            agents=tuple(self._engine.logins),
            programs=self._engine.programs,
        )

    def _may_replace(self, seat: _Seat) -> bool:
        """Return whether a worker of another home may take the name: nothing can run in the home before."""
        return seat.is_lost or (seat.is_leaving and not seat.host.sessions)

    async def orders(self, name: str, request: OrdersRequest) -> Orders:
        """Return the orders of a host, as soon as there are any."""
        seat = self._joined(name, request.joining)
        orders = seat.host.orders_after(request.after)
        if not orders and request.wait > 0:
            try:
                async with asyncio.timeout(min(request.wait, LONGEST_POLL_SECONDS)):
                    await seat.host.news.wait()
            except TimeoutError:
                pass
            seat = self._joined(name, request.joining)
            orders = seat.host.orders_after(request.after)
        return Orders(now=self._now(), orders=orders)

    def report(self, name: str, reports: Reports) -> ReportsTaken:
        """Take in what a worker reports. Reports that were seen before are left out."""
        seat = self._joined(name, reports.joining)
        seat.load, seat.is_leaving = reports.load, reports.is_leaving
        has_news = False
        for each in reports.reports:
            if each.number <= seat.last_report:
                continue
            seat.last_report = each.number
            has_news = True
            match each.report:
                case SessionReport() as report:
                    seat.host.take_session(report)
                case CallReport() as report:
                    seat.host.jobs.take(report)
                case FactsReport() as report:
                    seat.host.facts = report.facts
                    self._save()
        if has_news or reports.is_leaving:
            self.wake()
        return ReportsTaken(now=self._now(), through=seat.last_report)

    def _joined(self, name: str, joining: str) -> _Seat:
        """Return the host of a joining, which has given a sign of life. Raise `NotJoined` if it is over."""
        seat = self._seats.get(name)
        if seat is None or not joining or seat.joining != joining:
            raise NotJoined(f"this engine does not know that joining of {name}: join again")
        self._hear(seat)
        return seat

    def call_of(self, name: str, call_id: str) -> Call:
        """Return a call that the worker of the host is at."""
        seat = self._seats.get(name)
        call = None if seat is None else seat.host.jobs.call_of(call_id)
        if call is None:
            raise UnknownName(f"host {name} has no call {call_id!r:.80}")
        return call

    def receive(self, name: str, call_id: str, file: Path) -> None:
        """Take a file that the worker of the host has sent for a call."""
        self._seat(name).host.jobs.receive(call_id, file)

    def _hear(self, seat: _Seat) -> None:
        seat.heard_at, seat.heard_since = self._now(), self._elapsed()

    def _save(self) -> None:
        stored = {
            name: StoredHost(worker=seat.worker, host_lease=seat.lease, facts=seat.host.facts)
            for name, seat in self._seats.items()
            if seat.worker is not None and seat.host.facts is not None
        }
        self._store.save_state(JOINED_STATE, msgspec.json.encode(stored))

    def forget(self, name: str) -> None:
        """Forget a host that was removed."""
        seat = self._seats.pop(name, None)
        if seat is not None:
            seat.host.lose_all(f"the host {name} was removed")
            self._save()


def stored_host_states(store: Store, configured: Mapping[str, HostSettings]) -> list[HostState]:
    """Return the hosts as a process knows them that does not lead: nobody tells it who is there now."""
    settings = {**known_hosts(store), **configured}
    joined = _stored_hosts(store)
    names = [name for name in dict.fromkeys((*settings, *joined)) if name != LOCAL_HOST]
    return [
        HostState(
            name=name,
            settings=settings.get(name) or HostSettings(name=name),
            presence="silent" if name in joined else "absent",
            facts=joined[name].facts if name in joined else None,
        )
        for name in names
    ]


def _stored_hosts(store: Store) -> dict[str, StoredHost]:
    stored = store.load_state(JOINED_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, StoredHost])


def _probed(account: Account, logins: Mapping[str, Account], user_home: str | None) -> ProbedAccount:
    """Return what a worker needs to find the account's login."""
    return ProbedAccount(
        account=account.id,
        provider=account.provider,
        env=portable_account(account, user_home).env,
        key_env=account.key_env,
        agents=tuple(agent for agent, login in logins.items() if login.provider == account.provider),
        needs_login=not account.via_gateway,
    )
