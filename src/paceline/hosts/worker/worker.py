"""The worker of one host: it joins a leader, carries out its orders, and reports.

All of it runs on one loop. Orders come through one open request, reports go through another. Sessions are read and the
lease is watched also while no leader answers.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from paceline.clock import Clock
from paceline.errors import LinkDown, NotJoined
from paceline.hosts.jobs import in_daemon_thread
from paceline.hosts.messages import (
    Archive,
    Call,
    CallReport,
    FactsReport,
    Follow,
    Joined,
    JoinRequest,
    Kill,
    NumberedOrder,
    Orders,
    OrdersRequest,
    Reports,
    ReportsTaken,
    Start,
    Stop,
    Sweep,
)
from paceline.hosts.values import allocation_end, read_load
from paceline.hosts.worker.facts import FactsReader
from paceline.hosts.worker.link import Link
from paceline.hosts.worker.outbox import LeaderCalls, Outbox, RunCall
from paceline.hosts.worker.sessions import KILL_SECONDS, HostContext, HostSessions, LeaderTime, SpooledExecutor
from paceline.leadership.host_lease import HostLease

log = logging.getLogger("paceline.worker")

FIRST_WAIT_SECONDS = 0.2
"""A leader that restarts is often back within a second."""
LONGEST_WAIT_SECONDS = 5.0
"""How much later than the leader a worker may be back. Fifty workers then make ten requests a second."""


Answer = TypeVar("Answer", Joined, Orders, ReportsTaken)

READ_SECONDS = 1.0
"""How often the output of all sessions is read, as an engine does. Ends do not wait for it."""
ORDERS_WAIT_SECONDS = 20.0
"""How long a request for orders stays open: proxies end silent ones after thirty seconds or more."""
BEAT_SECONDS = 3.0
"""The longest time between two reports, by which the leader knows that the host is there."""
LEAST_GAP_SECONDS = 0.2
"""The shortest time between two reports: news of many sessions at once go together."""
FACTS_SECONDS = 300.0
"""How often logins, programs and variables are read again: people change them by hand, and wait for the effect."""
LEASE_CHECK_SECONDS = 5.0
"""How often the lease is checked: a machine that slept wakes up with a wait that is too long."""
LEAVE_SECONDS = 5.0
"""How long the last reports may take when the worker is asked to end."""


class Worker:
    """One worker. `run` returns after `leave`; sessions continue then."""

    def __init__(
        self,
        link: Link,
        executor: SpooledExecutor,
        home: Path,
        context: HostContext,
        *,
        clock: Clock,
        lease: HostLease,
    ) -> None:
        self._link = link
        self._executor = executor
        self._home = home
        self._clock = clock
        self._identity = context.identity
        self._lease = lease
        self._time = LeaderTime(clock)
        self._outbox = Outbox()
        self._sessions = HostSessions(executor, context, self._outbox, lease=lease, time=self._time)
        self._facts = FactsReader(home, context.environ, labels=context.labels)
        self._leaves_at = allocation_end(context.environ)
        self._calls: LeaderCalls | None = None
        self._down_since: float | None = None
        """Since when no leader answers."""
        self._retry_wait = FIRST_WAIT_SECONDS
        self._joined: Joined | None = None
        self._leaving = asyncio.Event()

    @property
    def joining(self) -> str:
        """The present joining; empty before the first one."""
        return "" if self._joined is None else self._joined.joining

    def serve_calls(self, run: RunCall) -> None:
        """Do the calls of the leader with this function from now on."""
        self._calls = LeaderCalls(run, self._outbox)

    def leave(self) -> None:
        """End after the last reports. Sessions continue."""
        self._leaving.set()

    def drain(self) -> None:
        """Take no new session from now on, and say so: the host leaves soon."""
        self._sessions.takes_new = False
        self._outbox.news.set()

    async def run(self) -> None:
        """Serve leaders until `leave`. Raise `Refused` if one refuses this worker for good."""
        watches = [asyncio.create_task(self._watch_sessions()), asyncio.create_task(self._watch_lease())]
        try:
            await self._until_left(self._serve_leaders(), *watches)
            await self._say_goodbye()
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            if self._calls is not None:
                self._calls.close()

    async def _until_left(self, work: Awaitable[None], *others: asyncio.Task[None]) -> None:
        """Do the work until the worker is asked to leave. A task that fails fails the worker."""
        main = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            done, _ = await asyncio.wait({main, leaving, *others}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            leaving.cancel()
            main.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await main

    # -- the link ------------------------------------------------------------------------------------------

    async def _serve_leaders(self) -> None:
        while True:
            joined = await self._join()
            tasks = [
                asyncio.create_task(work)
                for work in (self._take_orders(joined), self._send_reports(joined), self._send_facts(joined))
            ]
            try:
                await asyncio.gather(*tasks)
            except NotJoined as error:
                log.info("the joining is over: %s", error)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _join(self) -> Joined:
        """Join the leader. Orders of an earlier one, and reports for it, are dropped."""

        def request() -> Awaitable[Joined]:
            return self._link.join(
                JoinRequest(
                    worker=self._identity,
                    pid=os.getpid(),
                    facts=self._facts.known,
                    attempts=self._sessions.attempts(),
                )
            )

        joined = await self._ask(request)
        self._joined = joined
        self._outbox.start_over(lambda report: isinstance(report, CallReport))
        self._sessions.start_over()
        log.warning("joined the leader %s", joined.leader)
        return joined

    async def _ask(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a request until it is answered. The answer extends the lease, and has the leader's time."""
        while True:
            asked_at = self._lease.asked()
            try:
                answer = await request()
            except LinkDown as error:
                await self._wait_for_link(error)
                continue
            if self._down_since is not None:
                log.warning("the leader answers again, after %.0f s", self._clock.now() - self._down_since)
            self._down_since, self._retry_wait = None, FIRST_WAIT_SECONDS
            self._time.learn(answer.now)
            joined = answer if isinstance(answer, Joined) else self._joined
            self._lease.renew(asked_at, 0.0 if joined is None else joined.host_lease)
            return answer

    async def _wait_for_link(self, error: LinkDown) -> None:
        if self._down_since is None:
            self._down_since = self._clock.now()
            log.warning("no leader answers (%s); sessions continue, and it is asked again", error)
        wait, self._retry_wait = self._retry_wait, min(self._retry_wait * 2, LONGEST_WAIT_SECONDS)
        await self._clock.sleep(wait)

    async def _take_orders(self, joined: Joined) -> None:
        after = 0
        wait = min(ORDERS_WAIT_SECONDS, joined.host_lease / 4)
        while True:
            request = OrdersRequest(joining=joined.joining, after=after, wait=wait)
            answer = await self._ask(partial(self._link.orders, request))
            for numbered in answer.orders:
                if numbered.number > after:
                    self._carry_out(numbered)
                    after = numbered.number
                    await asyncio.sleep(0)  # others have their turn

    async def _send_reports(self, joined: Joined) -> None:
        beat = min(BEAT_SECONDS, joined.host_lease / 5)
        while True:
            timer = self._clock.call_at(self._clock.now() + beat, self._outbox.news.set)
            try:
                await self._outbox.news.wait()
            finally:
                timer.cancel()
            await self._report(joined)
            await self._clock.sleep(LEAST_GAP_SECONDS)

    async def _report(self, joined: Joined, *, is_leaving: bool = False) -> None:
        reports = Reports(
            joining=joined.joining,
            load=read_load(self._home, self._time.of(self._leaves_at)),
            reports=self._outbox.batch(),
            is_leaving=is_leaving or not self._sessions.takes_new,
        )
        taken = await self._ask(partial(self._link.report, reports))
        self._outbox.confirm(taken.through)

    async def _send_facts(self, joined: Joined) -> None:
        """Report what the host is and has, now and whenever it has changed."""
        reported = None
        while True:
            read = partial(self._facts.read, joined.accounts, joined.agents, joined.programs)
            facts = await in_daemon_thread(read, "facts of the host")
            if facts != reported:
                reported = facts
                self._outbox.add(FactsReport(facts=facts))
            await self._clock.sleep(FACTS_SECONDS)

    async def _say_goodbye(self) -> None:
        """Send the last reports. What cannot be sent in time is read again by the next worker."""
        if self._joined is None:
            return
        with contextlib.suppress(TimeoutError, LinkDown, NotJoined):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._sessions.read_all()
                await self._report(self._joined, is_leaving=True)
                while not self._outbox.is_empty:
                    await self._report(self._joined, is_leaving=True)

    # -- orders --------------------------------------------------------------------------------------------

    def _carry_out(self, numbered: NumberedOrder) -> None:
        """Carry out one order. One that fails must not keep the others waiting."""
        sessions = self._sessions
        try:
            match numbered.order:
                case Start() as order:
                    sessions.start(order.session)
                case Follow() as order:
                    sessions.follow(order)
                case Stop() as order:
                    sessions.stop(order.attempt_id, order.grace)
                case Kill() as order:
                    sessions.kill(order.attempt_id)
                case Archive() as order:
                    sessions.archive(order.attempt_id, keep_output=order.keep_output)
                case Sweep() as order:
                    sessions.sweep(order.keep)
                case Call() as order if self._calls is not None:
                    self._calls.take(order)
        except Exception:
            log.exception("order %s could not be carried out: %s", numbered.number, type(numbered.order).__name__)

    # -- what continues without a leader ---------------------------------------------------------------------

    async def _watch_sessions(self) -> None:
        """Read all sessions again and again, and those that end at once."""
        read_at = self._clock.now()
        while True:
            ended = await self._executor.wait_ended(min(READ_SECONDS, max(0.0, read_at - self._clock.now())))
            await self._sessions.read_ended(ended)
            if not 0 < read_at - self._clock.now() <= READ_SECONDS:
                await self._sessions.read_all()
                read_at = self._clock.now() + (0.0 if self._sessions.is_behind else READ_SECONDS)
                if self._joined is not None:
                    self._sessions.prune(self._joined.output, self._clock.now())

    async def _watch_lease(self) -> None:
        """End all sessions when the lease is over. Their supervisors do the same, each by itself."""
        over_at: float | None = None
        while True:
            if not self._lease.is_over:
                over_at = None
                await self._clock.sleep(min(self._lease.left, LEASE_CHECK_SECONDS))
                continue
            now = self._clock.now()
            over_at = now if over_at is None else over_at
            if running := self._sessions.end_all(by_force=now - over_at > KILL_SECONDS):
                log.warning("no leader has answered within the lease of this host; %s sessions are ended", running)
            await self._clock.sleep(LEASE_CHECK_SECONDS)
