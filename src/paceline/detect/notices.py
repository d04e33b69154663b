"""Whose words a line of text is: the CLI's own notices, taken out of prose, transcripts and stack traces.

Here: gathering notices that span lines, and letting go of what the agent or its tools said. Never here:
what a notice means (read_line knows that), or JSON.
"""

import re
from collections import deque
from typing import Protocol

NOTICE_LINES = 8
"""A notice that has not ended after so many lines is read as it is."""
_TAIL_LINES = 8
_CLIP = 1536
"""Of a longer line the rest is somebody's data, and reading it would only cost time."""


class NoticeReader(Protocol):
    """Turns the lines of a text channel into notices of the CLI, each as one text."""

    def add(self, line: str) -> list[str]:
        """The notices that this line completed."""

    def flush(self, exit_code: int | None) -> list[str]:
        """The notices that only the end of the stream completes."""


_STACK_LINE = re.compile(r"\s+at ")
_NOTICE_START = re.compile(r"\W{0,4}(?:Attempt \d+ failed|Error when talking to |\w{0,40}QuotaError: )")
_NOTICE_END = re.compile(r".{0,4000}?(?:Retrying (?:after|with|in)|Max attempts reached)")


class ErrorNotices:
    """stderr of most CLIs: their own words, with notices over several lines and dumps of exceptions.

    A dump repeats in pieces what the notice above it said as a whole, and its pieces mislead.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._in_dump = False

    def add(self, line: str) -> list[str]:
        """Gathers a notice from its first line to its last."""
        line = line[:_CLIP]
        if self._in_dump:
            self._in_dump = line[:1] in (" ", "\t") or line.startswith(("}", "]"))
            if self._in_dump:
                return []
        if _STACK_LINE.match(line):
            self._in_dump = True
            return self._close()
        if self._open and not _NOTICE_START.match(line):
            self._open.append(line)
            return self._close() if len(self._open) >= NOTICE_LINES or _NOTICE_END.match(line) else []
        notices = self._close()
        if not _NOTICE_START.match(line):
            return [*notices, line] if line else notices
        self._open = [line]
        return [*notices, *self._close()] if _NOTICE_END.match(line) else notices

    def flush(self, exit_code: int | None) -> list[str]:
        """The notice that was still open."""
        return self._close()

    def _close(self) -> list[str]:
        notice, self._open = "\n".join(self._open), []
        return [notice] if notice else []


_CODEX_BANNER = re.compile(r"OpenAI Codex v|session id: ")
_CODEX_SPEAKER = re.compile(r"(?:\[[^\]]{10,40}\] )?(?:user|codex|thinking|exec|tool)\b|User instructions:")
_CODEX_ERROR = re.compile(r"(?:\[[^\]]{10,40}\] )?(?:ERROR|error|stream error|⚠️?|■|🖐)[: ]")
_CODEX_STOPPED = "turn interrupted"
_CODEX_RETRY = re.compile(r".{0,40}(?:Reconnecting\.\.\. |stream error: .{0,2000}; retrying )\d+/\d+")


class CodexTranscript:
    """stderr of codex without `--json`: a transcript of the session, with the CLI's error lines in it.

    Before anybody has spoken, all lines are codex's own. Later an error line could be quoted, so only the last
    one counts, and only when the run failed; retry notices have a form that nobody quotes at a line's start.
    """

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.tokens: int | None = None
        self.ends_interrupted = False
        """Whether the last thing it said is that somebody stopped it."""
        self._is_transcript = False
        self._has_spoken = False
        self._names_tokens = False
        self._last_error: str | None = None

    def add(self, line: str) -> list[str]:
        """An error line that is certainly codex's own."""
        line = line[:_CLIP]
        self._read_header(line)
        if not line:
            return []
        self.ends_interrupted = self._is_transcript and line == _CODEX_STOPPED
        if self._is_transcript and _CODEX_SPEAKER.match(line):
            self._has_spoken = True
        if not self._has_spoken or _CODEX_RETRY.match(line):
            return [line]
        if _CODEX_ERROR.match(line):
            self._last_error = line
        return []

    def flush(self, exit_code: int | None) -> list[str]:
        """The last error line, when the run failed."""
        return [self._last_error] if self._last_error and exit_code else []

    def _read_header(self, line: str) -> None:
        if self._names_tokens:
            digits = line.replace(",", "")
            self.tokens = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else self.tokens
        self._names_tokens = line == "tokens used"
        if self._is_transcript and self.session_id is not None:
            return
        if _CODEX_BANNER.match(line):
            self._is_transcript = True
            if line.startswith("session id: "):
                self.session_id = line.removeprefix("session id: ").strip() or None


