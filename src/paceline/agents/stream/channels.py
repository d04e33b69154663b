"""The channels of one run: stdout with events, one JSON document or plain text; stderr with notices and some JSON.

Here: finding out which of these it is, passing the CLI's own pieces to the interpreter, passing over lines that can be
no piece, counting turns, and keeping the last message undecoded. Never here: how one CLI words its notices, or what a
piece means.

A turn ends when all tools that the model called are done, and the agent asks it again. There a run can be ended and
resumed without loss: the conversation has the results of all tools, and none is at work.
"""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection
from itertools import islice

import msgspec

from paceline.agents import dialect
from paceline.agents.stream.flood import LineFilter, Lines
from paceline.agents.stream.lines import (
    UNREADABLE,
    DocumentReader,
    LineSplitter,
    LongLine,
    clean_text,
    decode_json_event,
    events_within,
    salvage,
)
from paceline.agents.stream.record import RunRecord, shows_answer, was_stopped
from paceline.detect.json_objects import Event, text_at

_LINES_BEFORE_STREAM = 8
"""Some CLIs print a notice or two before their JSON begins; what looks like JSON after that is quoted."""
_JSON_START = re.compile(r"[^A-Za-z]{0,40}?[{\[]")
_decode_head = msgspec.json.Decoder(dialect.Head).decode
_TAIL_LINES = 8
"""Lines of plain text that are kept: an error at the end of an answer is shorter."""
_API_ERROR = re.compile(r"\[?API Error: ")


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
    marked = [index for index, line in enumerate(paragraph) if dialect.begins_as_error(line)]
    return "\n".join(paragraph[marked[-1] :]) if marked else paragraph[-1]


# --- turns and last words ----------------------------------------------------------------------

_PARENT = b'"parent_tool_use_id":'
_HEAD_BYTES = 512
"""Where the first call or result of an event is found: its text, which may be long, follows. Most events have none."""


class TurnRecord:
    """Counts the ends of turns. Sub-agents are tools of the agent, so their own tools do not count."""

    def __init__(self, events: dialect.TurnEvents) -> None:
        self.ends = 0
        self._events = events
        self._types = events.calls | events.results | events.speech
        self._open = 0

    def take(self, head: dialect.Head, line: bytes) -> None:
        """Count an event of the stream."""
        events, kind = self._events, head.type
        if kind not in self._types:
            return
        item = head.item.type if head.item is not None else ""
        is_tool = not events.tool_items or item in events.tool_items
        done = called = 0
        if is_tool and kind in events.results:
            done = _count(events.result, line, most=max(1, self._open))
        elif is_tool and kind in events.calls:
            called = _count(events.call, line)
        if not (done or called or self._open) or is_of_sub_agent(line):
            return
        if done:
            self._finish(done)
        elif called:
            self._open += called
        elif kind in events.speech and head.role != "user" and (not item or item in events.spoken_items):
            self._open = 0

    def take_long(self, kind: object) -> None:
        """Count an event that was too long to be kept: the result of one tool, or a call with a long text."""
        if kind in self._events.results:
            self._finish(1)
        elif kind in self._events.calls:
            self._open += 1

    def _finish(self, done: int) -> None:
        self._open = max(0, self._open - done)
        self.ends += self._open == 0


def _count(marks: tuple[bytes, ...], line: bytes, most: int | None = None) -> int:
    """Return how often the event has one of the marks, as far as that matters."""
    if not marks:
        return 1
    head = line[:_HEAD_BYTES]
    for mark in marks:
        if mark in head:
            return 1 if most == 1 else line.count(mark)
    return 0


def is_of_sub_agent(line: bytes) -> bool:
    """Return whether an event is a sub-agent's. Quotes inside a JSON string are escaped, so no text looks like this."""
    place = line.rfind(_PARENT)
    value = place + len(_PARENT)
    return place >= 0 and line[value : value + 2].lstrip().startswith(b'"')


class _Piece(msgspec.Struct, gc=False):
    content: str = ""


_decode_piece: Callable[[bytes], _Piece] = msgspec.json.Decoder(_Piece).decode


