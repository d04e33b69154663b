"""The monitor of live sessions: reads their output, reports its signals, and ends the sessions that must stop.

Here: what is done with the output of all sessions, and the errors of single ones, which the others do not notice.
Never here: what one output means (`live_session.py`).
"""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from paceline.core.signals import BillingStop, Signal
from paceline.engine.journal import EngineJournal
from paceline.engine.session.live_session import LiveSession
from paceline.hosts.leader.registry import HostRegistry
from paceline.limiter.governor_driver import GovernorDriver
from paceline.redaction.stored_text import signal_without_secrets
from paceline.store import UnitResult

log = logging.getLogger("paceline.engine")

RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits after the first, second, ... error: an error that passes costs seconds, one that stays costs no processor."""

Value = TypeVar("Value")
SessionStep = Literal["examine", "read", "stop", "conclude", "archive"]
"""What the engine does with a session that may fail for this one alone."""


class Fault(msgspec.Struct, frozen=True):
    """The errors in a row of one step, and when it is tried again."""

    count: int
    retry_at: float
    error: str


class SessionFaults:
    """The errors of live sessions, by step. A step that worked has none, so its next error is logged again."""

    def __init__(self) -> None:
        self._faults: dict[tuple[str, SessionStep], Fault] = {}

    def of(self, attempt_id: str, step: SessionStep) -> Fault | None:
        """Return the errors of the step since it worked last."""
        return self._faults.get((attempt_id, step))

    def may_try(self, attempt_id: str, step: SessionStep, now: float) -> bool:
        """Return whether the step has no error, or its wait is over. A clock that is set back makes no wait longer."""
        fault = self.of(attempt_id, step)
        return fault is None or not 0 < fault.retry_at - now <= RETRY_SECONDS[-1]

    def isolate(self, attempt_id: str, step: SessionStep, now: float, work: Callable[[], Value]) -> Value | None:
        """Do the step of one session, unless its wait after an error lasts. An error is noted and keeps to it.

        Returns None if the step was not done.
        """
        if self._faults and not self.may_try(attempt_id, step, now):
            return None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 (it is logged, and keeps to this session)
            self.note_error(attempt_id, step, error, now)
            return None
        if self._faults:
            self._faults.pop((attempt_id, step), None)
        return value

    def note_error(self, attempt_id: str, step: SessionStep, error: Exception, now: float) -> None:
        """Count an error of the step. The first one in a row is logged."""
        before = self.of(attempt_id, step)
        count = 1 if before is None else before.count + 1
        if before is None:
            message = "cannot %s session %s; it is tried again, and the others continue"
            log.error(message, step, attempt_id, exc_info=error)
        wait = RETRY_SECONDS[min(count, len(RETRY_SECONDS)) - 1]
        self._faults[attempt_id, step] = Fault(count, now + wait, f"{type(error).__name__}: {error}")

    def forget(self, attempt_id: str) -> None:
        """Drop the errors of a session that is over."""
        if self._faults:
            for key in [key for key in self._faults if key[0] == attempt_id]:
                del self._faults[key]


STOP_SECONDS = 60.0
"""How long a supervisor may take to stop its session before it is killed: longer than the grace it gives the agent."""
PIECES_PER_PASS = 4
"""Pieces of 64 kB that a pass reads of each channel of a session: a talkative one must not delay the others."""

LAST_PIECES = 2
"""Reads at the end of a session: what it printed since it was read, and a look whether that was all."""


class SessionMonitor:
    """Reads all live sessions once per pass. What they report is stored before any of them is ended."""

    def __init__(
        self, driver: GovernorDriver, hosts: HostRegistry, journal: EngineJournal, live: Mapping[str, LiveSession]
    ) -> None:
        self._governor = driver.governor
        self._now = driver.now
        self._metrics = driver.metrics
        self._hosts = hosts
        self._journal = journal
        self._live = live
        self.faults = SessionFaults()
        self.is_behind = False
        """Whether a session has more output than this pass has read."""

    def read_all(self) -> Iterator[None]:
        """Read a share of the new output of every session. Yields after each piece, so that others have their turn."""
        self.is_behind = False
        for session in list(self._live.values()):
            if session.ending is None or self._is_over(session):
                yield from self._read_share(session)

    def _is_over(self, session: LiveSession) -> bool:
        attempt_id = session.handle.attempt_id
        return bool(self.faults.isolate(attempt_id, "examine", self._now(), lambda: session.handle.state().is_over))

    def _read_share(self, session: LiveSession) -> Iterator[None]:
        for _ in range(PIECES_PER_PASS):
            if not self.read(session, self._now()):
                return
            yield
        self.is_behind = True

    def read(self, session: LiveSession, now: float) -> bool:
        """Read a piece of the session's new output, and take its signals. Returns whether there may be more."""
        session.output.is_behind = False
        self.faults.isolate(session.handle.attempt_id, "read", now, lambda: self._read(session, now))
        return session.output.is_behind

    def _read(self, session: LiveSession, now: float) -> None:
        was_catching_up = session.output.is_catching_up
        signals = session.read(now)
        if session.output.is_behind or signals or was_catching_up:
            self.take_signals(session, signals, now)
        else:
            self._leave_early(session, now)

    def read_whole(self, session: LiveSession, now: float) -> bool:
        """Read the last output of a session that is over. Returns whether nothing is left to read.

        One that printed more than its share of this pass has its turn in the next one, between those of others.
        """
        if session.output.is_behind:
            self.is_behind = True
            return False
        for _ in range(LAST_PIECES):
            if not self.read(session, now):
                return self.faults.of(session.handle.attempt_id, "read") is None
        self.is_behind = True
        return False

    def stop_ending(self, now: float) -> None:
        """Store what was learnt, then end the sessions that must stop."""
        ending = [session for session in self._live.values() if session.ending is not None]
        if ending:
            self._journal.collect(now)
            self._journal.save(now)  # the reset is stored before anything else
        for session in ending:
            self.faults.isolate(session.handle.attempt_id, "stop", now, functools.partial(self._stop, session, now))

    def take_signals(self, session: LiveSession, signals: Sequence[Signal], now: float) -> None:
        """Count tokens, report signals, and decide whether the session must end."""
        if (tokens := session.new_tokens()) > 0:
            self._governor.count_tokens(session.ticket.id, tokens, now=now)
        for signal in signals:
            self.report(session, signal, now)
            session.judge(signal, now)
        session.check_retries(now)
        self._leave_early(session, now)
        if (billed := session.check_payer()) is not None:
            self.report(session, BillingStop(detail=billed), now)

    def _leave_early(self, session: LiveSession, now: float) -> None:
        """End it for what others did meanwhile: a person asks for its end, or only the reserve is left."""
        if session.unit.result.end_request is not None:
            session.check_turn()
        if session.conversation is not None:
            session.leave_reserve(self._governor.reserve_reached(session.ticket.id, now=now))

    def count_lost(self, session: LiveSession, result: UnitResult) -> None:
        """Count the context that the attempt has paid again."""
        before = session.unit.result
        estimated = result.lost_tokens_estimated - before.lost_tokens_estimated
        for source, tokens in (
            ("estimated", estimated),
            ("measured", result.lost_tokens - before.lost_tokens - estimated),
        ):
            if tokens > 0:
                self._metrics.lost_tokens.add(session.reported_scope, source, by=tokens)

    def report(self, session: LiveSession, signal: Signal, now: float, scope: str | None = None) -> None:
        """Report a signal of the session. The events that follow from it name its unit."""
        scope, signal = session.reported_scope if scope is None else scope, signal_without_secrets(signal)
        self._governor.report(scope, signal, now=now, origin=session.unit.id)
        self._metrics.reported(scope, signal)
        self._journal.has_learnt = True

    def _stop(self, session: LiveSession, now: float) -> None:
        """Ask for the end once, and kill a supervisor that does not react."""
        if session.stop_asked_at is None:
            self._hosts.stop(session.handle)
            session.stop_asked_at = now
        elif now - session.stop_asked_at > STOP_SECONDS:
            self._hosts.kill(session.handle)
