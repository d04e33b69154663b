"""The sessions of a host: those that the leader wants to know about are read, all others only run.

Here: carrying out orders about sessions, and reporting their output as signals and facts in the leader's time. Reports
on their way to the leader are numbered, and repeated until it has confirmed them. Never here: the link
to the leader, or what the leader does about a report.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import cast

import msgspec

from paceline.agents.dialect import RunSummary
from paceline.agents.stream.reader import summary_of
from paceline.clock import Clock
from paceline.core.signals import AnySignal, Signal
from paceline.detect import StreamReader
from paceline.errors import AttemptInUse, PacelineError
from paceline.executors.interface import (
    Executor,
    Handle,
    Launch,
    OutputArchive,
    OutputLimits,
    SessionState,
    exit_code_to_read,
    output_problem,
    printed_tail,
)
from paceline.executors.process import ProcessHandle
from paceline.executors.supervisor import LEASE_OVER
from paceline.hosts.messages import (
    CallReport,
    NumberedReport,
    Report,
    SessionOrder,
    SessionReport,
)
from paceline.leadership.host_lease import HostLease
from paceline.store.rules import storable_text, storable_value

MOST_BYTES = 256 * 1024
"""How much goes into one request: a small part of what an API accepts, and far more than the news of a second."""


class Outbox:
    """Reports that the leader has not confirmed.

    What was sent once keeps its number and its content. What was not is joined with later news of the same session, so
    a long cut of the link does not fill the memory.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sent: list[NumberedReport] = []
        self._waiting: list[Report] = []
        self.news = asyncio.Event()
        """Set when there is something to send."""

    @property
    def is_empty(self) -> bool:
        return not self._sent and not self._waiting

    def add(self, report: Report) -> None:
        """Take a report to send."""
        if isinstance(report, SessionReport):
            report = self._joined_with_earlier(report)
        self._waiting.append(_encodable(report))
        self.news.set()

    def batch(self) -> tuple[NumberedReport, ...]:
        """Return the reports to send now: first those that were sent without an answer."""
        self.news.clear()
        if not self._sent:
            self._number_next()
        return tuple(self._sent)

    def confirm(self, through: int) -> None:
        """Forget the reports that the leader has taken."""
        self._sent = [(number, report) for number, report in self._sent if number > through]
        if self._sent or self._waiting:
            self.news.set()

    def start_over(self) -> None:
        """Begin a new joining: numbers start again, and of the reports only the results of calls are sent to it."""
        unconfirmed = [report for _, report in self._sent] + self._waiting
        self._numbers = itertools.count(1)
        self._sent = []
        self._waiting = [report for report in unconfirmed if isinstance(report, CallReport)]
        if self._waiting:
            self.news.set()

    def forget_session(self, attempt_id: str) -> None:
        """Forget unsent reports about a session: it is read again from its beginning."""
        self._waiting = [
            each for each in self._waiting if not isinstance(each, SessionReport) or each.attempt_id != attempt_id
        ]

    def _number_next(self) -> None:
        size = 0
        while self._waiting and size < MOST_BYTES:
            report = self._waiting.pop(0)
            size += len(msgspec.json.encode(report))
            self._sent.append((next(self._numbers), report))

    def _joined_with_earlier(self, report: SessionReport) -> SessionReport:
        """Return the report with the signals of an unsent one about the same session, which it replaces."""
        for place, earlier in enumerate(self._waiting):
            if not isinstance(earlier, SessionReport) or earlier.attempt_id != report.attempt_id:
                continue
            if earlier.is_catching_up or earlier.state is None or report.is_catching_up or report.state is None:
                continue
            del self._waiting[place]
            return msgspec.structs.replace(report, signals=earlier.signals + report.signals)
        return report


def _encodable(report: Report) -> Report:
    """Return the report with what UTF-8 cannot encode replaced: agents print half characters, and files have names."""
    try:
        msgspec.json.encode(report)
    except UnicodeEncodeError:
        if isinstance(report, CallReport):  # its result is encoded already
            return msgspec.structs.replace(report, text=storable_text(report.text) or "")
        return msgspec.convert(storable_value(msgspec.to_builtins(report)), type(report))
    return report


# -- sessions ----------------------------------------------------------------------------------------

KEPT_ANSWERS = 8
"""Answers that the difference is learnt of. A few outlast one slow answer, and a clock that was set is noticed soon."""