class AnswerText:
    """The last message of a run. Whole messages are kept undecoded; of pieces the text is kept, up to a bound."""

    def __init__(self, events: dialect.AnswerEvents) -> None:
        self._events = events
        self._last: bytes | None = None
        self._pieces: list[str] = []
        self._size = 0

    def take(self, head: dialect.Head, line: bytes) -> None:
        """Keep an event if it is a part of an answer."""
        events = self._events
        if head.type in events.ends or head.role == "user":
            self._pieces, self._size = [], 0
        elif head.type in events.types:
            if events.ends:
                self._add_piece(line)
            elif events.item is None or (head.item is not None and head.item.type == events.item):
                self._last = line

    @property
    def text(self) -> str | None:
        """The answer so far, or None."""
        if self._pieces:
            return "".join(self._pieces)
        event: Event | None = None if self._last is None else decode_json_event(self._last)
        return None if event is None else text_at(event, *self._events.path)

    def _add_piece(self, line: bytes) -> None:
        if self._size < dialect.MOST_ANSWER_BYTES:
            try:
                piece = _decode_piece(line).content
            except UNREADABLE:
                return
            self._pieces.append(piece)
            self._size += len(piece)


# --- stdout ------------------------------------------------------------------------------------


class StdoutReader:
    """Reads the bytes of stdout, cut anywhere."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._dialect = record.dialect
        self._splitter = LineSplitter()
        self._has_text = False
        self._plain_lines = 0
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        """The end of plain text: the agent's prose, of which only the CLI's own error at the very end counts."""
        answers = record.dialect.answers
        self._answer_text = None if answers is None else AnswerText(answers)
        turns = record.dialect.turns
        self.turns = None if turns is None else TurnRecord(turns)
        self._document = DocumentReader()
        self._own_notice = record.cli.stdout_notice

    @property
    def has_answer(self) -> bool:
        """Whether plain text was printed that is the agent's answer, and not notices about a limit."""
        is_answer = not self._record.speaks_json and (self._own_notice is None or self._record.trouble is None)
        return self._has_text and is_answer

    def feed(self, chunk: bytes) -> None:
        """Read the lines that a chunk completes."""
        self._read_lines(self._splitter.feed(chunk))

    def flush(self) -> None:
        """Read what is left when the process has ended."""
        rest = self._splitter.flush()
        if rest is not None:
            self._record.is_cut = self._dialect.streams_text
            self._read_lines([rest])
        if self._document.is_open:
            # It was cut short, so it is no answer; its words may still be an error.
            self._record.speaks_json = True
            for line in self._document.take()[1]:
                self._keep_plain(line.encode("utf-8", "replace"))

    def read_final_error(self, exit_code: int | None) -> None:
        """Read the end of plain text: the text is the agent's, but its very end may be the CLI's own error."""
        if not self._has_text:
            return
        if self._record.ending is not None or self._record.trouble is not None or was_stopped(exit_code):
            return
        stopped_answers = self._record.clis.stopped_answers
        failed = exit_code != 0
        is_all = self._plain_lines <= _TAIL_LINES
        error = final_error(self._end(), is_all=is_all, failed=failed, stopped_answers=stopped_answers)
        if error is not None:
            event = decode_json_event(error.encode("utf-8", "replace"))
            interrupted = error in stopped_answers and not failed
            self._record.add_final_error(error, event, interrupted=interrupted)

    def answer(self) -> str | None:
        """Return what the agent said last: its last message, or the end of plain text."""
        if self._record.speaks_json:
            return self._record.final_answer or (None if self._answer_text is None else self._answer_text.text)
        return "\n".join(self.last_lines()) if self.has_answer else None

    def last_lines(self) -> list[str]:
        """Return the end of plain text. Of a stream of events there is none: each is data."""
        return [] if self._record.speaks_json else self._end()

    def _end(self) -> list[str]:
        return [clean_text(line) for line in self._tail]

    def _keep_plain(self, line: bytes) -> None:
        """Keep the end of plain text, undecoded: most of it is never read."""
        if line:
            self._has_text = True
            self._plain_lines += 1
        self._tail.append(line[: dialect.CLIP])

    # --- events --------------------------------------------------------------------------------

    def _read_lines(self, lines: list[bytes | LongLine]) -> None:
        """Read lines. This is the hot path: of most lines only the few members that `Head` names are decoded."""
        decode_head, quiet, marks = _decode_head, self._dialect.quiet, self._dialect.denial_marks
        record, answer, turns = self._record, self._answer_text, self.turns
        for line in lines:
            if not record.speaks_json:
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
            if turns is not None:
                turns.take(head, line)
            if head.type in quiet and not _has_error(head):
                self._pass_over(head, line)
                if answer is not None:
                    answer.take(head, line)
                if marks and any(mark in line for mark in marks):
                    record.add_denials(line)
            else:
                self._read_odd_line(line)

    def _pass_over(self, head: dialect.Head, line: bytes) -> None:
        """Count an event without news: it may show that the model answers, and how many tokens that took."""
        if head.message is not None:
            self._record.counts.count_message(head.message)
            if head.message.usage is not None and not is_of_sub_agent(line):
                self._record.counts.note_request(head.message.usage)
        if head.type in self._dialect.progress and shows_answer(head):
            self._record.model_answered()

    def _read_odd_line(self, line: bytes) -> None:
        """Read a line that has news, or is not one clean event: an event between other text, several, or none."""
        event = decode_json_event(line)
        events = [event] if event is not None else self._own_events_within(line)
        for found in events:
            self._record.add_event(found)
        if not events:
            self._keep_plain(line)

    def _own_events_within(self, line: bytes) -> list[Event]:
        """Return the CLI's events in a line. Where it was cut, whole objects may be inner parts of a broken event."""
        return [event for event in events_within(line) if self._dialect.is_own_event(event)]

    def _read_long_line(self, line: LongLine) -> None:
        event = salvage(line)
        if event is None:
            return
        if self.turns is not None:
            self.turns.take_long(event.get("type"))
        if event.get("type") in self._dialect.quiet:
            self._record.model_answered()
        else:
            self._record.add_event(event)

    # --- before the first event ----------------------------------------------------------------

    def _read_before_stream(self, line: bytes | LongLine) -> None:
        """Read a line while it is open whether the CLI prints events, one document, or plain text."""
        if isinstance(line, LongLine):
            self._read_long_first_line(line)
            return
        if self._document.is_open:
            if self._document.add(line.decode("utf-8", "replace")):
                self._take_document()
        elif self._plain_lines > _LINES_BEFORE_STREAM or not self._begins_stream(line):
            self._read_plain_line(line)

    def _begins_stream(self, line: bytes) -> bool:
        text = clean_text(line)
        if not _JSON_START.match(text):
            return False
        events = self._own_events_within(line)
        for event in events:
            self._record.speaks_json = True
            self._record.add_event(event)
        return bool(events) or (not self._has_text and self._document.begins(text))

    def _take_document(self) -> None:
        events, lines = self._document.take()
        if any(self._dialect.is_own_event(event) for event in events):
            self._record.speaks_json = True
            for event in events:
                self._record.add_event(event)
            return
        # An answer that the agent was asked to write as JSON: prose like any other.
        self._has_text = True
        for line in lines:
            self._read_plain_line(line.encode("utf-8", "replace"))

    def _read_long_first_line(self, line: LongLine) -> None:
        event = salvage(line)
        if event is not None and not self._has_text and self._dialect.is_own_event(event):
            self._record.speaks_json = True
            self._record.add_event(event)
        else:
            self._has_text = True

    def _read_plain_line(self, line: bytes) -> None:
        self._keep_plain(line)
        if self._own_notice is not None and self._own_notice.match(text := clean_text(line)):
            self._record.add_notice(text[: dialect.CLIP], channel="stdout")


