"""All machines of one leading engine, its own and those whose workers have joined, and what workers ask for.

Here: which machine a login or a session is on, and what of it must survive a change of the leader: the home and the
lease of every worker that has joined. Never here: where a unit runs.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from paceline.agents.account import login_on, split_login
from paceline.clock import seconds_since_boot
from paceline.errors import NotJoined, UnknownName, VersionMismatch
from paceline.executors.interface import Executor, Handle
from paceline.hosts import messages
from paceline.hosts.leader.host import LOCAL, Host, LocalHost, RemoteHost, RemoteSession
from paceline.settings import LOCAL_HOST, HostSettings
from paceline.store import Campaign, Store, Unit, UnitResult

log = logging.getLogger("paceline.engine")

LONGEST_POLL_SECONDS: Final = 25.0
"""How long a request for orders is held open: shorter than proxies wait for an answer."""

Emit = Callable[..., None]
NO_HOSTS: Final[Mapping[str, messages.StoredHost]] = {}


class HostRegistry:
    """The hosts of one leader. All methods are called on its loop.

    `own` is the leader's own machine as a host of its fleet, by its name, if it is one.
    """

    def __init__(
        self,
        store: Store,
        local: LocalHost,
        *,
        configured: Mapping[str, HostSettings],
        owner: str,
        now: Callable[[], float],
        elapsed: Callable[[], float] = seconds_since_boot,
        own: Mapping[str, messages.StoredHost] = NO_HOSTS,
        emit: Emit = lambda *_, **__: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.local = local
        self._own = own
        self.problems: dict[str, str] = {}
        """Why the worker of a host could not be started, by name. The daemon that starts workers keeps it."""
        self.worker_settings = messages.WorkerSettings()
        """What workers are answered when they join."""
        self.emit, self.wake = emit, wake
        self._store = store
        self._owner = owner
        self._configured = configured
        self._now, self._elapsed = now, elapsed
        self._remote: dict[str, RemoteHost] = {}
        self.settings: dict[str, HostSettings] = {}
        """The hosts that are known by paceline.toml or by `paceline hosts add`."""
        self.read_settings()
        for name, stored in messages.stored_hosts(store).items():
            if name not in own:
                self.remote(name, stored.facts).remember(stored)
        if own:
            self.save()

    @property
    def fleet_name(self) -> str | None:
        """The name of the leader's own machine among the hosts of its fleet."""
        return next(iter(self._own), None)

    # -- which machine -------------------------------------------------------------------------

    def of(self, login: str | None) -> Host:
        """Return the machine of a login."""
        _, name = split_login(login or "")
        return self.local if name == LOCAL or name in self._own else self.remote(name)

    def of_unit(self, unit: Unit) -> Host:
        return self.of(unit.account)

    def named(self, name: str | None) -> Host:
        """Return the host of that name. The leader's own machine has many: those of all leaders before."""
        return self.remote(name) if name and self.is_remote(name) else self.local

    def machine_of(self, result: UnitResult) -> str:
        """Return the host that has the workspace of a unit, also one that was removed; '' for the leader's machine."""
        name = result.host or ""
        is_elsewhere = name not in self._own and (result.is_remote or self.is_remote(name))
        return name if is_elsewhere else LOCAL

    def is_remote(self, name: str) -> bool:
        """Return whether the name is that of a host with a worker."""
        return name not in (LOCAL_HOST, *self._own) and (name in self._remote or name in self.settings)

    def holder_of(self, handle: Handle) -> RemoteHost | Executor:
        """Return what stops, kills and archives the session."""
        return self.remote(handle.host) if isinstance(handle, RemoteSession) else self.local.executor

    # -- who is there --------------------------------------------------------------------------

    @property
    def has_workers(self) -> bool:
        """Whether workers have joined, or sessions may run on other machines."""
        return bool(self._remote)

    def step(self) -> None:
        """Move the work of hosts on, and give up the sessions of those that have been silent for too long."""
        for name, host in self._remote.items():
            host.jobs.step()
            running = host.running
            if reason := host.lose_if_overdue():
                log.warning("%s: its sessions have ended by now, and their units are given back", reason)
                self.emit("host.lost", scope=f"host:{name}", sessions=running, reason=reason)
        self._forget_removed()

    def answer_all(self) -> None:
        """Let workers that wait for orders have their answers now: this process ends, or does not lead any more."""
        for host in self._remote.values():
            host.news.set()

    def states(self) -> list[messages.HostState]:
        """Return every known host now, also those whose workers never joined, and `local` if it has settings."""
        names = dict.fromkeys((*self.settings, *self._remote))
        return [self._state(name) for name in names if name not in self._own]

    def remote_states(self) -> list[messages.HostState]:
        """Return the hosts with workers."""
        return [state for state in self.states() if state.name != LOCAL_HOST]

    def _state(self, name: str) -> messages.HostState:
        host = self._remote.get(name)
        settings = self.settings.get(name) or HostSettings(name=name)
        absent = messages.HostState(name=name, settings=settings, presence="joined" if name == LOCAL_HOST else "absent")
        state = absent if host is None else host.host_state(settings)
        return msgspec.structs.replace(state, problem=self.problems[name]) if name in self.problems else state

    def read_settings(self) -> None:
        """Read which hosts were added or removed."""
        self.settings = {**messages.known_hosts(self._store), **self._configured}
        self._forget_removed()

    def _forget_removed(self) -> None:
        """Forget the hosts that were removed and where nothing runs any more."""
        kept = {name: host for name, host in self._remote.items() if name in self.settings or host.is_busy}
        if len(kept) < len(self._remote):
            self._remote = kept
            self.save()

    def remote(self, name: str, facts: messages.HostFacts | None = None) -> RemoteHost:
        """Return a host with a worker, also one that is not known any more but has sessions."""
        host = self._remote.get(name)
        if host is None:
            host = self._remote[name] = RemoteHost(
                name, facts, self.local.jobs, owner=self._owner, now=self._now, elapsed=self._elapsed
            )
            host.jobs.remote = self.settings[name].git_remote if name in self.settings else None
        return host

    def move_lead(self, campaigns: Iterable[Campaign], accounts: Collection[str]) -> None:
        """Take the lead on this machine of a fleet: what was `local` is on the machine before, and what is here is.

        `accounts` are those whose logins units may have.
        """
        for own in self._own:
            with self._store.together():
                before = messages.local_machine(self._store)
                if before == own:
                    continue
                for campaign in campaigns:
                    for account in {*accounts, *campaign.accounts}:
                        if before is not None:
                            self._store.rename_account(campaign.name, account, login_on(account, before))
                        self._store.rename_account(campaign.name, login_on(account, own), account)
                self._store.save_state(messages.LOCAL_STATE, own.encode())

    def save(self) -> None:
        """Store what the next leader must know."""
        stored = {name: host.stored for name, host in self._remote.items() if host.stored is not None} | {**self._own}
        self._store.save_state(messages.JOINED_STATE, msgspec.json.encode(stored))

    # -- what workers ask for ------------------------------------------------------------------

    def join(self, name: str, request: messages.JoinRequest) -> messages.Joined:
        """Let the worker of a host join. Raise if the host has another one, or if it speaks another language."""
        if request.protocol != messages.PROTOCOL:
            raise VersionMismatch(
                f"the worker of {name} is Paceline {request.facts.version} (protocol {request.protocol}), and the "
                f"engine speaks protocol {messages.PROTOCOL}: install the same version on both"
            )
        self.read_settings()
        settings = self.settings.get(name)
        if settings is None or not self.is_remote(name):
            raise UnknownName(f"there is no host {name!r:.80}: add it with `paceline hosts add`, or in paceline.toml")
        host = self.remote(name)
        host.check_place(request)
        host.join(request, settings.host_lease)
        host.jobs.remote = settings.git_remote
        self.save()
        host.welcome(request.attempts)
        facts = request.facts
        self.emit("host.joined", scope=f"host:{name}", hostname=facts.hostname, version=facts.version)
        log.info("the worker of %s has joined (%s, %s)", name, facts.hostname, facts.home)
        self.wake()
        return messages.Joined(
            joining=host.joining,
            leader=self._owner,
            host_lease=settings.host_lease,
            now=self._now(),
            **msgspec.structs.asdict(self.worker_settings),
        )

    async def orders(self, name: str, request: messages.OrdersRequest) -> messages.Orders:
        """Return the orders of a host, as soon as there are any."""
        host = self._joined(name, request.joining)
        orders = host.orders_after(request.after)
        if not orders and request.wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(request.wait, LONGEST_POLL_SECONDS)):
                    await host.news.wait()
            host = self._joined(name, request.joining)
            orders = host.orders_after(request.after)
        return messages.Orders(now=self._now(), orders=orders)

    def report(self, name: str, reports: messages.Reports) -> messages.ReportsTaken:
        """Take in what a worker reports. Reports that were seen before are left out."""
        host = self._joined(name, reports.joining)
        host.load, host.is_leaving = reports.load, reports.is_leaving
        if reports.facts not in (None, host.facts):
            host.facts = reports.facts
            self.save()
        before = host.last_report
        for number, report in reports.reports:
            if number <= host.last_report:
                continue
            host.last_report = number
            match report:
                case messages.SessionReport():
                    if report.attempt_id in host.sessions:
                        host.sessions[report.attempt_id].take(report)
                case messages.CallReport():
                    host.jobs.take(report)
        if host.last_report > before or reports.is_leaving or reports.facts is not None:
            self.wake()
        return messages.ReportsTaken(now=self._now(), through=host.last_report)

    def call_of(self, name: str, call_id: str) -> messages.Call:
        """Return a call that the worker of the host is at."""
        call = self.remote(name).jobs.call_of(call_id) if self.is_remote(name) else None
        if call is None:
            raise UnknownName(f"host {name} has no call {call_id!r:.80}")
        return call

    def receive(self, name: str, call_id: str, file: Path) -> None:
        """Take a file that the worker of the host has sent for a call."""
        self.remote(name).jobs.receive(call_id, file)

    def _joined(self, name: str, joining: str) -> RemoteHost:
        """Return the host of a joining, which has given a sign of life. Raise `NotJoined` if it is over."""
        host = self.remote(name) if self.is_remote(name) else None
        if host is None or not joining or host.joining != joining:
            raise NotJoined(f"this engine does not know that joining of {name}: join again")
        host.use_joining()
        return host