class LeaderTime:
    """The difference between the two clocks, learnt from the answers.

    An answer was stamped before it arrived, so each one gives a difference that is too small by its way. The largest of
    the last ones is the nearest to the truth.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._learnt: deque[float] = deque(maxlen=KEPT_ANSWERS)

    def learn(self, leader_now: float) -> None:
        """Take in the time of an answer that has just arrived."""
        self._learnt.append(leader_now - self._clock.now())

    @property
    def ahead(self) -> float:
        """Seconds by which the leader's clock is ahead of this one."""
        return max(self._learnt, default=0.0)

    def now(self) -> float:
        """Return the leader's time."""
        return self._clock.now() + self.ahead

    def of(self, own: float | None) -> float | None:
        """Return a time of this host in the leader's time."""
        return None if own is None else own + self.ahead


class SessionReporter:
    """A session and how far it was read. A plan's own command has no reader: only its end is reported.

    `is_catching_up` means that it was found, not started here: then one report, the first, is about what was there.
    """

    def __init__(self, handle: Handle, order: SessionOrder, time: LeaderTime, *, tz: str, is_catching_up: bool) -> None:
        self.handle = handle
        self.attempt_id = handle.attempt_id
        self.is_over = False
        """Whether its last report was made."""
        self.ended_by_lease = False
        self._order = order
        self._time = time
        self._reader = None if order.is_command else StreamReader(order.profile.provider, tz=tz)
        self._is_catching_up = is_catching_up
        self._signals: list[Signal] = []
        self._has_read = False
        self._summary = RunSummary()
        self._reported: tuple[SessionState, RunSummary] | None = None
        """The state and the facts of the last report. The state is in the time of this host, which does not move."""

    def read(self) -> bool:
        """Read one piece of the new output of each channel. Return whether there may be more."""
        if self._reader is None:
            return False
        is_behind = False
        now = self._time.now()
        for channel in self.handle.channels:
            if chunk := self.handle.read_new(channel):
                is_behind = self._has_read = True
                written_at = self._time.of(self.handle.written_at(channel))
                seen_at = now if written_at is None else min(written_at, now)
                self._signals += self._reader.feed(chunk, channel=channel, seen_at=seen_at)
        return is_behind

    def reports(self, state: SessionState) -> list[SessionReport]:
        """Return what is new, after all output up to now was read. The last of them is final if the state is over."""
        made: list[SessionReport] = []
        if self._is_catching_up:
            running = SessionState(phase="running", pid=state.pid, started_at=state.started_at)
            made.append(self._report(running if state.is_over else state, is_catching_up=True))
            self._is_catching_up = False
        if state.is_over:
            made.append(self._last_report(self._in_leader_time(state)))
        elif not made and (self._signals or self._reported != (state, self._facts())):
            made.append(self._report(state))
        return made

    def _facts(self) -> RunSummary:
        """Return the facts by now. The answer is long and changes often, so only the last report has it."""
        if self._has_read and self._reader is not None:
            self._has_read = False
            self._summary = msgspec.structs.replace(summary_of(self._reader), answer=None)
        return self._summary

    def _report(self, state: SessionState, *, is_catching_up: bool = False) -> SessionReport:
        summary = self._facts()
        self._reported = (state, summary)
        return SessionReport(
            attempt_id=self.attempt_id,
            state=self._in_leader_time(state),
            summary=summary,
            signals=self._take_signals(),
            is_catching_up=is_catching_up,
        )

    def _last_report(self, state: SessionState) -> SessionReport:
        self.is_over = True
        order, reader = self._order, self._reader
        if reader is None:
            return SessionReport(attempt_id=self.attempt_id, state=state, tail=printed_tail(self.handle))
        now = self._time.now()
        at = now if state.ended_at is None else min(state.ended_at, now)
        has_answered = reader.has_answered or bool(reader.tokens)
        self._signals += reader.close(exit_code=exit_code_to_read(state, has_answered=has_answered), seen_at=at)
        return SessionReport(
            attempt_id=self.attempt_id,
            state=state,
            summary=summary_of(reader),
            signals=self._take_signals(),
            output_problem=output_problem(order.task.cwd, order.output, (order.begun_at or 0.0) - self._time.ahead),
        )

    def _take_signals(self) -> tuple[AnySignal, ...]:
        taken, self._signals = self._signals, []
        return cast(tuple[AnySignal, ...], tuple(taken))

    def _in_leader_time(self, state: SessionState) -> SessionState:
        """Return the state with times of the leader's clock, and why it was ended if only this worker knows."""
        message = state.message
        if self.ended_by_lease and state.cause == "stopped":
            message = message or LEASE_OVER
        moved = self._time.of
        return msgspec.structs.replace(
            state, started_at=moved(state.started_at), ended_at=moved(state.ended_at), message=message
        )


log = logging.getLogger("paceline.worker")

PIECES_PER_TURN = 4
"""Pieces of 64 kB that a turn reads of each channel of a session: a talkative one must not delay the others."""
KILL_SECONDS = 30.0
"""How long after the end of the lease a session may take to stop: longer than its grace, less than the margin with
which the leader gives its unit to another host."""


class HostContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker adds to sessions: their environment, time zone, and way to the gateway of the leader."""

    identity: str
    """What identifies its home: two workers with one identity are the same one, started again."""
    labels: tuple[str, ...] = ()
    environ: Mapping[str, str]
    tz: str = "UTC"
    gateway_url: Callable[[], str | None] = lambda: None


class HostSessions:
    """All sessions of one host. Reports about them go to the outbox."""

    def __init__(
        self, executor: Executor, context: HostContext, outbox: Outbox, *, lease: HostLease, time: LeaderTime
    ) -> None:
        self._executor = executor
        self._context = context
        self._outbox = outbox
        self._lease = lease
        self._time = time
        self._followed: dict[str, SessionReporter] = {}
        self.takes_new = True
        """Whether new sessions are started. Otherwise they are reported as never begun, and run elsewhere."""
        self._never_started: set[str] = set()
        """Attempts that were reported to be unknown here: they must never begin."""
        self.is_behind = False
        """Whether a session has more output than the last turn has read."""

    # -- orders --------------------------------------------------------------------------------------------

    def start(self, order: SessionOrder) -> None:
        """Start a session. One that was started before is followed; one that cannot be started is reported."""
        if order.attempt_id in self._never_started or not (
            self.takes_new or order.attempt_id in self._executor.unarchived()
        ):
            self._report_unknown(order.attempt_id)
            return
        try:
            handle = self._executor.start(self._launch_of(order))
        except AttemptInUse:
            self.follow(order)
        except (PacelineError, OSError) as error:
            log.warning("%s could not be started: %s", order.attempt_id, error)
            state = SessionState(phase="not_started", message=str(error))
            self._outbox.add(SessionReport(attempt_id=order.attempt_id, state=state, error=type(error).__name__))
        else:
            self._follow(handle, order, is_catching_up=False)

    def follow(self, order: SessionOrder) -> None:
        """Read a session from its beginning. One that never began here is reported so, and never will begin."""
        self._followed.pop(order.attempt_id, None)
        self._outbox.forget_session(order.attempt_id)
        handle = self._executor.adopt(order.attempt_id)
        if handle is None:
            self._report_unknown(order.attempt_id)
            return
        if isinstance(handle, ProcessHandle):  # the executor has only one of each session, and it was read before
            handle.rewind()
        self._follow(handle, order, is_catching_up=True)

    def stop(self, attempt_id: str, grace: float | None) -> None:
        """End a session. Without a grace it is killed."""
        handle = self._handle(attempt_id)
        if handle is None:
            return
        if grace is None:
            self._executor.kill(handle)
        else:
            self._executor.stop(handle, grace)

    def archive(self, attempt_id: str) -> None:
        """Put a session away, now or when it has ended. Nothing more is reported about it."""
        if (handle := self._handle(attempt_id)) is not None:
            self._executor.archive(handle)
        self._followed.pop(attempt_id, None)

    def sweep(self, keep: Collection[str]) -> None:
        """End every session that is not in `keep`, and put it away when it has ended."""
        for attempt_id, action in self._executor.sweep(keep).items():
            log.warning("%s %s, which belongs to no running unit", action, attempt_id)
        self._followed = {name: session for name, session in self._followed.items() if name in keep}

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

    async def read_ended(self, handles: Iterable[Handle]) -> None:
        """Read the rest of sessions that have just ended."""
        for handle in handles:
            if (session := self._followed.get(handle.attempt_id)) is not None:
                await self._read(session)

    async def _read(self, session: SessionReporter) -> None:
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

    def _launch_of(self, order: SessionOrder) -> Launch:
        """Return what is to be started here. Calls to the gateway go the way that this worker reaches the leader."""
        url = self._context.gateway_url()
        if order.gateway is not None and url is not None:
            order = msgspec.structs.replace(order, gateway=msgspec.structs.replace(order.gateway, url=url))
        return order.launch(
            self._context.environ,
            start_by=self._lease.until,
        )

    def _follow(self, handle: Handle, order: SessionOrder, *, is_catching_up: bool) -> None:
        self._followed[order.attempt_id] = SessionReporter(
            handle, order, self._time, tz=self._context.tz, is_catching_up=is_catching_up
        )

    def _handle(self, attempt_id: str) -> Handle | None:
        session = self._followed.get(attempt_id)
        return session.handle if session is not None else self._executor.adopt(attempt_id)

    def _report_unknown(self, attempt_id: str) -> None:
        self._never_started.add(attempt_id)
        self._outbox.add(SessionReport(attempt_id=attempt_id, state=None))
