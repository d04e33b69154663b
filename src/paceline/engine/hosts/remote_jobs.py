"""Work that a worker does for the engine: git in the workspaces of its host.

A call is made and its result is read in threads of the leader, because both use the leader's own repository. The pass
moves each piece of work from one step to the next (`step`).
"""

import contextlib
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paceline.engine.background_jobs import Job
from paceline.engine.hosts.host import Jobs
from paceline.errors import HostLost
from paceline.hosts.host_jobs import make_call, read_result
from paceline.hosts.messages import Call, CallReport, Order

Value = TypeVar("Value")


class _Work(msgspec.Struct):
    """One piece of work. It is made into a call, then the worker does it, then its result is read."""

    future: "Future[Any]"
    making: Job[Call] | None = None
    call: Call | None = None
    received: Path | None = None
    """The file that the worker has sent for it."""
    reading: Job[Any] | None = None


class RemoteJobs:
    """The work of one host. Call ids begin with the owner: those of an earlier leader are none of this one's."""

    def __init__(self, send: Callable[[Order], None], local: Jobs, *, owner: str) -> None:
        self.remote: str | None = None
        """Where branches are pushed to from the host."""
        self.gone: str | None = None
        """Why the host can do nothing: it was silent for so long that it is lost."""
        self._send = send
        self._local = local
        self._owner = owner
        self._numbers = itertools.count(1)
        self._works: dict[str, _Work] = {}

    def start(self, work: Callable[..., Value], *arguments: object) -> Job[Value]:
        """Begin the work. Its function must be one that workers know (`hosts/host_jobs.py`)."""
        call_id = f"{self._owner}-{next(self._numbers)}"
        future: Future[Value] = Future()
        if self.gone is not None:
            future.set_exception(HostLost(self.gone))
            return Job(future)
        making = self._local.start(make_call, call_id, work, arguments, self.remote)
        self._works[call_id] = _Work(future=future, making=making)
        return Job(future)

    def step(self) -> None:
        """Move everything on."""
        for call_id, work in list(self._works.items()):
            if work.making is not None and work.making.is_over:
                self._finish_making(call_id, work)
            if work.reading is not None and work.reading.is_over:
                self._settle(call_id, work.reading.result)

    def _finish_making(self, call_id: str, work: _Work) -> None:
        assert work.making is not None
        making, work.making = work.making, None
        try:
            work.call = making.result()
        except Exception as error:  # noqa: BLE001 - whoever waits for the work decides what it means
            self._fail(call_id, error)
        else:
            self._send(work.call)

    @property
    def is_busy(self) -> bool:
        return bool(self._works)

    def repeat(self) -> None:
        """Order everything again that has no result: a worker does no call twice."""
        for work in self._works.values():
            if work.call is not None and work.reading is None:
                self._send(work.call)

    def call_of(self, call_id: str) -> Call | None:
        """Return a call that the worker is at."""
        work = self._works.get(call_id)
        return None if work is None or work.reading is not None else work.call

    def receive(self, call_id: str, file: Path) -> None:
        """Keep the file that the worker has sent for a call, until its result is read."""
        work = self._works.get(call_id)
        if work is None:
            file.unlink(missing_ok=True)
            return
        if work.received is not None:
            work.received.unlink(missing_ok=True)  # the answer to it was lost, and it was sent again
        work.received = file

    def take(self, report: CallReport) -> None:
        """Begin to read the result of a call."""
        work = self._works.get(report.call_id)
        if work is not None and work.call is not None and work.reading is None:
            work.reading = self._local.start(read_result, work.call, report, work.received)

    def lose_all(self, reason: str) -> None:
        """End everything that has no result."""
        for call_id in list(self._works):
            self._fail(call_id, HostLost(reason))

    def _settle(self, call_id: str, result: Callable[[], object]) -> None:
        try:
            value = result()
        except Exception as error:  # noqa: BLE001 - the same
            self._fail(call_id, error)
        else:
            self._forget(call_id).set_result(value)

    def _fail(self, call_id: str, error: Exception) -> None:
        self._forget(call_id).set_exception(error)

    def _forget(self, call_id: str) -> "Future[Any]":
        work = self._works.pop(call_id)
        if work.received is not None:
            with contextlib.suppress(OSError):
                work.received.unlink(missing_ok=True)
        return work.future
