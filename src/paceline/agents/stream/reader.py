"""The output of one agent run as it arrives, read into signals, facts and a final outcome.

Here: `StreamReader`, which passes the bytes of each channel to its reader, and what it found as one value that another
machine can send. Never here: the words of any CLI, or a clock: the caller states when each chunk was seen.
"""

from paceline.agents import dialect
from paceline.agents.known import CLIS, LIMITS, CliSet
from paceline.agents.stream.channels import StderrReader, StdoutReader
from paceline.agents.stream.flood import FLOOD_LINES
from paceline.agents.stream.record import RunRecord, conclude
from paceline.agents.stream.screen import ScreenParagraphs
from paceline.core.signals import Signal
from paceline.core.values.fields import fields_of
from paceline.core.values.session_output import Channel
from paceline.detect.text import last_words, reason_line, with_blanks_for_shown_output
from paceline.errors import InvalidInput

_NOTICE = b"Error: 429 rate limit reached, retry after 5 s\n"


class StreamReader(RunRecord):
    """Reads one run of an agent CLI. It takes any bytes in any chunks and never raises on them.

    `feed` returns the signals that became certain, each limit once. `outcome` is known after `close`.
    """

    def __init__(self, provider: str, *, tz: str = "UTC", clis: CliSet = CLIS) -> None:
        super().__init__(provider, tz=tz, clis=clis)
        self.outcome: dialect.Outcome | None = None
        self._stdout = StdoutReader(self)
        self._stderr: StderrReader | None = None
        """Made when it prints: most runs print nothing there."""
        self._screen: ScreenParagraphs | None = None

    @property
    def answer(self) -> str | None:
        """What the agent said last, cut to a bound."""
        return dialect.bounded_answer(self._stdout.answer())

    @property
    def turn_ends(self) -> int:
        """How often all tools that the model called were done: there a run can be ended and resumed without loss."""
        return 0 if self._stdout.turns is None else self._stdout.turns.ends

    @property
    def failure_text(self) -> str | None:
        """The agent's own words for why it failed, in one bounded line. None if it ended well or said nothing."""
        if self.outcome in ("success", "denied"):
            return None
        return reason_line(self.error) or last_words(
            self._stderr.last_lines() if self._stderr is not None else [], self._stdout.last_lines()
        )

    def feed(self, chunk: bytes, *, channel: Channel, seen_at: float) -> list[Signal]:
        """Read the next bytes of a channel, cut anywhere. Return the signals that they made certain."""
        self.begin_chunk(seen_at)
        if channel == "stdout":
            self._stdout.feed(chunk)
        elif channel == "stderr":
            if self._stderr is None:
                self._stderr = StderrReader(self)
            self._stderr.feed(chunk)
        elif channel == "screen":
            if self._screen is None:
                self._screen = ScreenParagraphs(clean=with_blanks_for_shown_output)
            self._add_paragraphs(self._screen.feed(chunk, seen_at=seen_at))
        else:
            raise InvalidInput(f"unknown channel {channel!r}: it is stdout, stderr or screen")
        return self.take_news()

    def close(self, *, exit_code: int | None, seen_at: float) -> list[Signal]:
        """Read what was left open when the process ended, and conclude. Return the last signals."""
        self.begin_chunk(seen_at)
        self._stdout.flush()
        if self._stderr is not None:
            self._stderr.flush(exit_code)
        else:
            self.end_block()
        if self._screen is not None:
            self._add_paragraphs(self._screen.new_paragraphs())
        self._stdout.read_final_error(exit_code)
        self.has_text = self._stdout.has_answer or self._screen is not None
        self.outcome = conclude(self, exit_code)
        if self.outcome == "unreachable":
            self.report_unreachable()
        return self.take_news()

    def _add_paragraphs(self, paragraphs: list[str]) -> None:
        for paragraph in paragraphs:
            self.add_notice(paragraph, channel="screen")


def summary_of(reader: StreamReader) -> dialect.RunSummary:
    """Return what the reader knows by now."""
    return dialect.RunSummary(**fields_of(dialect.RunSummary, reader))


def compile_patterns() -> None:
    """Compile every pattern now, which takes a third of a second.

    Each is otherwise compiled when it is first needed. In a daemon the first errors of a session would then delay
    every answer for a tenth of a second.
    """
    LIMITS.compile_rules()
    reader = StreamReader("claude-code")
    reader.feed(_NOTICE * FLOOD_LINES, channel="stderr", seen_at=0.0)
    reader.close(exit_code=1, seen_at=0.0)