def _has_error(head: dialect.Head) -> bool:
    """Return whether an event of a quiet type has an error in it: a synthetic message, or an item that is one."""
    if head.error is not msgspec.UNSET:
        return True
    if head.item is not None:
        return head.item.type == "error"
    return head.message is not None and head.message.model == "<synthetic>"


# --- stderr ------------------------------------------------------------------------------------

_LINES_KEPT = 40
"""Lines at the end that are kept: what a failing command says last is shorter, its stack trace included."""
_LINES_AT_A_TIME = 256
"""Lines that are tested at once. Of more, many would be tested for nothing when a flood begins among them."""
BLOCK_BYTES = 1 << 18
"""Bytes of output after which the last notices of a flood are read."""


class StderrReader:
    """Reads the bytes of stderr, cut anywhere."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._splitter = LineSplitter()
        self._notices = record.clis.stderr_reader(record.cli)
        self._filter = LineFilter(record.clis.line_words, self._notices, cancelled_line=record.cli.cancelled_line)
        self._document = DocumentReader()
        self._has_broken_document = False
        self._last_lines: deque[bytes] = deque(maxlen=_LINES_KEPT)
        self._bytes_in_block = 0

    def feed(self, chunk: bytes) -> None:
        """Read the lines that a chunk completes."""
        lines = self._splitter.feed(chunk)
        if lines:
            self._read_lines(lines)
            self._take_facts()

    def flush(self, exit_code: int | None) -> None:
        """Read what is left when the process has ended."""
        rest = self._splitter.flush()
        if rest is not None:
            self._read_lines([rest])
        if self._document.is_open:
            self._take_document()
        self._record.end_block()
        self._add_notices(self._notices.flush(exit_code))
        if self._take_facts().ending is not None:
            self._record.add_interruption()

    def _take_facts(self) -> dialect.Facts:
        """Record what stderr has stated about the run as a whole. Events know it better."""
        facts = self._notices.facts()
        self._record.session_id = self._record.session_id or facts.session_id
        self._record.printed_tokens = facts.run_tokens
        return facts

    def last_lines(self) -> list[str]:
        """Return the end of what was printed, without stack traces."""
        lines = (clean_text(line) for line in self._last_lines)
        return [line for line in lines if line and not dialect.STACK_LINE.match(line)]

    def _read_lines(self, lines: Lines) -> None:
        """Read lines. This is the hot path: most lines are passed over, and most blocks of them at once."""
        ends = islice(lines, max(0, len(lines) - _LINES_KEPT), None)
        self._last_lines.extend((line.head if isinstance(line, LongLine) else line)[: dialect.CLIP] for line in ends)
        self._bytes_in_block += sum(map(len, lines)) + len(lines)
        self._read_all(lines[-_LINES_KEPT:] if self._notices.reads_end_only else self._filter.thinned(lines))
        if self._bytes_in_block >= BLOCK_BYTES:
            self._bytes_in_block %= BLOCK_BYTES
            self._record.end_block()

    def _read_all(self, lines: Lines) -> None:
        """Read some lines at a time, until there were too many notices: then only the last lines."""
        start = 0
        while start < len(lines):
            if self._record.is_flooded and len(lines) - start > _LINES_KEPT:
                self._document.drop()  # it would never end
                start = len(lines) - _LINES_KEPT
            is_end = len(lines) - start <= _LINES_KEPT
            start += self._read_some(lines[start : start + _LINES_AT_A_TIME], in_flood=is_end)

    def _read_some(self, lines: Lines, *, in_flood: bool) -> int:
        """Read the lines that may mean something, and those within an open notice or document.

        Returns how many lines that took: fewer if a flood began and is not to be read.
        """
        doubtful = self._filter.doubtful(lines)
        place = 0
        while place < len(lines):
            if not self._document.is_open and self._notices.is_idle:
                upcoming = bisect_left(doubtful, place)
                coming = doubtful[upcoming] if upcoming < len(doubtful) else len(lines)
                if coming > place or self._filter.is_plain(lines[place]):
                    self._notices.pass_over()
                    place = max(coming, place + 1)
                    continue
            if self._record.is_flooded and not in_flood:
                return place
            line = lines[place]
            if isinstance(line, LongLine) or self._document.is_open or not self._notices.leaves_out(line):
                self._read_line(line)
            place += 1
        return place

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
        if text == self._record.cli.cancelled_line:
            self._record.was_cancelled = True
        event = decode_json_event(text.encode("utf-8", "replace")) if text.startswith("{") else None
        if event is not None and self._record.dialect.is_own_event(event):
            self._record.add_printed_event(event, text)
        else:
            self._add_notices(self._notices.add(text))

    def _take_document(self) -> None:
        printed = self._document.text()
        events, lines = self._document.take()
        # Whoever opens brackets without end prints no documents: the next one would cost as much again.
        self._has_broken_document = self._has_broken_document or self._document.is_too_long
        for event in events:
            self._record.add_printed_event(event, printed)
        if lines:
            self._read_lines_of_document([line.encode("utf-8", "replace") for line in lines])

    def _read_lines_of_document(self, lines: Lines) -> None:
        """Read the lines of what was no document after all: none of them begins another one."""
        has_broken, self._has_broken_document = self._has_broken_document, True
        self._read_all(self._filter.thinned(lines))
        self._has_broken_document = has_broken

    def _add_notices(self, notices: list[str]) -> None:
        for notice in notices:
            self._record.add_notice(notice, channel="stderr")
