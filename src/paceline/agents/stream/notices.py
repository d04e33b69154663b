"""The CLI's own notices in a text channel, separated from prose, transcripts and stack traces.

Here: readers that gather notices line by line and drop what the agent or its tools printed, and what a notice states
by its form: a retry, a denied call, a conversation. Never here: what it states about limits, JSON, or the words of one
CLI, which its dialect has.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable
from functools import cached_property

import msgspec

from paceline.agents.stream.facts import NO_TRANSCRIPT, Denial, Transcript
from paceline.detect.provider import any_of

NOTICE_LINES = 8
"""A notice that has not ended after so many lines is read as it is: a missed last line must not hide it."""
_TAIL_LINES = 8
"""Lines of plain text that are kept: an error at the end of an answer is shorter."""
CLIP = 1536
"""Characters of a line that are read. The rest of a longer line is an agent's data and would only cost time."""

_STACK_LINE = re.compile(r"\s+at ")
_DUMP_LINE = re.compile(rb"(?:[ \t]+[!-~]|[}\]])[\t\x20-\x7e]*")
_ERROR_MARK = re.compile(r"\W{0,4}(?:API Error|Error:|error:|ERROR)")
_API_ERROR = re.compile(r"\[?API Error: ")
STATUS_IN_ERROR = (
    r"(?:API Error:?|failed with status|last status:|status code:?|\(HTTP) {0,2}(?:Request rejected )?\(?([45]\d\d)\b"
)
"""An HTTP status where CLIs print one in their own errors."""
_STATUS_IN_ERROR = re.compile(STATUS_IN_ERROR)


def is_stack_line(line: str) -> bool:
    """Return whether a line is a frame of a stack trace."""
    return bool(_STACK_LINE.match(line))


def begins_as_error(text: str) -> bool:
    """Return whether a text begins as CLIs word their errors."""
    return bool(_ERROR_MARK.match(text))


def status_in_text(text: str) -> int | None:
    """Return the HTTP status in a CLI's own error text, where it prints one."""
    found = _STATUS_IN_ERROR.search(text)
    return int(found[1]) if found else None


class NoticeReader:
    """Turns the lines of a text channel into notices of the CLI, each as one text. By itself it finds none."""

    reads_json = False
    """Whether JSON in the channel is the CLI's own."""
    reads_end_only = False
    """Whether only the last lines of the channel can be a notice."""
    frame: re.Pattern[str] = re.compile(r"(?!)")
    """Matches lines that change something although the reader is idle, whatever words and numbers they have."""

    @property
    def is_idle(self) -> bool:
        """Whether no notice is open, so that plain lines change nothing."""
        return True

    def leaves_out(self, line: bytes) -> bool:
        """Return whether this line certainly continues an open dump, so that it need not be added."""
        return False

    def pass_over(self) -> None:
        """Take note that plain lines were printed, which were not added."""

    def add(self, line: str) -> list[str]:
        """Return the notices that this line completed."""
        return []

    def flush(self, exit_code: int | None) -> list[str]:
        """Return the notices that only the end of the stream completes."""
        return []

    def transcript(self) -> Transcript:
        """Return what the channel has stated about the run."""
        return NO_TRANSCRIPT


class NoticeRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a CLI words its own notices. All fields are patterns, and they apply to every CLI."""

    retry: str = ""
    """Found in the announcement of a retry."""
    resume: str = ""
    """The hint how to resume a conversation; its one group is the session id."""
    first_line: str = ""
    """The first line of a notice that spans several."""
    last_line: str = ""
    """The last line of such a notice."""
    denied: str = ""
    """Found in the report of a denied tool call; a group of any name is the tool."""
    untrusted: str = ""
    """Found in the warning that the folder's permissions are ignored because nobody has trusted it."""

    def all_patterns(self) -> tuple[str, ...]:
        """Return the patterns that are searched in notices and lines."""
        return self.retry, self.resume, self.first_line, self.last_line, self.denied, self.untrusted

    stopped_answer: str = ""
    """All that is printed as an answer when the CLI is interrupted."""


class NoticePatterns:
    """The patterns of all CLIs, each field combined from those of `NoticeRules`."""

    def __init__(self, rules: Iterable[NoticeRules]) -> None:
        self._rules = tuple(rules)

    @cached_property
    def first_line(self) -> re.Pattern[str]:
        return any_of(rules.first_line for rules in self._rules)

    @cached_property
    def last_line(self) -> re.Pattern[str]:
        return any_of(rules.last_line for rules in self._rules)

    @cached_property
    def retry(self) -> re.Pattern[str]:
        return any_of(rules.retry for rules in self._rules)

    @cached_property
    def untrusted(self) -> re.Pattern[str]:
        return any_of(rules.untrusted for rules in self._rules)

    @cached_property
    def stopped_answers(self) -> frozenset[str]:
        """Each is all that some CLI prints as an answer when it is interrupted."""
        return frozenset(filter(None, (rules.stopped_answer for rules in self._rules)))

    def denial_in(self, notice: str) -> Denial | None:
        """Return the denied tool call that a notice reports."""
        found = self._denied.search(notice)
        return None if found is None else Denial(tool=next((tool for tool in found.groups() if tool), ""))

    def session_in(self, notice: str) -> str | None:
        """Return the session id in a hint how to resume a conversation."""
        found = self._resume_hint.match(notice)
        return found[found.lastindex] if found and found.lastindex else None

    @cached_property
    def _denied(self) -> re.Pattern[str]:
        return any_of(rules.denied for rules in self._rules)

    @cached_property
    def _resume_hint(self) -> re.Pattern[str]:
        return any_of(rules.resume for rules in self._rules)


