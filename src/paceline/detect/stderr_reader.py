"""The stderr of one run: notices of the CLI, and JSON where it prints some there.

Here: passing the CLI's own pieces to the interpreter. Never here: how one CLI words its notices, or what they mean.
"""

from collections import deque

from paceline.detect.notices import CLIP, is_stack_line
from paceline.detect.output_interpreter import OutputInterpreter
from paceline.detect.parsing.line_splitter import DocumentReader, LineSplitter, LongLine, clean_text, decode_json_event
from paceline.detect.run_facts import Transcript

_LINES_KEPT = 12
"""Lines at the end that are kept: what a failing command says last is shorter, stack traces aside."""


class StderrReader:
    """Reads the bytes of stderr, cut anywhere."""

    def __init__(self, interpreter: OutputInterpreter) -> None:
        self.was_cancelled = False
        """Whether the CLI reported that it was cancelled."""
        self._interpreter = interpreter
        self._splitter = LineSplitter()
        self._notices = interpreter.providers.stderr_reader(interpreter.cli)
        self._document = DocumentReader()
        self._last_lines: deque[str] = deque(maxlen=_LINES_KEPT)

    def feed(self, chunk: bytes) -> None:
        """Read the lines that a chunk completes."""
        for line in self._splitter.feed(chunk):
            self._read_line(line)

    def flush(self, exit_code: int | None) -> None:
        """Read what is left when the process has ended."""
        rest = self._splitter.flush()
        if rest is not None:
            self._read_line(rest)
        if self._document.is_open:
            self._take_document()
        self._add_notices(self._notices.flush(exit_code))
        if self.transcript().is_interrupted:
            self._interpreter.add_interruption()

    def transcript(self) -> Transcript:
        """Return what stderr has stated about the run as a whole."""
        return self._notices.transcript()

    def last_lines(self) -> list[str]:
        """Return the end of what was printed, without stack traces."""
        return list(self._last_lines)

    def _read_line(self, line: bytes | LongLine) -> None:
        text = clean_text(line.head if isinstance(line, LongLine) else line)
        if text and not is_stack_line(text):
            self._last_lines.append(text[:CLIP])
        if not self._notices.reads_json:
            self._add_notices(self._notices.add(text))
        elif self._document.is_open:
            if self._document.add(text):
                self._take_document()
        elif not self._document.begins(text):
            self._read_text(text)

    def _read_text(self, text: str) -> None:
        if text == self._interpreter.cli.cancelled_line:
            self.was_cancelled = True
        event = decode_json_event(text.encode("utf-8", "replace")) if text.startswith("{") else None
        if event is not None and self._interpreter.dialect.is_own_event(event):
            self._interpreter.add_event(event)
        else:
            self._add_notices(self._notices.add(text))

    def _take_document(self) -> None:
        events, lines = self._document.take()
        for event in events:
            self._interpreter.add_event(event)
        for line in lines:
            self._read_text(line)

    def _add_notices(self, notices: list[str]) -> None:
        for notice in notices:
            self._interpreter.add_notice(notice, channel="stderr")
