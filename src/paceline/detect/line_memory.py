"""The memory of lines that can be no part of a notice, so that their like is passed over at once.

Here: the cheap tests before a line is read. They err on one side only: a line that could mean something is never
called plain. Never here: what a line means.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import cast

from paceline.detect.hint_words import HintWords
from paceline.detect.line_sieve import HIDDEN, Lines, LineSieve, is_binary
from paceline.detect.notice_patterns import any_of
from paceline.detect.notices import CLIP
from paceline.detect.parsing.line_splitter import JSON_START, LongLine, clean_text
from paceline.detect.parsing.text import join_lines, make_readable
from paceline.detect.provider import NoticeReader
from paceline.detect.provider_set import ProviderSet

_SHAPES_KEPT = 8192
"""Shapes that are remembered: more than any tool prints, and a few hundred kilobytes at most."""
_LONGEST_SHAPE = 400
"""Bytes. Longer lines are seldom printed twice."""
FLOOD_LINES = 256
"""Fewer lines in a chunk are no flood."""
_FEW_SHAPES = 8
"""Lines for each shape, on average, in a flood of the same."""
_SAMPLE_STEP = 8
"""One of so many lines is taken to find out whether a chunk repeats itself."""
REPETITIONS_KEPT = 8
"""Lines of one shape that are read before the rest is passed over: more than the retries after which a run is ended."""
_LAST_KEPT = 2
"""Lines of each shape at the end of a flood that are read: they state how it ended."""
_END_LINES = FLOOD_LINES // 4
"""Lines at each end of a flood of the same few lines that are read."""
_FEW_LINES = 8
"""Lines that are rather tested one by one than as a block."""
Shape = bytes | LongLine
_DIGITS = b"0123456789"
_SIGNS = bytes.maketrans(_DIGITS, b"\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17")  # no text has these


class LineMemory:
    """Knows which lines of one channel are plain: no rule, no notice and no JSON can begin, end or lie in them."""

    def __init__(self, providers: ProviderSet, notices: NoticeReader, *, cancelled_line: str | None) -> None:
        self._sieve = _sieve(providers.words, notices.frame, cancelled_line)
        self._plain: set[bytes] = set()

    def thinned(self, lines: Lines) -> Lines:
        """Return the lines without most repetitions: of those that differ only in numbers the first and the last."""
        if len(lines) < FLOOD_LINES:
            return lines
        if len(distinct := set(lines)) * _FEW_SHAPES <= len(lines):
            return _ends_and_first(lines, distinct)
        sample = lines[::_SAMPLE_STEP]
        if len(set(self._shapes(sample))) * 2 > len(sample):
            return lines
        shapes = self._shapes(lines)
        counts = Counter(shapes)
        if len(counts) * _FEW_SHAPES > len(lines):
            return lines
        seen: dict[Shape, int] = {}
        kept: Lines = []
        for line, shape in zip(lines, shapes, strict=True):
            number = seen[shape] = seen.get(shape, 0) + 1
            if number <= REPETITIONS_KEPT or number > counts[shape] - _LAST_KEPT:
                kept.append(line)
        return kept

    def doubtful(self, lines: Lines) -> Sequence[int]:
        """Return the places of the lines that may not be plain, in order. All others are."""
        return self._sieve.doubtful(lines) if len(lines) > _FEW_LINES else range(len(lines))

    def is_plain(self, line: bytes | LongLine) -> bool:
        """Return whether a line is plain. Of lines that differ only in numbers one is tested."""
        if isinstance(line, LongLine):
            return False
        shape = self._shape(line)
        if shape in self._plain:
            return True
        is_plain = self._test(clean_text(line)[:CLIP])
        if is_plain and len(shape) <= _LONGEST_SHAPE:
            if len(self._plain) >= _SHAPES_KEPT:
                self._plain.clear()
            self._plain.add(shape)
        return is_plain

    def _shapes(self, lines: Lines) -> list[Shape]:
        """Return the shapes of many lines: all at once, since a flood has many."""
        if LongLine in set(map(type, lines)):
            return [self._shape(line) if isinstance(line, bytes) else line for line in lines]
        return list(self._shape(b"\n".join(cast(list[bytes], lines))).split(b"\n"))

    def _shape(self, line: bytes) -> bytes:
        """Return a line without its numbers. Those that have a meaning are kept, in other signs."""
        for number in self._sieve.words.numbers:
            if number in line:
                line = line.replace(number, number.translate(_SIGNS))
        return line.translate(None, _DIGITS)

    def _test(self, text: str) -> bool:
        if self._sieve.beginning.match(text):
            return False
        if HIDDEN.search(text):
            if is_binary(text):
                return True
            if "{" in text:
                return False
            text = join_lines(make_readable(text))
        return not self._sieve.words.may_be_notice(text)


@cache
def _sieve(words: HintWords, frame: re.Pattern[str], cancelled_line: str | None) -> LineSieve:
    """Return the sieve of a CLI's lines. It is built once: every session needs one."""
    cancelled = rf"{re.escape(cancelled_line)}\s*$" if cancelled_line else ""
    return LineSieve(any_of([frame.pattern, JSON_START, cancelled]), words)


def _ends_and_first(lines: Lines, distinct: set[bytes | LongLine]) -> Lines:
    """Return both ends of lines that repeat a few, and between them the first of each that is in neither end."""
    head, tail = lines[:_END_LINES], lines[max(_END_LINES, len(lines) - _END_LINES) :]
    return [*head, *sorted(distinct.difference(head, tail), key=lines.index), *tail]