class ErrorNotices(NoticeReader):
    """The stderr of most CLIs: their own words, with notices over several lines and dumps of exceptions.

    A dump repeats in pieces what the notice above it states as a whole, and its pieces mislead.
    """

    reads_json = True
    frame = _STACK_LINE

    def __init__(self, first_line: re.Pattern[str], last_line: re.Pattern[str]) -> None:
        self._first_line = first_line
        self._last_line = last_line
        self._open: list[str] = []
        self._in_dump = False

    def add(self, line: str) -> list[str]:
        """Gather a notice from its first line to its last. Return those that are complete."""
        line = line[:CLIP]
        if self._in_dump:
            self._in_dump = line[:1] in (" ", "\t") or line.startswith(("}", "]"))
            if self._in_dump:
                return []
        if _STACK_LINE.match(line):
            self._in_dump = True
            return self._close()
        if self._open and not self._first_line.match(line):
            self._open.append(line)
            return self._close() if len(self._open) >= NOTICE_LINES or self._last_line.match(line) else []
        notices = self._close()
        if not self._first_line.match(line):
            return [*notices, line] if line else notices
        self._open = [line]
        return [*notices, *self._close()] if self._last_line.match(line) else notices

    @property
    def is_idle(self) -> bool:
        """Whether neither a notice nor a dump is open."""
        return not self._open and not self._in_dump

    def leaves_out(self, line: bytes) -> bool:
        return self._in_dump and bool(_DUMP_LINE.fullmatch(line))

    def flush(self, exit_code: int | None) -> list[str]:
        return self._close()

    def _close(self) -> list[str]:
        notice, self._open = "\n".join(self._open), []
        return [notice] if notice else []


class OwnLines(NoticeReader):
    """A text channel where the agent's prose and the CLI's notices mix, and notices have a known beginning."""

    def __init__(self, own: re.Pattern[str]) -> None:
        self.frame = own

    def add(self, line: str) -> list[str]:
        """Return the line if it begins as the CLI's notices do."""
        return [line[:CLIP]] if self.frame.match(line) else []


class LastLine(NoticeReader):
    """The stderr of an unknown command: its last line counts, and only if it failed."""

    reads_end_only = True

    def __init__(self) -> None:
        self._last = ""

    def add(self, line: str) -> list[str]:
        """Keep the line as the last one."""
        if line:
            self._last = line[:CLIP]
        return []

    def pass_over(self) -> None:
        """Forget the last line: another one followed."""
        self._last = ""

    def flush(self, exit_code: int | None) -> list[str]:
        return [self._last] if self._last and exit_code else []


class PlainAnswer:
    """Plain-text stdout: the agent's prose, of which only the CLI's own error at the very end counts."""

    def __init__(self) -> None:
        self.has_text = False
        self.lines = 0
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)

    def add(self, line: bytes) -> None:
        """Keep the end of the text, undecoded: most of it is never read."""
        if line:
            self.has_text = True
            self.lines += 1
        self._tail.append(line[:CLIP])

    def last_lines(self) -> list[bytes]:
        """Return the end of the text."""
        return list(self._tail)

    @property
    def is_short(self) -> bool:
        """Whether the end is all there is."""
        return self.lines <= _TAIL_LINES


def final_error(lines: list[str], *, is_all: bool, failed: bool, stopped_answers: Collection[str]) -> str | None:
    """Return the CLI's own error at the end of plain text, or None.

    The last paragraph of a failed run is searched for a line that begins like an error; without one its last line
    counts. A run that reports success is believed unless an API error, or the answer of a stopped CLI, is all that
    it printed.
    """
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    if not lines:
        return None
    if not failed:
        first = next(line for line in lines if line.strip())
        is_error = bool(_API_ERROR.match(first)) or first in stopped_answers
        return "\n".join(lines) if is_all and is_error else None
    breaks = [index for index, line in enumerate(lines) if not line.strip()]
    paragraph = lines[breaks[-1] + 1 if breaks else 0 :]
    marked = [index for index, line in enumerate(paragraph) if _ERROR_MARK.match(line)]
    return "\n".join(paragraph[marked[-1] :]) if marked else paragraph[-1]