_AIDER_OWN = re.compile(
    r"(?:> )?(?:Unexpected error: )?(?:litellm\.|The API provider)|(?:> )?Retrying in [\d.]+ seconds"
)


class OwnLines:
    """A text channel where the agent's prose and the CLI's notices mix, and notices have a known beginning."""

    def __init__(self, own: re.Pattern[str]) -> None:
        self._own = own

    def add(self, line: str) -> list[str]:
        """The line, if it begins as the CLI's notices do."""
        return [line[:_CLIP]] if self._own.match(line) else []

    def flush(self, exit_code: int | None) -> list[str]:
        """Nothing is held back."""
        return []


class LastLine:
    """stderr of a command of which nothing is known: its last line counts, and only when it failed."""

    def __init__(self) -> None:
        self._last = ""

    def add(self, line: str) -> list[str]:
        """Keeps the line as the last one."""
        if line:
            self._last = line[:_CLIP]
        return []

    def flush(self, exit_code: int | None) -> list[str]:
        """The last line of a command that failed."""
        return [self._last] if self._last and exit_code else []


_ERROR_MARK = re.compile(r"\W{0,4}(?:API Error|Error:|error:|ERROR)")
_ERROR_AS_ANSWER = re.compile(r"\[?API Error: |Execution error$")
STOPPED_ANSWER = "Execution error"
"""All that claude prints as text when it is interrupted; its exit code is then 0."""


class PlainAnswer:
    """Plain-text stdout: the agent's prose, of which only the CLI's own error at the very end counts."""

    def __init__(self) -> None:
        self.has_text = False
        self.lines = 0
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)

    def add(self, line: bytes) -> None:
        """Keeps the end of the text, undecoded: most of it is never looked at."""
        if line:
            self.has_text = True
            self.lines += 1
        self._tail.append(line[:_CLIP])

    def last_lines(self) -> list[bytes]:
        """The end of the text."""
        return list(self._tail)

    @property
    def is_short(self) -> bool:
        """Whether the end is all there is."""
        return self.lines <= _TAIL_LINES


def final_error(lines: list[str], *, is_all: bool, failed: bool) -> str | None:
    """The CLI's own error at the end of plain text, or None.

    A failed run's last paragraph is searched for a line that begins like an error; without one its last line
    counts. A run that calls itself successful is believed unless an API error is all that it printed.
    """
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    if not lines:
        return None
    if not failed:
        first = next(line for line in lines if line.strip())
        return "\n".join(lines) if is_all and _ERROR_AS_ANSWER.match(first) else None
    breaks = [index for index, line in enumerate(lines) if not line.strip()]
    paragraph = lines[breaks[-1] + 1 if breaks else 0 :]
    marked = [index for index, line in enumerate(paragraph) if _ERROR_MARK.match(line)]
    return "\n".join(paragraph[marked[-1] :]) if marked else paragraph[-1]


def stderr_reader(provider: str, *, is_known: bool) -> NoticeReader:
    """How a CLI's stderr is to be read."""
    if provider == "codex":
        return CodexTranscript()
    return ErrorNotices() if is_known else LastLine()


def stdout_notices(provider: str) -> OwnLines | None:
    """A reader for notices in plain stdout, for the CLIs that have nothing else."""
    return OwnLines(_AIDER_OWN) if provider == "aider" else None
