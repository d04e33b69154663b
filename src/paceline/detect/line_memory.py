"""The memory of lines that can be no part of a notice, so that their like is passed over at once.

Here: the cheap tests before a line is read. They err on one side only: a line that could mean something is never
called plain. Never here: what a line means.
"""

import re
from collections import Counter

from paceline.detect.parsing.line_splitter import LongLine, clean_text, may_begin_json
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
Lines = list[bytes | LongLine]
Shape = bytes | LongLine
_BINARY_SHARE = 5
"""A line of which more than a fifth is no text at all is data: no CLI words a notice so."""
_DIGITS = b"0123456789"
# Escapes, colours, line breaks and odd letters may hide words, so only plain text can be tested as it is.
HIDDEN = re.compile(r"[^\x20-\x5b\x5d-\x7e]")


class LineMemory:
    """Knows which lines of one channel are plain: no rule, no notice and no JSON can begin, end or lie in them."""

    def __init__(self, providers: ProviderSet, notices: NoticeReader, *, cancelled_line: str | None) -> None:
        self._providers = providers
        self._notices = notices
        self._cancelled_line = cancelled_line
        self._plain: set[bytes] = set()
        self._numbers = re.compile(b"|".join(re.escape(number.encode()) for number in providers.words.numbers))

    def thinned(self, lines: Lines) -> Lines:
        """Return the lines without most repetitions: of those that differ only in numbers the first and the last."""
        if len(lines) < FLOOD_LINES:
            return lines
        if len(distinct := set(lines)) * _FEW_SHAPES <= len(lines):
            return _ends_and_first(lines, distinct)
        sample = lines[::_SAMPLE_STEP]
        if len(set(map(self._shape, sample))) * 2 > len(sample):
            return lines
        shapes = list(map(self._shape, lines))
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

    def is_plain(self, line: bytes | LongLine) -> bool:
        """Return whether a line is plain. Of lines that differ only in numbers one is tested."""
        shape = self._shape(line)
        if isinstance(line, LongLine) or isinstance(shape, LongLine):
            return False
        if shape in self._plain:
            return True
        is_plain = self._test(clean_text(line))
        if is_plain and len(shape) <= _LONGEST_SHAPE:
            if len(self._plain) >= _SHAPES_KEPT:
                self._plain.clear()
            self._plain.add(shape)
        return is_plain

    def _shape(self, line: bytes | LongLine) -> Shape:
        """Return a line without its numbers, except those that have a meaning."""
        if isinstance(line, LongLine):
            return line
        bare = line.translate(None, _DIGITS)
        if len(bare) == len(line):
            return line
        told = self._numbers.search(line)
        return bare if told is None else bare + told[0]

    def _test(self, text: str) -> bool:
        if may_begin_json(text) or text == self._cancelled_line or not self._notices.is_plain(text):
            return False
        if HIDDEN.search(text):
            if text.count("\ufffd") * _BINARY_SHARE > len(text):
                return True
            if "{" in text:
                return False
            text = join_lines(make_readable(text))
        return not self._providers.words.may_be_notice(text)


def _ends_and_first(lines: Lines, distinct: set[bytes | LongLine]) -> Lines:
    """Return both ends of lines that repeat a few, and between them the first of each that is in neither end."""
    head, tail = lines[:_END_LINES], lines[max(_END_LINES, len(lines) - _END_LINES) :]
    return [*head, *sorted(distinct.difference(head, tail), key=lines.index), *tail]
