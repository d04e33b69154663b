"""The monitor of live sessions: reads their output, reports its signals, and ends the sessions that must stop.

Here: what is done with the output of all sessions. Never here: what one output means (`session.py`).
"""

from collections.abc import Mapping, Sequence

from paceline.core.signals import BillingStop, Signal
from paceline.engine.journal import EngineJournal
from paceline.engine.session import LiveSession
from paceline.executors import Executor
from paceline.limiter.governor_driver import GovernorDriver

STOP_SECONDS = 60.0
"""How long a supervisor may take to stop its session before it is killed: longer than the grace it gives the agent."""


class SessionMonitor:
    """Reads all live sessions once per pass. What they report is stored before any of them is ended."""

    def __init__(
        self, driver: GovernorDriver, executor: Executor, journal: EngineJournal, live: Mapping[str, LiveSession]
    ) -> None:
        self._governor = driver.governor
        self._metrics = driver.metrics
        self._executor = executor
        self._journal = journal
        self._live = live

    def read_all(self, now: float) -> None:
        """Read the new output of every session, store what it means, then end the sessions that must stop."""
        for session in self._live.values():
            if session.ending is None:
                self.take_signals(session, session.read(now), now)
        ending = [session for session in self._live.values() if session.ending is not None]
        if ending:
            self._journal.collect(now)
            self._journal.save(now)  # the reset is stored before anything else
        for session in ending:
            self._stop(session, now)

    def take_signals(self, session: LiveSession, signals: Sequence[Signal], now: float) -> None:
        """Count tokens, report signals, and decide whether the session must end."""
        if (tokens := session.new_tokens()) > 0:
            self._governor.count_tokens(session.ticket.id, tokens, now=now)
        for signal in signals:
            self.report(session, signal, now)
            session.judge(signal, now)
        session.check_retries(now)
        session.leave_reserve(self._governor.reserve_reached(session.ticket.id, now=now))
        if session.check_payer() and session.ending is not None:
            self.report(session, BillingStop(detail=session.ending.reason), now)

    def report(self, session: LiveSession, signal: Signal, now: float) -> None:
        """Report a signal of the session. The events that follow from it name its unit."""
        self._governor.report(session.reported_scope, signal, now=now, origin=session.unit.id)
        self._metrics.reported(session.reported_scope, signal)
        self._journal.has_learnt = True

    def _stop(self, session: LiveSession, now: float) -> None:
        """Ask for the end once, and kill a supervisor that does not react."""
        if session.stop_asked_at is None:
            session.stop_asked_at = now
            self._executor.stop(session.handle)
        elif now - session.stop_asked_at > STOP_SECONDS:
            self._executor.kill(session.handle)
