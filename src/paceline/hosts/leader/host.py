"""A machine that runs sessions, as the engine uses it: the leader's own, and one with a worker.

Of a machine with a worker: which worker has joined, the orders for it, its sessions, its work. Orders are kept until
the worker has confirmed them. A worker that joins again gets everything that it has not done, and follows everything
that it has. A session there has the same face as one of the leader's own machine. Never here: HTTP, or where a unit
runs.
"""

import asyncio
import itertools
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from paceline.agents.dialect import RunSummary, bounded_answer
from paceline.core.signals import Signal
from paceline.core.values.session_output import Channel
from paceline.detect import StreamReader
from paceline.errors import EngineBusy, HostLost, HostTaken
from paceline.executors.interface import DEFAULT_GRACE_SECONDS, Executor, Handle, SessionState, output_problem
from paceline.hosts import messages
from paceline.hosts.jobs import BackgroundJobs, RemoteJobs
from paceline.leadership.election import LeaderLease
from paceline.settings import HostSettings
from paceline.store import Unit

LOCAL = ""
"""The name of the leader's own machine in a login."""


class LocalOutput:
    """The output of a session of this machine. `facts` are those known by now."""

    start_error: str | None = None
    """The class of the error for which it was never started, where a worker found it."""

    def __init__(self, handle: Handle, provider: str, tz: str) -> None:
        self.facts = StreamReader(provider, tz=tz)
        self.is_behind = False
        """Whether the last read found something: there may be more."""
        self.is_catching_up = False
        """Whether it reads what was printed before the session was adopted."""
        self._handle = handle

    def read(self, now: float) -> list[Signal]:
        """Read one piece of the new output of each channel. Return the signals in it, dated when it was written."""
        signals: list[Signal] = []
        self.is_behind = False
        for channel in self._handle.channels:
            if chunk := self._handle.read_new(channel):
                self.is_behind = True
                written_at = self._handle.written_at(channel)
                seen_at = now if written_at is None else min(written_at, now)
                signals += self.facts.feed(chunk, channel=channel, seen_at=seen_at)
        self.is_catching_up = self.is_catching_up and self.is_behind
        return signals

    def close(self, exit_code: int | None, seen_at: float) -> list[Signal]:
        """Read what was left open when the process ended, and conclude. Return the last signals."""
        return self.facts.close(exit_code=exit_code, seen_at=seen_at)

    def output_problem(self, unit: Unit) -> str | None:
        """Return what is wrong with the file that the plan expects; None if it is there or none is expected."""
        return output_problem(unit.spec.cwd, unit.spec.output, unit.begun_at or unit.started_at or 0.0)


class LocalHost:
    """The leader's own machine: sessions are processes of its executor, and start only while the engine leads."""

    name = LOCAL

    def __init__(
        self, executor: Executor, jobs: BackgroundJobs, *, home: Path, environ: Mapping[str, str], lead: LeaderLease
    ) -> None:
        self.executor = executor
        self.jobs = jobs
        self.home = home
        self.environ = dict(environ)
        self._lead = lead

    @property
    def user_home(self) -> str | None:
        """The home folder of the user that sessions run as."""
        return self.environ.get("HOME")

    def start(self, order: messages.SessionOrder) -> Handle:
        """Start a session. Raise as `SessionOrder.launch` and `Executor.start` do."""
        launch = order.launch(
            self.environ,
            start_by=self._lead.trusted_until,
        )
        self._lead.check()
        return self.executor.start(launch)

    def begin(self, order: messages.SessionOrder) -> Handle:
        """Start a session, or return the one that was started before under the same attempt id."""
        return self.adopt(order) or self.start(order)

    def adopt(self, order: messages.SessionOrder) -> Handle | None:
        """Return the session of the order if an earlier engine has started it."""
        return self.executor.adopt(order.attempt_id)

    def output_of(self, handle: Handle, provider: str, tz: str) -> LocalOutput:
        """Return what the session prints, read into signals and facts."""
        return LocalOutput(handle, provider, tz)


# -- a machine with a worker -------------------------------------------------------------------------

