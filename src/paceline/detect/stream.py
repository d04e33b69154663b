"""The output of one agent run as it comes, read into signals, facts and a final outcome.

Here: `StreamReader`, which leads each channel's bytes to whoever can read them. Never here: the rules of
any provider (lines.py), or a clock: the caller says when each chunk was seen.
"""

import re
from typing import Literal

import msgspec

from paceline.core.signals import Signal
from paceline.detect.dialects import (
    AuthMode,
    Ending,
    Facts,
    Head,
    dialect_of,
    is_known,
    is_own_event,
    session_in_text,
    status_in_text,
)
from paceline.detect.lines import read_event, read_line
from paceline.detect.notices import (
    STOPPED_ANSWER,
    CodexTranscript,
    ErrorNotices,
    PlainAnswer,
    final_error,
    stderr_reader,
    stdout_notices,
)
from paceline.detect.parsing.line_splitter import (
    UNREADABLE,
    DocumentReader,
    Event,
    LineSplitter,
    LongLine,
    clean_text,
    decode_event,
    events_within,
    salvage,
)
from paceline.detect.parsing.screen import ScreenParagraphs
from paceline.detect.run_outcome import Outcome, Run, conclude, was_stopped
from paceline.detect.run_record import RunRecord, shows_answer
from paceline.errors import InvalidInput

Channel = Literal["stdout", "stderr", "screen"]

_LINES_BEFORE_STREAM = 8
"""Some CLIs print a notice or two before their JSON begins; what looks like JSON after that is quoted."""
_RETRY_WORDS = re.compile(r"[Rr]etrying (?:in|after|with)\b|Reconnecting\.\.\.")
_JSON_START = re.compile(r"[^A-Za-z]{0,40}?[{\[]")
_CANCELLED = "Operation cancelled."
_decode_head = msgspec.json.Decoder(Head).decode


