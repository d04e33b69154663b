"""What workers ask the leader for: to join, orders, and that their reports are taken."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from paceline.agents.account import Account, portable_account
from paceline.engine.hosts.host_seat import HostSeat
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.settings import EngineSettings
from paceline.errors import EngineBusy, HostTaken, NotJoined, UnknownName, VersionMismatch
from paceline.hosts.messages import (
    PROTOCOL,
    Call,
    CallReport,
    FactsReport,
    Joined,
    JoinRequest,
    Orders,
    OrdersRequest,
    ProbedAccount,
    Reports,
    ReportsTaken,
    SessionReport,
)
from paceline.settings.host_fields import LOCAL_HOST

log = logging.getLogger("paceline.engine")

LONGEST_POLL_SECONDS: Final = 25.0
"""How long a request for orders is held open: shorter than proxies wait for an answer."""


class WorkerRequests:
    """Answers the workers of one leader. `owner` is the leader."""

    def __init__(self, hosts: HostRegistry, settings: EngineSettings, *, owner: str, now: Callable[[], float]) -> None:
        self._hosts = hosts
        self._settings = settings
        self._owner = owner
        self._now = now

    def join(self, name: str, request: JoinRequest) -> Joined:
        """Let the worker of a host join. Raise if the host has another one, or if it speaks another language."""
        if request.protocol != PROTOCOL:
            raise VersionMismatch(
                f"the worker of {name} is Paceline {request.facts.version} (protocol {request.protocol}), and the "
                f"engine speaks protocol {PROTOCOL}: install the same version on both"
            )
        self._hosts.read_settings()
        settings = self._hosts.settings_of(name)
        if settings is None or name == LOCAL_HOST:
            raise UnknownName(f"there is no host {name!r:.80}: add it with `paceline hosts add`, or in paceline.toml")
        seat = self._hosts.seat(name)
        self._check_place(name, seat, request)
        seat.begin_joining(request, settings.host_lease)
        seat.host.jobs.remote = settings.git_remote
        self._hosts.save()
        seat.host.welcome(request.attempts)
        facts = request.facts
        self._hosts.emit("host.joined", scope=f"host:{name}", hostname=facts.hostname, version=facts.version)
        log.info("the worker of %s has joined (%s, %s)", name, facts.hostname, facts.home)
        self._hosts.wake()
        return Joined(
            joining=seat.joining,
            leader=self._owner,
            host_lease=settings.host_lease,
            now=self._now(),
            accounts=self._accounts(),
            agents=tuple(self._settings.logins),
            programs=self._settings.programs,
            output=self._settings.output,
        )

    def _check_place(self, name: str, seat: HostSeat, request: JoinRequest) -> None:
        """Raise if sessions of the host may run where this worker cannot see them."""
        if seat.may_be_replaced:
            return
        facts = seat.host.facts
        where = "unknown" if facts is None else f"{facts.home} on {facts.hostname}"
        if seat.worker not in (None, request.worker):
            raise HostTaken(
                f"host {name} has a worker already ({where}): stop that one, or give this one a name of its own "
                "with `paceline hosts add`"
            )
        if seat.has_moved(request):
            raise EngineBusy(f"sessions of {name} may still run ({where}), until its lease is over; ask again")

    def _accounts(self) -> tuple[ProbedAccount, ...]:
        logins, user_home = self._settings.logins, self._hosts.local.user_home
        return tuple(_probed(each, logins, user_home) for each in self._settings.campaign_accounts)

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
        before = seat.last_report
        for each in reports.reports:
            if each.number <= seat.last_report:
                continue
            seat.last_report = each.number
            match each.report:
                case SessionReport() as report:
                    seat.host.take_session(report)
                case CallReport() as report:
                    seat.host.jobs.take(report)
                case FactsReport() as report:
                    seat.host.facts = report.facts
                    self._hosts.save()
        if seat.last_report > before or reports.is_leaving:
            self._hosts.wake()
        return ReportsTaken(now=self._now(), through=seat.last_report)

    def call_of(self, name: str, call_id: str) -> Call:
        """Return a call that the worker of the host is at."""
        call = self._hosts.seat(name).host.jobs.call_of(call_id) if self._hosts.is_remote(name) else None
        if call is None:
            raise UnknownName(f"host {name} has no call {call_id!r:.80}")
        return call

    def receive(self, name: str, call_id: str, file: Path) -> None:
        """Take a file that the worker of the host has sent for a call."""
        self._hosts.seat(name).host.jobs.receive(call_id, file)

    def _joined(self, name: str, joining: str) -> HostSeat:
        """Return the host of a joining, which has given a sign of life. Raise `NotJoined` if it is over."""
        seat = self._hosts.seat(name) if self._hosts.is_remote(name) else None
        if seat is None or not joining or seat.joining != joining:
            raise NotJoined(f"this engine does not know that joining of {name}: join again")
        seat.use_joining()
        return seat


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