LOSS_MARGIN_SECONDS: Final = 60.0
"""Waited beyond the lease of a silent host: its worker ends its sessions at the lease, which takes seconds."""
SILENT_SECONDS: Final = 15.0
"""Without a request for this long, a host gets nothing new: its worker reports every few seconds."""
MOST_ORDERS: Final = 64
"""Orders in one answer: each may have a long prompt."""
LARGEST_CODE: Final = 1 << 31
LARGEST_COUNT: Final = 1 << 53
"""Larger whole numbers are not exact in JSON, and no counter reaches them."""
LATEST_TIME: Final = 1e11
"""The year 5138."""
LONGEST_ID: Final = 500
LONGEST_REASON: Final = 4000
"""Characters. Workers send one bounded line."""
_COUNTERS: Final = ("turns", "turn_ends", "retries", "denials")
_LARGEST_OF_STATE: Final = {
    **dict.fromkeys(("exit_code", "signal"), LARGEST_CODE),
    **dict.fromkeys(("pid", "max_rss_bytes", "cpu_seconds"), LARGEST_COUNT),
    **dict.fromkeys(("started_at", "ended_at"), LATEST_TIME),
}


class RemoteSession:
    """One session: its handle, and what its worker has read of its output.

    It is over only once its worker has read and reported everything.
    """

    def __init__(self, order: messages.SessionOrder, host: str, *, is_new: bool) -> None:
        self.order = order
        self.attempt_id = order.attempt_id
        self.host = host
        self.is_new = is_new
        """Whether its worker may still start it: no report about it has come."""
        self.stop_grace: float | None = None
        """Set once it was asked to stop."""
        self.is_killed = False
        self.facts = RunSummary()
        self.is_behind = False
        self.start_error: str | None = None
        self._state = SessionState(phase="running")
        self._tail = b""
        self._reports: list[messages.SessionReport] = []
        self._output_problem: str | None = None
        self._is_followed = False

    # -- its handle ------------------------------------------------------------------------------

    @property
    def channels(self) -> tuple[Channel, ...]:
        """A plan's command has the end of its output here. That of an agent is read by the worker."""
        return ("stdout",) if self.order.is_command else ()

    def state(self) -> SessionState:
        return self._state

    def read_new(self, channel: Channel) -> bytes:
        tail, self._tail = self._tail, b""
        return tail

    def written_at(self, channel: Channel) -> float | None:
        return None

    # -- its output ------------------------------------------------------------------------------

    @property
    def is_catching_up(self) -> bool:
        """Whether the next report is about what was printed before the session was followed."""
        return self._reports[0].is_catching_up if self._reports else self._is_followed

    @is_catching_up.setter
    def is_catching_up(self, is_followed: bool) -> None:
        self._is_followed = is_followed

    def read(self, now: float) -> list[Signal]:
        """Return the signals of one report."""
        self.is_behind = bool(self._reports)
        if not self._reports:
            return []
        report = self._reports.pop(0)
        self._is_followed = report.is_catching_up
        self.facts = _plausible_summary(report.summary)
        self.start_error = report.error
        self._output_problem = report.output_problem
        return list(report.signals)

    def close(self, exit_code: int | None, seen_at: float) -> list[Signal]:
        """Do nothing: the last report has the outcome and all signals."""
        return []

    def output_problem(self, unit: Unit) -> str | None:
        return self._output_problem

    # -- what its worker reports -----------------------------------------------------------------

    def take(self, report: messages.SessionReport) -> None:
        """Take in a report. Nothing changes after the end."""
        if self._state.is_over:
            return
        self.is_new = False
        if report.state is None:
            self.lose(f"it never began on {self.host}")
            return
        self._state = _plausible_state(report.state)
        self._tail = report.tail.encode()
        self._reports.append(report)

    def lose(self, reason: str) -> None:
        """Count it as ended without a report."""
        if not self._state.is_over:
            self._state = SessionState(phase="lost", message=reason)


def _plausible_state(state: SessionState) -> SessionState:
    """Return the state without numbers that no process has: a store could not keep them."""
    return msgspec.structs.replace(
        state, **{name: _bounded(getattr(state, name), largest) for name, largest in _LARGEST_OF_STATE.items()}
    )


def _plausible_summary(summary: RunSummary) -> RunSummary:
    """Return the summary without numbers that no agent reaches."""
    counts = {name: _bounded(getattr(summary, name), LARGEST_COUNT) for name in ("tokens", "model_turns")}
    others = {name: _bounded(getattr(summary, name), LARGEST_COUNT) or 0 for name in _COUNTERS}
    usage, requests = summary.usage, summary.requests
    if usage is not None and any(tokens.total > LARGEST_COUNT for tokens in usage.by_model.values()):
        usage = None
    if requests is not None and max(requests.first.total, requests.last.total) > LARGEST_COUNT:
        requests = None
    return msgspec.structs.replace(
        summary,
        **counts,
        **others,
        usage=usage,
        requests=requests,
        answer=bounded_answer(summary.answer),
        session_id=summary.session_id if len(summary.session_id or "") <= LONGEST_ID else None,
        failure_text=summary.failure_text and summary.failure_text[:LONGEST_REASON],
        denial_reason=summary.denial_reason and summary.denial_reason[:LONGEST_REASON],
    )


