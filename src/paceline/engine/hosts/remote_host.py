"""A machine with a worker, as the leader sees it: the orders for it, its sessions, and the work it does.

Here: the bookkeeping of one host. Orders are kept until the worker has confirmed them. A worker that joins again gets
everything that it has not done, and follows everything that it has. Never here: HTTP, or when a host counts as lost.
"""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

from paceline.engine.hosts.host import Jobs
from paceline.engine.hosts.remote_jobs import RemoteJobs
from paceline.engine.hosts.remote_session import RemoteHandle
from paceline.engine.session_output import SessionOutput
from paceline.errors import HostLost
from paceline.executors import Handle
from paceline.executors.interface import DEFAULT_GRACE_SECONDS
from paceline.hosts.host_facts import HostFacts
from paceline.hosts.messages import Archive, Kill, NumberedOrder, Order, SessionReport, Start, Stop, Sweep, follow_of
from paceline.hosts.session_order import SessionOrder

MOST_ORDERS = 64
"""Orders in one answer: each may have a long prompt."""


class RemoteHost:
    """One host. `facts` are those of its worker, now or before the leader changed."""

    def __init__(self, name: str, facts: HostFacts | None, local_jobs: Jobs, *, owner: str) -> None:
        self.name = name
        self.facts = facts
        self.jobs = RemoteJobs(self._send, local_jobs, owner=owner)
        self.handles: dict[str, RemoteHandle] = {}
        self.news = asyncio.Event()
        """Set when there are orders."""
        self._numbers = itertools.count(1)
        self._orders: list[NumberedOrder] = []
        self._unarchived: dict[str, Archive] = {}
        self._gone: str | None = None
        """Why nothing can be started: it was silent for so long that everything on it has ended."""

    @property
    def home(self) -> Path:
        """The home of its worker. It is unknown of a host that was removed; workspaces there have their own path."""
        return Path("/nonexistent" if self.facts is None else self.facts.home)

    # -- what the engine does ------------------------------------------------------------------

    def start(self, order: SessionOrder) -> RemoteHandle:
        """Order a session. Whether it could be started comes with a report."""
        return self.begin(order)

    def begin(self, order: SessionOrder) -> RemoteHandle:
        """Order a session. The worker follows the one that it has started before under the same attempt id.

        Raise `HostLost` if the host is lost.
        """
        if self._gone is not None:
            raise HostLost(self._gone)
        handle = self.handles[order.attempt_id] = RemoteHandle(order, self.name, is_new=True)
        self._send(Start(session=order))
        return handle

    def adopt(self, order: SessionOrder) -> RemoteHandle:
        """Follow a session that an earlier engine has started. The worker knows whether there is one."""
        handle = self.handles.get(order.attempt_id)
        if handle is None:
            handle = self.handles[order.attempt_id] = RemoteHandle(order, self.name, is_new=False)
            handle.follow_again()
            if self._gone is None:
                self._send(follow_of(order))
            else:
                handle.lose(self._gone)
        return handle

    def output_of(self, handle: Handle, provider: str, tz: str) -> SessionOutput:
        return self.own(handle).output

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        self.own(handle).stop_grace = grace
        self._send(Stop(attempt_id=handle.attempt_id, grace=grace))

    def kill(self, handle: Handle) -> None:
        """Order it once. A worker that joins again is asked to stop the session, and then to kill it."""
        if not self.own(handle).is_killed:
            self.own(handle).is_killed = True
            self._send(Kill(attempt_id=handle.attempt_id))

    def archive(self, handle: Handle) -> None:
        """Let the worker put the session away, now or when it has joined again."""
        self.handles.pop(handle.attempt_id, None)
        order = self._unarchived[handle.attempt_id] = Archive(attempt_id=handle.attempt_id)
        self._send(order)

    def own(self, handle: Handle) -> RemoteHandle:
        """Return the handle as one of this host."""
        assert isinstance(handle, RemoteHandle), handle
        return handle

    # -- what its worker does ------------------------------------------------------------------

    def welcome(self, attempts: Sequence[str]) -> None:
        """Order again whatever the worker that joins has not done. `attempts` are the sessions in its spool."""
        self._orders.clear()
        self._gone = self.jobs.gone = None
        known = frozenset(attempts)
        for handle in self.handles.values():
            self._welcome_session(handle, is_known=handle.attempt_id in known)
        for order in self._unarchived.values():
            self._send(order)
        self._send(Sweep(keep=(*self.handles, *self._unarchived)))
        self.jobs.repeat()

    def _welcome_session(self, handle: RemoteHandle, *, is_known: bool) -> None:
        if handle.state().is_over:
            return
        if handle.is_new and not is_known:
            self._send(Start(session=handle.order))
        else:  # also one that is not in the list: only an answer within this joining can say that it is gone
            handle.follow_again()
            self._send(follow_of(handle.order))
        handle.is_killed = False
        if handle.stop_grace is not None:
            self._send(Stop(attempt_id=handle.attempt_id, grace=handle.stop_grace))

    def orders_after(self, number: int) -> tuple[NumberedOrder, ...]:
        """Return the next orders. Those up to the number are confirmed."""
        for confirmed in itertools.takewhile(lambda each: each.number <= number, self._orders):
            if isinstance(confirmed.order, Archive):
                self._unarchived.pop(confirmed.order.attempt_id, None)
        self._orders = [each for each in self._orders if each.number > number]
        self.news.clear()
        return tuple(self._orders[:MOST_ORDERS])

    def take_session(self, report: SessionReport) -> None:
        handle = self.handles.get(report.attempt_id)
        if handle is not None:
            handle.take(report)

    def lose_all(self, reason: str) -> None:
        """Count everything on the host as ended: it has been silent for so long that its worker has ended it."""
        self._orders.clear()
        self._gone = self.jobs.gone = reason
        for handle in self.handles.values():
            handle.lose(reason)
        self.jobs.lose_all(reason)

    @property
    def is_busy(self) -> bool:
        """Whether sessions or work of it have no end yet."""
        return self.sessions > 0 or self.jobs.is_busy

    @property
    def sessions(self) -> int:
        """The number of sessions that run, or may run."""
        return sum(1 for handle in self.handles.values() if not handle.state().is_over)

    def _send(self, order: Order) -> None:
        self._orders.append(NumberedOrder(next(self._numbers), order))
        self.news.set()
