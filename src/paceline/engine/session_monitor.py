"""The monitor of live sessions: reads their output, reports its signals, and ends the sessions that must stop.

Here: what is done with the output of all sessions. Never here: what one output means (`session.py`).
"""

from collections.abc import Iterator, Mapping, Sequence

from paceline.core.signals import BillingStop, Signal
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.journal import EngineJournal
from paceline.engine.session import LiveSession
from paceline.engine.session_faults import SessionFaults
from paceline.limiter.governor_driver import GovernorDriver
from paceline.store import UnitResult

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
        with self.faults.isolated(session.handle.attempt_id, "examine", self._now()):
            return session.handle.state().is_over
        return False

    def _read_share(self, session: LiveSession) -> Iterator[None]:
        for _ in range(PIECES_PER_PASS):
            if not self.read(session, self._now()):
                return
            yield
        self.is_behind = True

    def read(self, session: LiveSession, now: float) -> bool:
        """Read a piece of the session's new output, and take its signals. Returns whether there may be more."""
        attempt_id = session.handle.attempt_id
        session.output.is_behind = False
        if self.faults.may_try(attempt_id, "read", now):
            with self.faults.isolated(attempt_id, "read", now):
                was_catching_up = session.output.is_catching_up
                signals = session.read(now)
                if session.output.is_behind or signals or was_catching_up:
                    self.take_signals(session, signals, now)
                else:
                    self._leave_early(session, now)
        return session.output.is_behind

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
            with self.faults.isolated(session.handle.attempt_id, "stop", now):
                self._stop(session, now)

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
        scope = session.reported_scope if scope is None else scope
        self._governor.report(scope, signal, now=now, origin=session.unit.id)
        self._metrics.reported(scope, signal)
        self._journal.note_signal(scope, signal, now)

    def _stop(self, session: LiveSession, now: float) -> None:
        """Ask for the end once, and kill a supervisor that does not react."""
        if session.stop_asked_at is None:
            self._hosts.stop(session.handle)
            session.stop_asked_at = now
        elif now - session.stop_asked_at > STOP_SECONDS:
            self._hosts.kill(session.handle)
