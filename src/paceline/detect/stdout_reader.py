"""The stdout of one run: a stream of events, one JSON document, or plain text.

Here: finding out which of the three it is, and passing the CLI's own pieces to the interpreter. Never here: what a
piece means.
"""

import re

import msgspec

from paceline.detect.answer_text import AnswerText
from paceline.detect.notices import PlainAnswer, final_error
from paceline.detect.output_interpreter import OutputInterpreter
from paceline.detect.parsing.json_objects import Event
from paceline.detect.parsing.line_splitter import (
    UNREADABLE,
    DocumentReader,
    LineSplitter,
    LongLine,
    clean_text,
    decode_json_event,
    events_within,
    salvage,
)
from paceline.detect.run_facts import Head
from paceline.detect.run_outcome import was_stopped
from paceline.detect.run_record import shows_answer
from paceline.detect.turn_record import TurnRecord, is_of_sub_agent

_LINES_BEFORE_STREAM = 8
"""Some CLIs print a notice or two before their JSON begins; what looks like JSON after that is quoted."""
_JSON_START = re.compile(r"[^A-Za-z]{0,40}?[{\[]")
_decode_head = msgspec.json.Decoder(Head).decode


class StdoutReader:
    """Reads the bytes of stdout, cut anywhere."""

    def __init__(self, interpreter: OutputInterpreter) -> None:
        self.speaks_json = False
        """Whether the CLI printed events or a document of its own."""
        self.ends_in_line = False
        """Whether the output ended without a line feed."""
        self._interpreter = interpreter
        self._record = interpreter.record
        self._dialect = interpreter.dialect
        self._splitter = LineSplitter()
        self._answer = PlainAnswer()
        answers = interpreter.dialect.answers
        self._answer_text = None if answers is None else AnswerText(answers)
        turns = interpreter.dialect.turns
        self.turns = None if turns is None else TurnRecord(turns)
        self._document = DocumentReader()
        make_notices = interpreter.cli.stdout_notices
        self._notices = make_notices() if make_notices is not None else None

    @property
    def has_answer(self) -> bool:
        """Whether plain text was printed that is the agent's answer, and not notices about a limit."""
        is_answer = not self.speaks_json and (self._notices is None or self._record.trouble is None)
        return self._answer.has_text and is_answer

    def feed(self, chunk: bytes) -> None:
        """Read the lines that a chunk completes."""
        self._read_lines(self._splitter.feed(chunk))

    def flush(self) -> None:
        """Read what is left when the process has ended."""
        rest = self._splitter.flush()
        if rest is not None:
            self.ends_in_line = True
            self._read_lines([rest])
        if self._document.is_open:
            # It was cut short, so it is no answer; its words may still be an error.
            self.speaks_json = True
            for line in self._document.take()[1]:
                self._answer.add(line.encode("utf-8", "replace"))

    def read_final_error(self, exit_code: int | None) -> None:
        """Read the end of plain text: the text is the agent's, but its very end may be the CLI's own error."""
        if not self._answer.has_text:
            return
        if self._record.ending is not None or self._record.trouble is not None or was_stopped(exit_code):
            return
        stopped_answers = self._interpreter.providers.notices.stopped_answers
        lines = [clean_text(line) for line in self._answer.last_lines()]
        failed = exit_code != 0
        error = final_error(lines, is_all=self._answer.is_short, failed=failed, stopped_answers=stopped_answers)
        if error is not None:
            event = decode_json_event(error.encode("utf-8", "replace"))
            interrupted = error in stopped_answers and not failed
            self._interpreter.add_final_error(error, event, interrupted=interrupted)

    def answer(self) -> str | None:
        """Return what the agent said last: its last message, or the end of plain text."""
        if self.speaks_json:
            return self._record.answer or (None if self._answer_text is None else self._answer_text.text)
        return "\n".join(self.last_lines()) if self.has_answer else None

    def last_lines(self) -> list[str]:
        """Return the end of plain text. Of a stream of events there is none: each is data."""
        return [] if self.speaks_json else [clean_text(line) for line in self._answer.last_lines()]

    # --- events --------------------------------------------------------------------------------

    def _read_lines(self, lines: list[bytes | LongLine]) -> None:
        """Read lines. This is the hot path: of most lines only the few members that `Head` names are decoded."""
        decode_head, quiet, marks = _decode_head, self._dialect.quiet, self._dialect.denial_marks
        answer, turns = self._answer_text, self.turns
        for line in lines:
            if not self.speaks_json:
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
                    self._interpreter.add_denials(line)
            else:
                self._read_odd_line(line)

    def _pass_over(self, head: Head, line: bytes) -> None:
        """Count an event without news: it may show that the model answers, and how many tokens that took."""
        if head.message is not None:
            self._record.usage.count_message(head.message)
            if head.message.usage is not None and not is_of_sub_agent(line):
                self._record.usage.note_request(head.message.usage.tokens)
        if head.type in self._dialect.progress and shows_answer(head):
            self._record.model_answered()

    def _read_odd_line(self, line: bytes) -> None:
        """Read a line that has news, or is not one clean event: an event between other text, several, or none."""
        event = decode_json_event(line)
        events = [event] if event is not None else self._own_events_within(line)
        for found in events:
            self._interpreter.add_event(found)
        if not events:
            self._answer.add(line)

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
            self._interpreter.add_event(event)

    # --- before the first event ----------------------------------------------------------------

    def _read_before_stream(self, line: bytes | LongLine) -> None:
        """Read a line while it is open whether the CLI prints events, one document, or plain text."""
        if isinstance(line, LongLine):
            self._read_long_first_line(line)
            return
        if self._document.is_open:
            if self._document.add(line.decode("utf-8", "replace")):
                self._take_document()
        elif self._answer.lines > _LINES_BEFORE_STREAM or not self._begins_stream(line):
            self._read_plain_line(line)

    def _begins_stream(self, line: bytes) -> bool:
        text = clean_text(line)
        if not _JSON_START.match(text):
            return False
        events = self._own_events_within(line)
        for event in events:
            self.speaks_json = True
            self._interpreter.add_event(event)
        return bool(events) or (not self._answer.has_text and self._document.begins(text))

    def _take_document(self) -> None:
        events, lines = self._document.take()
        if any(self._dialect.is_own_event(event) for event in events):
            self.speaks_json = True
            for event in events:
                self._interpreter.add_event(event)
            return
        # An answer that the agent was asked to write as JSON: prose like any other.
        self._answer.has_text = True
        for line in lines:
            self._read_plain_line(line.encode("utf-8", "replace"))

    def _read_long_first_line(self, line: LongLine) -> None:
        event = salvage(line)
        if event is not None and not self._answer.has_text and self._dialect.is_own_event(event):
            self.speaks_json = True
            self._interpreter.add_event(event)
        else:
            self._answer.has_text = True

    def _read_plain_line(self, line: bytes) -> None:
        self._answer.add(line)
        if self._notices is not None:
            for notice in self._notices.add(clean_text(line)):
                self._interpreter.add_notice(notice, channel="stdout")


def _has_error(head: Head) -> bool:
    """Return whether an event of a quiet type has an error in it: a synthetic message, or an item that is one."""
    if head.error is not msgspec.UNSET:
        return True
    if head.item is not None:
        return head.item.type == "error"
    return head.message is not None and head.message.model == "<synthetic>"