def _bounded(value: float | None, largest: float) -> float | None:
    return value if value is not None and -largest <= value <= largest else None


class RemoteHost:
    """One host and its worker. A host of which nothing was received counts as silent since the leader began.

    `now` is wall time for people, `elapsed` time on a clock that nobody sets. `jobs.gone` says why nothing can be
    started: it was silent for so long that everything on it has ended.
    """

    def __init__(
        self,
        name: str,
        facts: messages.HostFacts | None,
        local_jobs: BackgroundJobs,
        *,
        owner: str,
        now: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        self.name = name
        self.facts = facts
        """Those of its worker, now or before the leader changed."""
        self.jobs = RemoteJobs(self._send, local_jobs, owner=owner)
        self.sessions: dict[str, RemoteSession] = {}
        self.news = asyncio.Event()
        """Set when there are orders."""
        self.worker: str | None = None
        """What identifies the home of the worker that joined last."""
        self.joining = ""
        self.load = messages.HostLoad()
        self.is_leaving = False
        self.last_report = 0
        self._numbers = itertools.count(1)
        self._orders: list[messages.NumberedOrder] = []
        self._now, self._elapsed = now, elapsed
        self._given_lease = self._lease = 0.0
        self._received_at: float | None = None
        self._silent_since = elapsed()

    @property
    def home(self) -> Path:
        """The home of its worker. It is unknown of a host that was removed; workspaces there have their own path."""
        return Path("/nonexistent" if self.facts is None else self.facts.home)

    # -- what the engine does ------------------------------------------------------------------

    def start(self, order: messages.SessionOrder) -> RemoteSession:
        """Order a session. The worker follows the one that it has started before under the same attempt id.

        Whether it could be started comes with a report. Raise `HostLost` if the host is lost.
        """
        if self.jobs.gone is not None:
            raise HostLost(self.jobs.gone)
        session = self.sessions[order.attempt_id] = RemoteSession(order, self.name, is_new=True)
        self._send(order)
        return session

    begin = start

    def adopt(self, order: messages.SessionOrder) -> RemoteSession:
        """Follow a session that an earlier engine has started. The worker knows whether there is one."""
        session = self.sessions.get(order.attempt_id)
        if session is None:
            session = self.sessions[order.attempt_id] = RemoteSession(order, self.name, is_new=False)
            session.is_catching_up = True
            if self.jobs.gone is None:
                self._send(msgspec.structs.replace(order, is_begun=True))
            else:
                session.lose(self.jobs.gone)
        return session

    def output_of(self, handle: Handle, provider: str, tz: str) -> RemoteSession:
        return _own(handle)

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        _own(handle).stop_grace = grace
        self._send(messages.Stop(attempt_id=handle.attempt_id, grace=grace))

    def kill(self, handle: Handle) -> None:
        """Order it once. A worker that joins again is asked to stop the session, and then to kill it."""
        if not _own(handle).is_killed:
            _own(handle).is_killed = True
            self._send(messages.Stop(attempt_id=handle.attempt_id, grace=None))

    def archive(self, handle: Handle) -> None:
        """Let the worker put the session away, now or when it joins again and ends what is no session of ours."""
        self.sessions.pop(handle.attempt_id, None)
        self._send(messages.Archive(attempt_id=handle.attempt_id))

    # -- its worker ----------------------------------------------------------------------------

    def remember(self, stored: messages.StoredHost) -> None:
        """Take over what an earlier leader knew. It may have had an answer until a moment ago."""
        self.worker = stored.worker
        self._given_lease = self._lease = math.inf if stored.host_lease is None else stored.host_lease
        self._received_at = self._now()

    @property
    def stored(self) -> messages.StoredHost | None:
        """What is to be stored; None before a worker has joined."""
        if self.worker is None or self.facts is None:
            return None
        lease = None if self._lease == math.inf else self._lease
        return messages.StoredHost(worker=self.worker, host_lease=lease, facts=self.facts)

    def check_place(self, request: messages.JoinRequest) -> None:
        """Raise if its sessions may run where this worker cannot see them.

        A worker of another home may take the name once nothing can run in the home before. A home on a shared file
        system may be used from another machine, and what the machine before has started may still run there.
        """
        if self.jobs.gone is not None or (self.is_leaving and not self.is_busy):
            return
        facts = self.facts
        where = "unknown" if facts is None else f"{facts.home} on {facts.hostname}"
        if self.worker not in (None, request.worker):
            raise HostTaken(
                f"host {self.name} has a worker already ({where}): stop that one, or give this one a name of its own "
                "with `paceline hosts add`"
            )
        if facts is not None and facts.machine != request.facts.machine and self.is_busy:
            raise EngineBusy(f"sessions of {self.name} may still run ({where}), until its lease is over; ask again")

    def join(self, request: messages.JoinRequest, lease: float) -> None:
        """Begin a joining. Until the worker uses it, it may still go by a longer lease that it was given before."""
        self.worker, self.joining = request.worker, secrets.token_hex(8)
        self._given_lease, self._lease = lease, max(lease, self._lease)
        self.last_report = 0
        self.is_leaving = False
        self.facts = request.facts
        self._note_contact()

    def welcome(self, attempts: Sequence[str]) -> None:
        """Order again whatever the worker that joins has not done. `attempts` are the sessions in its spool."""
        self._orders.clear()
        self.jobs.gone = None
        for session in self.sessions.values():
            if not session.state().is_over:
                self._order_again(session, is_known=session.attempt_id in attempts)
        self._send(messages.Sweep(keep=tuple(self.sessions)))
        self.jobs.repeat()

    def _order_again(self, session: RemoteSession, *, is_known: bool) -> None:
        if session.is_new and not is_known:
            self._send(session.order)
        else:  # also one that is not in the list: only an answer within this joining can say that it is gone
            session.is_catching_up = True
            self._send(msgspec.structs.replace(session.order, is_begun=True))
        session.is_killed = False
        if session.stop_grace is not None:
            self._send(messages.Stop(attempt_id=session.attempt_id, grace=session.stop_grace))

    def use_joining(self) -> None:
        """Note a request within the joining: the worker goes by its lease."""
        self._lease = self._given_lease
        self._note_contact()

    def _note_contact(self) -> None:
        self._received_at, self._silent_since = self._now(), self._elapsed()

    def orders_after(self, number: int) -> tuple[messages.NumberedOrder, ...]:
        """Return the next orders. Those up to the number are confirmed."""
        self._orders = [order for order in self._orders if order[0] > number]
        self.news.clear()
        return tuple(self._orders[:MOST_ORDERS])

    def _send(self, order: messages.Order) -> None:
        self._orders.append((next(self._numbers), order))
        self.news.set()

    # -- whether it is there -------------------------------------------------------------------

    def lose_if_overdue(self) -> str | None:
        """Give up everything that runs there if it has been silent for so long that it has ended. Return that."""
        silence = self._elapsed() - self._silent_since
        if self.jobs.gone is not None or silence <= self._lease + LOSS_MARGIN_SECONDS:
            return None
        reason = f"{self.name} has not answered for {silence / 60:.0f} min"
        self.joining = ""
        self._orders.clear()
        for session in self.sessions.values():
            session.lose(reason)
        self.jobs.lose_all(reason)
        return reason

    @property
    def is_busy(self) -> bool:
        """Whether sessions or work of it have no end yet."""
        return self.running > 0 or self.jobs.is_busy

    @property
    def running(self) -> int:
        """The number of sessions that run, or may run."""
        return sum(1 for session in self.sessions.values() if not session.state().is_over)

    def host_state(self, settings: HostSettings) -> messages.HostState:
        """Return what the placement and people go by."""
        presence: messages.Presence = "silent"
        if self.jobs.gone is not None:
            presence = "lost"
        elif self.is_leaving:
            presence = "leaving"
        elif self.joining and self._elapsed() - self._silent_since <= SILENT_SECONDS:
            presence = "joined"
        return messages.HostState(
            name=self.name,
            settings=settings,
            presence=presence,
            facts=self.facts,
            load=self.load,
            sessions=self.running,
            heard_at=self._received_at,
        )


def _own(handle: Handle) -> RemoteSession:
    assert isinstance(handle, RemoteSession), handle
    return handle


Host = LocalHost | RemoteHost
SessionOutput = LocalOutput | RemoteSession