class StreamReader:
    """Reads one run of an agent CLI. It takes any bytes in any chunks and never raises on them.

    `feed` returns the signals that became certain, each limit once. `outcome` is known after `close`.
    """

    def __init__(self, provider: str, *, tz: str = "UTC") -> None:
        self.outcome: Outcome | None = None
        self._provider = provider
        self._tz = tz
        self._seen_at = 0.0
        self._dialect = dialect_of(provider)
        self._record = RunRecord()
        self._news: list[Signal] = []
        self._stdout = LineSplitter()
        self._stderr = LineSplitter()
        self._screen: ScreenParagraphs | None = None
        self._speaks_json = False
        self._ends_in_line = False
        self._answer = PlainAnswer()
        self._answer_document = DocumentReader()
        self._stdout_notices = stdout_notices(provider)
        self._stderr_notices = stderr_reader(provider, is_known=is_known(provider))
        self._stderr_document = DocumentReader()
        self._was_cancelled = False

    @property
    def session_id(self) -> str | None:
        """The CLI's own name for the conversation, with which it can be resumed."""
        return self._record.session_id or self._transcript_session_id()

    @property
    def tokens(self) -> int | None:
        """Input and output tokens used, as far as the stream has said."""
        transcript = self._stderr_notices
        counted = self._record.tokens
        return transcript.tokens if counted is None and isinstance(transcript, CodexTranscript) else counted

    @property
    def auth_mode(self) -> AuthMode | None:
        """Who pays: the subscription, an API key, or overage beyond the plan."""
        return self._record.auth_mode

    @property
    def has_answered(self) -> bool:
        """Whether the model has spoken or acted: then there is a conversation to go on with."""
        return self._record.has_answered

    @property
    def turns(self) -> int:
        """How many turns were completed."""
        return self._record.turns

    @property
    def retries(self) -> int:
        """How many retries the CLI has announced since the model last answered."""
        return self._record.retries

    def feed(self, chunk: bytes, *, channel: Channel, seen_at: float) -> list[Signal]:
        """Takes the next bytes of a channel, cut anywhere; returns the signals that they made certain."""
        self._seen_at = seen_at
        if channel == "stdout":
            self._read_stdout(self._stdout.feed(chunk))
        elif channel == "stderr":
            for line in self._stderr.feed(chunk):
                self._read_stderr_line(line)
        elif channel == "screen":
            self._read_screen(chunk)
        else:
            raise InvalidInput(f"unknown channel {channel!r}: it is stdout, stderr or screen")
        return self._take_news()

    def close(self, *, exit_code: int | None, seen_at: float) -> list[Signal]:
        """The process has ended: reads what was left open, and concludes."""
        self._seen_at = seen_at
        self._flush_stdout()
        self._flush_stderr(exit_code)
        self._flush_screen()
        self._read_final_error(exit_code)
        self.outcome = conclude(self._run(exit_code))
        return self._take_news()

    def _take_news(self) -> list[Signal]:
        news, self._news = self._news, []
        return news

    # --- stdout ----------------------------------------------------------------------------------------------

    def _read_stdout(self, lines: list[bytes | LongLine]) -> None:
        """The hot path: of most lines only the few members that `Head` names are ever decoded."""
        decode_head, quiet = _decode_head, self._dialect.quiet
        for line in lines:
            if not self._speaks_json:
                self._read_before_stream(line)
                continue
            if not line:
                continue
            if isinstance(line, LongLine):
                self._read_long_line(line)
                continue
            try:
                head = decode_head(line)
            except UNREADABLE:
                self._read_odd_line(line)
                continue
            if head.type in quiet and not _has_error(head):
                self._pass_over(head)
            else:
                self._read_odd_line(line)

    def _pass_over(self, head: Head) -> None:
        """An event without news: it may show that the model answers, and what that cost."""
        if head.message is not None:
            self._record.count_message(head.message)
        if head.type in self._dialect.progress and shows_answer(head):
            self._record.model_answered()

    def _read_odd_line(self, line: bytes) -> None:
        """A line that has news, or is not one clean event: an event between other text, several, or none."""
        event = decode_event(line)
        events = [event] if event is not None else self._own_events_within(line)
        for found in events:
            self._take_event(found)
        if not events:
            self._answer.add(line)

    def _own_events_within(self, line: bytes) -> list[Event]:
        """In a line that was cut or run into, whole objects may also be inner parts of the broken event."""
        return [event for event in events_within(line) if is_own_event(self._dialect, event)]

    def _read_long_line(self, line: LongLine) -> None:
        event = salvage(line)
        if event is None:
            return
        if event.get("type") in self._dialect.quiet:
            self._record.model_answered()
        else:
            self._take_event(event)

    def _read_before_stream(self, line: bytes | LongLine) -> None:
        """Until the first event it is open whether the CLI prints events, one document, or plain text."""
        if isinstance(line, LongLine):
            self._read_long_first_line(line)
            return
        if self._answer_document.is_open:
            if self._answer_document.add(line.decode("utf-8", "replace")):
                self._take_document()
        elif self._answer.lines > _LINES_BEFORE_STREAM or not self._begins_stream(line):
            self._read_plain_line(line)

    def _begins_stream(self, line: bytes) -> bool:
        text = clean_text(line)
        if not _JSON_START.match(text):
            return False
        events = self._own_events_within(line)
        for event in events:
            self._speaks_json = True
            self._take_event(event)
        return bool(events) or (not self._answer.has_text and self._answer_document.begins(text))

    def _take_document(self) -> None:
        events, lines = self._answer_document.take()
        if any(is_own_event(self._dialect, event) for event in events):
            self._speaks_json = True
            for event in events:
                self._take_event(event)
            return
        # An answer that the agent was asked to write as JSON: prose like any other.
        self._answer.has_text = True
        for line in lines:
            self._read_plain_line(line.encode("utf-8", "replace"))

    def _read_long_first_line(self, line: LongLine) -> None:
        event = salvage(line)
        if event is not None and not self._answer.has_text and is_own_event(self._dialect, event):
            self._speaks_json = True
            self._take_event(event)
        else:
            self._answer.has_text = True

    def _read_plain_line(self, line: bytes) -> None:
        self._answer.add(line)
        if self._stdout_notices is not None:
            for notice in self._stdout_notices.add(clean_text(line)):
                self._take_notice(notice, channel="stdout")

    def _flush_stdout(self) -> None:
        rest = self._stdout.flush()
        if rest is not None:
            self._ends_in_line = True
            self._read_stdout([rest])
        if self._answer_document.is_open:
            # It was cut short, so it is no answer; its words may still be an error.
            self._speaks_json = True
            for line in self._answer_document.take()[1]:
                self._answer.add(line.encode("utf-8", "replace"))

    def _read_final_error(self, exit_code: int | None) -> None:
        """Plain text is the agent's; only what stands at its very end may be the CLI's own error."""
        record = self._record
        if record.ending is not None or record.trouble is not None or was_stopped(exit_code):
            return
        lines = [clean_text(line) for line in self._answer.last_lines()]
        error = final_error(lines, is_all=self._answer.is_short, failed=exit_code != 0)
        if error is None:
            return
        event = decode_event(error.encode("utf-8", "replace"))
        channel = "stdout-json" if error.startswith("{") else "stdout"
        signals = self._signals_of_event(event) if event is not None else self._signals_of_text(error, channel)
        stopped = error == STOPPED_ANSWER and exit_code == 0
        facts = Facts(ending=Ending(ok=False, interrupted=stopped, status=status_in_text(error)))
        self._news += record.take(facts, signals, seen_at=self._seen_at)

    # --- stderr and screen -----------------------------------------------------------------------------------

    def _read_stderr_line(self, line: bytes | LongLine) -> None:
        text = clean_text(line.head if isinstance(line, LongLine) else line)
        if not isinstance(self._stderr_notices, ErrorNotices):
            self._take_notices(self._stderr_notices.add(text))
        elif self._stderr_document.is_open:
            if self._stderr_document.add(text):
                self._take_stderr_document()
        elif not self._stderr_document.begins(text):
            self._read_stderr_text(text)

    def _read_stderr_text(self, text: str) -> None:
        if text == _CANCELLED:
            self._was_cancelled = True
        event = decode_event(text.encode("utf-8", "replace")) if text.startswith("{") else None
        if event is not None and is_own_event(self._dialect, event):
            self._take_event(event)
        else:
            self._take_notices(self._stderr_notices.add(text))

    def _take_stderr_document(self) -> None:
        events, lines = self._stderr_document.take()
        for event in events:
            self._take_event(event)
        for line in lines:
            self._read_stderr_text(line)

    def _flush_stderr(self, exit_code: int | None) -> None:
        rest = self._stderr.flush()
        if rest is not None:
            self._read_stderr_line(rest)
        if self._stderr_document.is_open:
            self._take_stderr_document()
        self._take_notices(self._stderr_notices.flush(exit_code))
        transcript = self._stderr_notices
        if isinstance(transcript, CodexTranscript) and transcript.ends_interrupted:
            self._record.take(Facts(ending=Ending(ok=False, interrupted=True)), [], seen_at=self._seen_at)

    def _read_screen(self, chunk: bytes) -> None:
        if self._screen is None:
            self._screen = ScreenParagraphs()
        for paragraph in self._screen.feed(chunk, seen_at=self._seen_at):
            self._take_notice(paragraph, channel="screen")

    def _flush_screen(self) -> None:
        for paragraph in self._screen.look() if self._screen is not None else []:
            self._take_notice(paragraph, channel="screen")

    # --- what was understood ---------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        signals = self._signals_of_event(event)
        self._news += self._record.take(self._dialect.read(event), signals, seen_at=self._seen_at)

    def _take_notices(self, notices: list[str]) -> None:
        for notice in notices:
            self._take_notice(notice, channel="stderr")

    def _take_notice(self, notice: str, *, channel: Channel) -> None:
        self._record.count_retry_notice(bool(_RETRY_WORDS.search(notice)))
        facts = Facts(session_id=session_in_text(notice), status=status_in_text(notice))
        self._news += self._record.take(facts, self._signals_of_text(notice, channel), seen_at=self._seen_at)

    def _signals_of_event(self, event: Event) -> list[Signal]:
        return read_event(self._provider, event, seen_at=self._seen_at, tz=self._tz)

    def _signals_of_text(self, text: str, channel: str) -> list[Signal]:
        return read_line(self._provider, text, channel=channel, seen_at=self._seen_at, tz=self._tz)

    def _transcript_session_id(self) -> str | None:
        transcript = self._stderr_notices
        return transcript.session_id if isinstance(transcript, CodexTranscript) else None

    def _run(self, exit_code: int | None) -> Run:
        record = self._record
        is_answer = not self._speaks_json and (self._stdout_notices is None or record.trouble is None)
        return Run(
            provider=self._provider,
            exit_code=exit_code,
            ending=record.ending,
            trouble=record.trouble,
            speaks_json=self._speaks_json,
            ends_with_result=self._dialect.ends_with_result,
            fails_aloud=self._dialect.fails_aloud,
            has_answered=record.has_answered,
            has_text=(self._answer.has_text and is_answer) or self._screen is not None,
            is_cut=self._ends_in_line and self._dialect.streams_text,
            was_cancelled=self._was_cancelled,
        )


def _has_error(head: Head) -> bool:
    """Whether an event of a quiet type has an error in it: a synthetic message, or an item that is one."""
    if head.error is not msgspec.UNSET:
        return True
    if head.item is not None:
        return head.item.type == "error"
    return head.message is not None and head.message.model == "<synthetic>"
