"""The stderr of one run: notices of the CLI, and JSON where it prints some there.

Here: passing the CLI's own pieces to the interpreter, and passing over lines that can be no piece. Never here: how one
CLI words its notices, or what they mean.
"""

from bisect import bisect_left
from collections import deque
from itertools import islice

from paceline.detect.line_memory import LineMemory
from paceline.detect.line_sieve import Lines
from paceline.detect.notices import CLIP, is_stack_line
from paceline.detect.output_interpreter import OutputInterpreter
from paceline.detect.parsing.line_splitter import DocumentReader, LineSplitter, LongLine, clean_text, decode_json_event
from paceline.detect.run_facts import Transcript

_LINES_KEPT = 40
"""Lines at the end that are kept: what a failing command says last is shorter, its stack trace included."""
_LINES_AT_A_TIME = 256
"""Lines that are tested at once. Of more, many would be tested for nothing when a flood begins among them."""
BLOCK_BYTES = 1 << 18
"""Bytes of output after which the last notices of a flood are read."""


class StderrReader:
    """Reads the bytes of stderr, cut anywhere."""

    def __init__(self, interpreter: OutputInterpreter) -> None:
        self.was_cancelled = False
        """Whether the CLI reported that it was cancelled."""
        self._interpreter = interpreter
        self._splitter = LineSplitter()
        self._notices = interpreter.providers.stderr_reader(interpreter.cli)
        self._memory = LineMemory(interpreter.providers, self._notices, cancelled_line=interpreter.cli.cancelled_line)
        self._document = DocumentReader()
        self._has_broken_document = False
        self._last_lines: deque[bytes] = deque(maxlen=_LINES_KEPT)
        self._bytes_in_block = 0

    def feed(self, chunk: bytes) -> None:
        """Read the lines that a chunk completes."""
        lines = self._splitter.feed(chunk)
        if lines:
            self._read_lines(lines)

    def flush(self, exit_code: int | None) -> None:
        """Read what is left when the process has ended."""
        rest = self._splitter.flush()
        if rest is not None:
            self._read_lines([rest])
        if self._document.is_open:
            self._take_document()
        self._interpreter.end_block()
        self._add_notices(self._notices.flush(exit_code))
        if self.transcript().is_interrupted:
            self._interpreter.add_interruption()

    def transcript(self) -> Transcript:
        """Return what stderr has stated about the run as a whole."""
        return self._notices.transcript()

    def last_lines(self) -> list[str]:
        """Return the end of what was printed, without stack traces."""
        lines = (clean_text(line) for line in self._last_lines)
        return [line for line in lines if line and not is_stack_line(line)]

    def _read_lines(self, lines: Lines) -> None:
        """Read lines. This is the hot path: most lines are passed over, and most blocks of them at once."""
        ends = islice(lines, max(0, len(lines) - _LINES_KEPT), None)
        self._last_lines.extend((line.head if isinstance(line, LongLine) else line)[:CLIP] for line in ends)
        self._bytes_in_block += sum(map(len, lines)) + len(lines)
        self._read_all(lines[-_LINES_KEPT:] if self._notices.reads_end_only else self._memory.thinned(lines))
        if self._bytes_in_block >= BLOCK_BYTES:
            self._bytes_in_block %= BLOCK_BYTES
            self._interpreter.end_block()

    def _read_all(self, lines: Lines) -> None:
        """Read some lines at a time, until there were too many notices: then only the last lines."""
        start = 0
        while start < len(lines):
            if self._interpreter.is_flooded and len(lines) - start > _LINES_KEPT:
                self._document.drop()  # it would never end
                start = len(lines) - _LINES_KEPT
            is_end = len(lines) - start <= _LINES_KEPT
            start += self._read_some(lines[start : start + _LINES_AT_A_TIME], in_flood=is_end)

    def _read_some(self, lines: Lines, *, in_flood: bool) -> int:
        """Read the lines that may mean something, and those within an open notice or document.

        Returns how many lines that took: fewer if a flood began and is not to be read.
        """
        doubtful = self._memory.doubtful(lines)
        place = 0
        while place < len(lines):
            if self._is_idle:
                upcoming = bisect_left(doubtful, place)
                coming = doubtful[upcoming] if upcoming < len(doubtful) else len(lines)
                if coming > place or self._memory.is_plain(lines[place]):
                    self._notices.pass_over()
                    place = max(coming, place + 1)
                    continue
            if self._interpreter.is_flooded and not in_flood:
                return place
            if not self._is_in_dump(lines[place]):
                self._read_line(lines[place])
            place += 1
        return place

    def _is_in_dump(self, line: bytes | LongLine) -> bool:
        return isinstance(line, bytes) and not self._document.is_open and self._notices.leaves_out(line)

    @property
    def _is_idle(self) -> bool:
        return not self._document.is_open and self._notices.is_idle

    def _read_line(self, line: bytes | LongLine) -> None:
        text = clean_text(line.head if isinstance(line, LongLine) else line)
        if not self._notices.reads_json:
            self._add_notices(self._notices.add(text))
        elif self._document.is_open:
            if self._document.add(text):
                self._take_document()
        elif self._has_broken_document or not self._document.begins(text):
            self._read_text(text)

    def _read_text(self, text: str) -> None:
        if text == self._interpreter.cli.cancelled_line:
            self.was_cancelled = True
        event = decode_json_event(text.encode("utf-8", "replace")) if text.startswith("{") else None
        if event is not None and self._interpreter.dialect.is_own_event(event):
            self._interpreter.add_printed_event(event, text)
        else:
            self._add_notices(self._notices.add(text))

    def _take_document(self) -> None:
        printed = self._document.text()
        events, lines = self._document.take()
        # Whoever opens brackets without end prints no documents: the next one would cost as much again.
        self._has_broken_document = self._has_broken_document or self._document.is_too_long
        for event in events:
            self._interpreter.add_printed_event(event, printed)
        if lines:
            self._read_lines_of_document([line.encode("utf-8", "replace") for line in lines])

    def _read_lines_of_document(self, lines: Lines) -> None:
        """Read the lines of what was no document after all: none of them begins another one."""
        has_broken, self._has_broken_document = self._has_broken_document, True
        self._read_all(self._memory.thinned(lines))
        self._has_broken_document = has_broken

    def _add_notices(self, notices: list[str]) -> None:
        for notice in notices:
            self._interpreter.add_notice(notice, channel="stderr")
