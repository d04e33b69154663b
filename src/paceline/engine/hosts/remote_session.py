"""A session on another machine, as its worker reports it: the same face as a session of this one."""

from typing import Final, TypeVar

import msgspec

from paceline.core.signals import Signal
from paceline.core.values.channels import Channel
from paceline.detect.answer_text import bounded_answer
from paceline.detect.run_summary import RunSummary
from paceline.executors import SessionState
from paceline.hosts.messages import SessionReport
from paceline.hosts.session_order import SessionOrder
from paceline.store import Unit

LARGEST_CODE: Final = 1 << 31
LARGEST_COUNT: Final = 1 << 53
"""Larger whole numbers are not exact in JSON, and no counter reaches them."""
LATEST_TIME: Final = 1e11
"""The year 5138."""
LONGEST_ID: Final = 500
LONGEST_REASON: Final = 4000
"""Characters. Workers send one bounded line."""
_COUNTERS: Final = ("turns", "turn_ends", "retries", "denials")
STARTING = SessionState(phase="running")
"""What is known of a session until its worker has reported it."""


class RemoteHandle:
    """One session. It is over only once its worker has read and reported everything."""

    def __init__(self, order: SessionOrder, host: str, *, is_new: bool) -> None:
        self.order = order
        self.host = host
        self.is_new = is_new
        """Whether its worker may still start it: no report about it has come."""
        self.output = RemoteOutput()
        self.stop_grace: float | None = None
        """Set once it was asked to stop."""
        self.is_killed = False
        self._state = STARTING
        self._tail = b""

    @property
    def attempt_id(self) -> str:
        return self.order.attempt_id

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

    def take(self, report: SessionReport) -> None:
        """Take in what the worker reports. Nothing changes after the end."""
        if self._state.is_over:
            return
        self.is_new = False
        if report.state is None:
            self.lose(f"it never began on {self.host}")
            return
        self._state = _plausible_state(report.state)
        self._tail = report.tail.encode()
        self.output.take(report)

    def follow_again(self) -> None:
        """Expect its worker to read it from the beginning."""
        self.output.is_catching_up = True

    def lose(self, reason: str) -> None:
        """Count it as ended without a word."""
        if not self._state.is_over:
            self._state = SessionState(phase="lost", message=reason)


class RemoteOutput:
    """What the worker has read of a session, until the engine takes it."""

    def __init__(self) -> None:
        self.facts = RunSummary()
        self.is_behind = False
        self.start_error: str | None = None
        self._reports: list[SessionReport] = []
        self._output_problem: str | None = None
        self._is_followed = False

    @property
    def is_catching_up(self) -> bool:
        """Whether the next report is about what was printed before the session was followed."""
        return self._reports[0].is_catching_up if self._reports else self._is_followed

    @is_catching_up.setter
    def is_catching_up(self, is_followed: bool) -> None:
        self._is_followed = is_followed

    def take(self, report: SessionReport) -> None:
        self._reports.append(report)

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


def _plausible_state(state: SessionState) -> SessionState:
    """Return the state without numbers that no process has: a store could not keep them."""
    return msgspec.structs.replace(
        state,
        exit_code=_bounded(state.exit_code, LARGEST_CODE),
        signal=_bounded(state.signal, LARGEST_CODE),
        pid=_bounded(state.pid, LARGEST_COUNT),
        started_at=_bounded(state.started_at, LATEST_TIME),
        ended_at=_bounded(state.ended_at, LATEST_TIME),
        max_rss_bytes=_bounded(state.max_rss_bytes, LARGEST_COUNT),
        cpu_seconds=_bounded(state.cpu_seconds, LARGEST_COUNT),
    )


def _plausible_summary(summary: RunSummary) -> RunSummary:
    """Return the summary without numbers that no agent reaches."""
    counts = {name: _bounded(getattr(summary, name), LARGEST_COUNT) for name in ("tokens", "model_turns")}
    others = {name: _bounded(getattr(summary, name), LARGEST_COUNT) or 0 for name in _COUNTERS}
    usage = summary.usage
    if usage is not None and any(tokens.total > LARGEST_COUNT for tokens in usage.by_model.values()):
        usage = None
    requests = summary.requests
    if requests is not None and max(requests.first.total, requests.last.total) > LARGEST_COUNT:
        requests = None
    return msgspec.structs.replace(
        summary,
        **counts,
        **others,
        usage=usage,
        requests=requests,
        answer=bounded_answer(summary.answer),
        session_id=_short(summary.session_id, LONGEST_ID),
        failure_text=_cut(summary.failure_text),
        denial_reason=_cut(summary.denial_reason),
    )


def _short(text: str | None, longest: int) -> str | None:
    """Return an id; None if it is longer than any."""
    return text if text is not None and len(text) <= longest else None


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST_REASON]


Number = TypeVar("Number", int, float)


def _bounded(value: Number | None, largest: float) -> Number | None:
    """Return the value, or None if it is outside of what it can be."""
    return value if value is not None and -largest <= value <= largest else None
