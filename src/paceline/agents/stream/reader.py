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


class StreamReader:
    """Reads one run of an agent CLI. It takes any bytes in any chunks and never raises on them.

    `feed` returns the signals that became certain, each limit once. `outcome` is known after `close`.
    """

    def __init__(self, provider: str, *, tz: str = "UTC", clis: CliSet = CLIS) -> None:
        self.outcome: dialect.Outcome | None = None
        self._record = RunRecord(provider, tz=tz, clis=clis)
        self._stdout = StdoutReader(self._record)
        self._stderr: StderrReader | None = None
        """Made when it prints: most runs print nothing there."""
        self._screen: ScreenParagraphs | None = None

    @property
    def session_id(self) -> str | None:
        """The CLI's own name for the conversation, with which it can be resumed."""
        return self._record.session_id or self._channel_facts.session_id

    @property
    def tokens(self) -> int | None:
        """Input and output tokens used, as far as the output states them."""
        counted = self._record.tokens
        return self._channel_facts.run_tokens if counted is None else counted

    @property
    def usage(self) -> dialect.RunUsage | None:
        """The same by kind and model, with cache reads. Some CLIs count the whole conversation."""
        return self._record.usage.usage

    @property
    def requests(self) -> dialect.Requests | None:
        """The first and the latest request of the agent, where its CLI counts them one by one."""
        return self._record.usage.requests

    @property
    def model(self) -> str | None:
        """The model that the CLI names."""
        return self._record.model

    @property
    def model_turns(self) -> int | None:
        """How often the model was asked, as the CLI counts it, else the number of completed turns. None: unknown."""
        return self._record.model_turns or self._record.turns or None

    @property
    def answer(self) -> str | None:
        """What the agent said last, cut to a bound."""
        return dialect.bounded_answer(self._stdout.answer())

    @property
    def auth_mode(self) -> dialect.AuthMode | None:
        """Who pays: the subscription, an API key, or overage beyond the plan."""
        return self._record.auth_mode

    @property
    def has_answered(self) -> bool:
        """Whether the model has spoken or acted: then there is a conversation to resume."""
        return self._record.has_answered

    @property
    def turns(self) -> int:
        """The number of completed turns."""
        return self._record.turns

    @property
    def turn_ends(self) -> int:
        """How often all tools that the model called were done: there a run can be ended and resumed without loss."""
        return 0 if self._stdout.turns is None else self._stdout.turns.ends

    @property
    def retries(self) -> int:
        """The number of retries that the CLI has announced since the model last answered."""
        return self._record.retries

    @property
    def closely_read(self) -> int:
        """The number of notices that were read closely: the measure of the work that a text channel takes."""
        return self._record.closely_read

    @property
    def denials(self) -> int:
        """The number of tool calls that the CLI denied the agent."""
        return self._record.denials.count

    @property
    def denial_reason(self) -> str | None:
        """What was denied and what to do about it, in one sentence. None if nothing was."""
        return self._record.denials.reason

    @property
    def failure_text(self) -> str | None:
        """The agent's own words for why it failed, in one bounded line. None if it ended well or said nothing."""
        if self.outcome in ("success", "denied"):
            return None
        return reason_line(self._record.error) or last_words(
            self._stderr.last_lines() if self._stderr is not None else [], self._stdout.last_lines()
        )

    def feed(self, chunk: bytes, *, channel: Channel, seen_at: float) -> list[Signal]:
        """Read the next bytes of a channel, cut anywhere. Return the signals that they made certain."""
        self._record.seen_at = seen_at
        if channel == "stdout":
            self._stdout.feed(chunk)
        elif channel == "stderr":
            if self._stderr is None:
                self._stderr = StderrReader(self._record)
            self._stderr.feed(chunk)
        elif channel == "screen":
            self._read_screen(chunk, seen_at)
        else:
            raise InvalidInput(f"unknown channel {channel!r}: it is stdout, stderr or screen")
        return self._record.take_news()

    def close(self, *, exit_code: int | None, seen_at: float) -> list[Signal]:
        """Read what was left open when the process ended, and conclude. Return the last signals."""
        self._record.seen_at = seen_at
        self._stdout.flush()
        if self._stderr is not None:
            self._stderr.flush(exit_code)
        else:
            self._record.end_block()
        if self._screen is not None:
            self._add_paragraphs(self._screen.new_paragraphs())
        self._stdout.read_final_error(exit_code)
        self._record.has_text = self._stdout.has_answer or self._screen is not None
        self.outcome = conclude(self._record, exit_code)
        if self.outcome == "unreachable":
            self._record.report_unreachable()
        return self._record.take_news()

    @property
    def _channel_facts(self) -> dialect.Facts:
        return dialect.NO_FACTS if self._stderr is None else self._stderr.facts()

    def _read_screen(self, chunk: bytes, seen_at: float) -> None:
        if self._screen is None:
            self._screen = ScreenParagraphs(clean=with_blanks_for_shown_output)
        self._add_paragraphs(self._screen.feed(chunk, seen_at=seen_at))

    def _add_paragraphs(self, paragraphs: list[str]) -> None:
        for paragraph in paragraphs:
            self._record.add_notice(paragraph, channel="screen")


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
