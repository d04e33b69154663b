"""The sessions of a host: those that the leader wants to know about are read, all others only run.

Here: carrying out orders about sessions, and reporting them. Never here: the link to the leader.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import msgspec

from paceline.agents.session_environment import EnvironmentMemory
from paceline.errors import AttemptInUse, PacelineError
from paceline.executors import Executor, Handle, Launch, OutputArchive, OutputLimits, SessionState
from paceline.executors.interface import DEFAULT_GRACE_SECONDS
from paceline.executors.process import ProcessHandle
from paceline.hosts.messages import Follow, SessionReport, follow_of
from paceline.hosts.session_order import SessionOrder
from paceline.worker.followed_session import FollowedSession
from paceline.worker.host_lease import HostLease
from paceline.worker.leader_time import LeaderTime
from paceline.worker.outbox import Outbox

log = logging.getLogger("paceline.worker")

PIECES_PER_TURN = 4
"""Pieces of 64 kB that a turn reads of each channel of a session: a talkative one must not delay the others."""
KILL_SECONDS = 30.0
"""How long after the end of the lease a session may take to stop: longer than its grace, less than the margin with
which the leader gives its unit to another host."""


class SpooledExecutor(Executor, Protocol):
    """An executor that knows what it has started, also in an earlier process."""

    def unarchived(self) -> list[str]:
        """Return the attempts that were not put away."""


class SessionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a host adds to a session: its environment, its time zone, and its way to the leader's gateway."""

    environ: Mapping[str, str]
    tz: str = "UTC"
    gateway_url: Callable[[], str | None] = lambda: None


