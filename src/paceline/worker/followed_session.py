"""One session that a worker follows for the leader: its output as signals and facts, in the leader's time.

Here: what is reported about one session. Never here: what the leader does about it.
"""

from typing import cast

import msgspec

from paceline.core.signals import AnySignal, Signal
from paceline.detect import StreamReader
from paceline.detect.run_summary import RunSummary, summary_of
from paceline.executors import Handle, SessionState
from paceline.executors.command_output import printed_tail
from paceline.executors.output_file import output_problem
from paceline.executors.session_end import exit_code_to_read
from paceline.executors.supervisor import LEASE_OVER
from paceline.hosts.messages import Follow, SessionReport
from paceline.worker.leader_time import LeaderTime


class FollowedSession:
    """A session and how far it was read. A plan's own command has no reader: only its end is reported.

    `is_catching_up` means that it was found, not started here: then one report, the first, is about what was there.
    """

    def __init__(self, handle: Handle, wanted: Follow, time: LeaderTime, *, tz: str, is_catching_up: bool) -> None:
        self.handle = handle
        self.attempt_id = handle.attempt_id
        self.is_over = False
        """Whether its last report was made."""
        self.ended_by_lease = False
        self._wanted = wanted
        self._time = time
        self._reader = StreamReader(wanted.provider, tz=tz) if wanted.provider else None
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
        elif not made and self._is_news(state):
            made.append(self._report(state))
        return made

    def _is_news(self, state: SessionState) -> bool:
        return bool(self._signals) or self._reported != (state, self._facts())

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
        wanted, reader = self._wanted, self._reader
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
            output_problem=output_problem(wanted.cwd, wanted.output, self._time.here(wanted.begun_at or 0.0)),
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
