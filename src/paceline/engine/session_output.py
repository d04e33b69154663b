"""The output of one session, read into signals and facts: from the spool of this machine, or by a worker on its own."""

from typing import Protocol

from paceline.core.signals import Signal
from paceline.detect import StreamReader
from paceline.detect.run_summary import RunSummary
from paceline.executors import Handle
from paceline.executors.output_file import output_problem
from paceline.store import Unit


class SessionOutput(Protocol):
    """What a session says. `facts` are those known by now."""

    is_behind: bool
    """Whether the last read found something: there may be more."""
    is_catching_up: bool
    """Whether it reads what was printed before the session was adopted."""
    start_error: str | None
    """The class of the error for which it was never started, where a worker found it."""

    @property
    def facts(self) -> StreamReader | RunSummary: ...

    def read(self, now: float) -> list[Signal]:
        """Read what is new, or a piece of it. Returns the signals in it, dated when it was written."""

    def close(self, exit_code: int | None, seen_at: float) -> list[Signal]:
        """Read what was left open when the process ended, and conclude. Returns the last signals."""

    def output_problem(self, unit: Unit) -> str | None:
        """Return what is wrong with the file that the plan expects; None if it is there or none is expected."""


class LocalOutput:
    """The output of a session of this machine."""

    start_error: str | None = None

    def __init__(self, handle: Handle, provider: str, tz: str) -> None:
        self.facts = StreamReader(provider, tz=tz)
        self.is_behind = False
        self.is_catching_up = False
        self._handle = handle

    def read(self, now: float) -> list[Signal]:
        """Read one piece of the new output of each channel."""
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
        return self.facts.close(exit_code=exit_code, seen_at=seen_at)

    def output_problem(self, unit: Unit) -> str | None:
        return output_problem(unit.spec.cwd, unit.spec.output, unit.begun_at or unit.started_at or 0.0)