class HostSessions:
    """All sessions of one host. Reports about them go to the outbox."""

    def __init__(
        self, executor: SpooledExecutor, place: SessionPlace, outbox: Outbox, *, lease: HostLease, time: LeaderTime
    ) -> None:
        self._executor = executor
        self._place = place
        self._outbox = outbox
        self._lease = lease
        self._time = time
        self._environments = EnvironmentMemory()
        self._followed: dict[str, FollowedSession] = {}
        self.takes_new = True
        """Whether new sessions are started. Otherwise they are reported as never begun, and run elsewhere."""
        self._never_started: set[str] = set()
        """Attempts that were reported to be unknown here: they must never begin."""
        self._to_archive: dict[str, bool] = {}
        """Attempts to put away once they are over, with whether their output is kept."""
        self.is_behind = False
        """Whether a session has more output than the last turn has read."""

    def attempts(self) -> tuple[str, ...]:
        """Return the sessions that run or have ended here and were not put away."""
        return tuple(self._executor.unarchived())

    # -- orders --------------------------------------------------------------------------------------------

    def start(self, order: SessionOrder) -> None:
        """Start a session. One that was started before is followed; one that cannot be started is reported."""
        wanted = follow_of(order)
        if order.attempt_id in self._never_started or not (
            self.takes_new or order.attempt_id in self._executor.unarchived()
        ):
            self._report_unknown(order.attempt_id)
            return
        try:
            handle = self._executor.start(self._launch_of(order))
        except AttemptInUse:
            self.follow(wanted)
        except (PacelineError, OSError) as error:
            log.warning("%s could not be started: %s", order.attempt_id, error)
            state = SessionState(phase="not_started", message=str(error))
            self._outbox.add(SessionReport(attempt_id=order.attempt_id, state=state, error=type(error).__name__))
        else:
            self._follow(handle, wanted, is_catching_up=False)

    def follow(self, wanted: Follow) -> None:
        """Read a session from its beginning. One that never began here is reported so, and never will begin."""
        self._followed.pop(wanted.attempt_id, None)
        self._outbox.forget_session(wanted.attempt_id)
        handle = self._executor.adopt(wanted.attempt_id)
        if handle is None:
            self._report_unknown(wanted.attempt_id)
            return
        if isinstance(handle, ProcessHandle):  # the executor has only one of each session, and it was read before
            handle.rewind()
        self._follow(handle, wanted, is_catching_up=True)

    def stop(self, attempt_id: str, grace: float) -> None:
        if (handle := self._handle(attempt_id)) is not None:
            self._executor.stop(handle, grace)

    def kill(self, attempt_id: str) -> None:
        if (handle := self._handle(attempt_id)) is not None:
            self._executor.kill(handle)

    def archive(self, attempt_id: str, *, keep_output: bool) -> None:
        """Put a session away, now or when it has ended."""
        self._to_archive[attempt_id] = keep_output
        self._archive_ended()

    def sweep(self, keep: Collection[str]) -> None:
        """End every session that is not in `keep`, and put it away when it has ended."""
        for attempt_id in self._executor.unarchived():
            if attempt_id in keep or attempt_id in self._to_archive:
                continue
            log.warning("%s belongs to no running unit; it is ended", attempt_id)
            self._followed.pop(attempt_id, None)
            self.stop(attempt_id, DEFAULT_GRACE_SECONDS)
            self._to_archive[attempt_id] = True
        self._archive_ended()

    def start_over(self) -> None:
        """Forget what an earlier leader wanted to know."""
        self._followed.clear()
        self._never_started.clear()

    # -- reading -------------------------------------------------------------------------------------------

    async def read_all(self) -> None:
        """Read a share of the new output of every followed session, and report what is new."""
        self.is_behind = False
        for session in list(self._followed.values()):
            await self._read(session)
        self._archive_ended()

    async def read_ended(self, handles: Iterable[Handle]) -> None:
        """Read the rest of sessions that have just ended."""
        for handle in handles:
            if (session := self._followed.get(handle.attempt_id)) is not None:
                await self._read(session)
        self._archive_ended()

    async def wait_ended(self, timeout: float) -> list[Handle]:
        """Return ended sessions as soon as there is one, or an empty list after `timeout` seconds."""
        return await self._executor.wait_ended(timeout)

    async def _read(self, session: FollowedSession) -> None:
        try:
            state = session.handle.state()
            for _ in range(PIECES_PER_TURN):
                if not session.read():
                    break
                await asyncio.sleep(0)
            else:
                self.is_behind = True
                return
            if self._followed.get(session.attempt_id) is not session:
                return  # another leader joined meanwhile
            for report in session.reports(state):
                self._outbox.add(report)
        except OSError as error:
            log.warning("%s could not be read: %s; it is read again", session.attempt_id, error)
        except Exception:  # the other sessions of the host must not suffer from it
            log.exception("%s could not be read; it is read again", session.attempt_id)
        if session.is_over:
            del self._followed[session.attempt_id]

    def prune(self, limits: OutputLimits, now: float) -> None:
        """Remove output of sessions that were put away and that is beyond the limits, a small piece at a time."""
        if isinstance(self._executor, OutputArchive) and limits != OutputLimits():
            self._executor.prune(limits, lambda *_: False, now)

    # -- the lease -----------------------------------------------------------------------------------------

    def end_all(self, *, by_force: bool = False) -> int:
        """End every session, because the lease is over. Return how many ran."""
        running = 0
        for attempt_id in self._executor.unarchived():
            handle = self._handle(attempt_id)
            if handle is None or handle.state().is_over:
                continue
            running += 1
            if (session := self._followed.get(attempt_id)) is not None:
                session.ended_by_lease = True
            if by_force:
                self._executor.kill(handle)
            else:
                self._executor.stop(handle)
        return running

    # -- internals -----------------------------------------------------------------------------------------

    def _launch_of(self, order: SessionOrder) -> Launch:
        """Return what is to be started here. Calls to the gateway go the way that this worker reaches the leader."""
        url = self._place.gateway_url()
        if order.gateway is not None and url is not None:
            order = msgspec.structs.replace(order, gateway=msgspec.structs.replace(order.gateway, url=url))
        return order.launch(
            self._place.environ,
            start_by=self._lease.until,
            make_environment=self._environments.session_environment,
        )

    def _follow(self, handle: Handle, wanted: Follow, *, is_catching_up: bool) -> None:
        self._followed[wanted.attempt_id] = FollowedSession(
            handle, wanted, self._time, tz=self._place.tz, is_catching_up=is_catching_up
        )

    def _handle(self, attempt_id: str) -> Handle | None:
        session = self._followed.get(attempt_id)
        return session.handle if session is not None else self._executor.adopt(attempt_id)

    def _archive_ended(self) -> None:
        """Put away what is to be put away and has ended."""
        for attempt_id, keep_output in list(self._to_archive.items()):
            try:
                handle = self._handle(attempt_id)
                if handle is not None and not handle.state().is_over:
                    continue
                if handle is not None:
                    self._executor.archive(handle, keep_output=keep_output)
            except (PacelineError, OSError) as error:
                log.warning("%s could not be put away: %s; it is tried again", attempt_id, error)
                continue
            self._followed.pop(attempt_id, None)
            del self._to_archive[attempt_id]

    def _report_unknown(self, attempt_id: str) -> None:
        self._never_started.add(attempt_id)
        self._outbox.add(SessionReport(attempt_id=attempt_id, state=None))
