"""A leader that tests drive: it numbers its orders, repeats them until they are confirmed, and takes reports once."""

import asyncio
from collections.abc import Callable

from paceline.clock import Clock
from paceline.errors import NotJoined
from paceline.executors.interface import OutputLimits
from paceline.hosts.messages import (
    CallReport,
    Joined,
    JoinRequest,
    NumberedOrder,
    Order,
    Orders,
    OrdersRequest,
    ProbedAccount,
    Report,
    Reports,
    ReportsTaken,
    SessionReport,
)

DEADLINE_SECONDS = 60.0


class ScriptedLeader:
    """Answers one worker. `reports` has each report once, in order, of all joinings."""

    def __init__(self, clock: Clock, *, host_lease: float = 600.0, ahead: float = 0.0) -> None:
        self._clock = clock
        self._host_lease = host_lease
        self._ahead = ahead
        self.accounts: tuple[ProbedAccount, ...] = ()
        self.agents: tuple[str, ...] = ()
        self.output = OutputLimits()
        self.joins: list[JoinRequest] = []
        self.reports: list[Report] = []
        self.has_left = False
        self.requests = 0
        self._given: list[NumberedOrder] = []
        self._taken = 0
        self._obeyed = -1
        self._is_known = False
        self._changed = asyncio.Condition()

    # -- what the worker asks --------------------------------------------------------------------------------

    async def join(self, request: JoinRequest) -> Joined:
        self.requests += 1
        self.joins.append(request)
        self._given, self._taken, self._obeyed, self._is_known, self.has_left = [], 0, -1, True, False
        await self._notify()
        return Joined(
            joining=f"j{len(self.joins)}",
            leader="leader",
            host_lease=self._host_lease,
            now=self._now(),
            accounts=self.accounts,
            agents=self.agents,
            output=self.output,
        )

    async def orders(self, request: OrdersRequest) -> Orders:
        self.requests += 1
        self._check(request.joining)

        def given() -> tuple[NumberedOrder, ...]:
            return tuple((number, order) for number, order in self._given if number > request.after)

        self._obeyed = request.after
        await self._notify()
        async with self._changed:
            timer = self._clock.call_at(self._clock.now() + request.wait, self._wake)
            deadline = self._clock.now() + request.wait
            await self._changed.wait_for(lambda: given() or not self._is_known or self._clock.now() >= deadline - 0.001)
            timer.cancel()
        self._check(request.joining)
        return Orders(now=self._now(), orders=given())

    async def report(self, reports: Reports) -> ReportsTaken:
        self.requests += 1
        self._check(reports.joining)
        for number, report in reports.reports:
            if number > self._taken:
                assert number == self._taken + 1, "a report is missing"
                self._taken = number
                self.reports.append(report)
        self.has_left = reports.is_leaving
        await self._notify()
        return ReportsTaken(now=self._now(), through=self._taken)

    # -- for tests -------------------------------------------------------------------------------------------

    async def give(self, *orders: Order) -> None:
        """Order something of the worker that has joined."""
        for order in orders:
            self._given.append((len(self._given) + 1, order))
        await self._notify()

    async def obeyed(self) -> None:
        """Wait until the worker has confirmed all orders."""
        await self.until(lambda: self._obeyed == len(self._given))

    async def restart(self) -> None:
        """Forget the worker, as another leader does. It must join again."""
        self._is_known = False
        await self._notify()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until it holds after some request."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    async def joined(self, times: int = 1) -> None:
        """Wait until the worker has joined so often, and asks for orders."""
        await self.until(lambda: len(self.joins) >= times and self._obeyed >= 0)

    async def end_of(self, attempt_id: str) -> SessionReport:
        """Return the last report about a session."""
        await self.until(lambda: self.ends_of(attempt_id))
        return self.ends_of(attempt_id)[-1]

    def of_session(self, attempt_id: str) -> list[SessionReport]:
        return [each for each in self.reports if isinstance(each, SessionReport) and each.attempt_id == attempt_id]

    def ends_of(self, attempt_id: str) -> list[SessionReport]:
        return [each for each in self.of_session(attempt_id) if each.state is None or each.state.is_over]

    def results(self) -> list[CallReport]:
        return [each for each in self.reports if isinstance(each, CallReport)]

    # -- internals -------------------------------------------------------------------------------------------

    def _check(self, joining: str) -> None:
        if not self._is_known or joining != f"j{len(self.joins)}":
            raise NotJoined("this leader does not know the joining")

    def _now(self) -> float:
        return self._clock.now() + self._ahead

    def _wake(self) -> None:
        self._waking = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
