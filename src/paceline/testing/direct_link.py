"""A link without a network: it connects a `Worker` to any object that answers as a leader, and can be disturbed."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol, TypeVar

from paceline.clock import Clock
from paceline.errors import LinkDown
from paceline.hosts.messages import Joined, JoinRequest, Orders, OrdersRequest, Reports, ReportsTaken

Answer = TypeVar("Answer")


class LeaderSide(Protocol):
    """What answers the requests of a worker."""

    async def join(self, request: JoinRequest) -> Joined: ...

    async def orders(self, request: OrdersRequest) -> Orders: ...

    async def report(self, reports: Reports) -> ReportsTaken: ...


class DirectLink:
    """The requests of one worker to `leader`, which may be replaced while the worker runs.

    While it is `cut`, no request arrives, and open ones fail. `lose_answers(n)` lets the next n requests arrive and
    loses what is answered. With a `delay` each request and each answer takes that many seconds of the clock.
    """

    def __init__(self, leader: LeaderSide, clock: Clock, *, delay: float = 0.0) -> None:
        self.leader = leader
        self.delay = delay
        self._clock = clock
        self._cut = asyncio.Event()
        self._lost_answers = 0

    def cut(self) -> None:
        """Interrupt the link: open requests fail, too."""
        self._cut.set()

    def restore(self) -> None:
        """Let requests through again."""
        self._cut.clear()

    def lose_answers(self, count: int = 1) -> None:
        """Lose the answers to the next requests that arrive."""
        self._lost_answers += count

    async def join(self, request: JoinRequest) -> Joined:
        return await self._through(self.leader.join(request))

    async def orders(self, request: OrdersRequest) -> Orders:
        return await self._through(self.leader.orders(request))

    async def report(self, reports: Reports) -> ReportsTaken:
        return await self._through(self.leader.report(reports))

    async def fetch_commits(self, joining: str, call_id: str, have: tuple[str, ...], file: Path) -> None:
        raise LinkDown("this link carries no commits")

    async def send_commits(self, joining: str, call_id: str, file: Path) -> None:
        raise LinkDown("this link carries no commits")

    async def _through(self, answering: Awaitable[Answer]) -> Answer:
        """Return the answer, unless the link is cut before it is there, or loses it."""
        request = asyncio.ensure_future(self._delayed(answering))
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait({request, cut}, return_when=asyncio.FIRST_COMPLETED)
            if self._cut.is_set() or not request.done():  # it may have been restored at once
                raise LinkDown("the link is cut")
            answer = request.result()
        finally:
            request.cancel()
            cut.cancel()
        if self._lost_answers:
            self._lost_answers -= 1
            raise LinkDown("the answer was lost")
        return answer

    async def _delayed(self, answering: Awaitable[Answer]) -> Answer:
        if not self.delay:
            return await answering
        await self._clock.sleep(self.delay)
        answer = await answering
        await self._clock.sleep(self.delay)
        return answer
