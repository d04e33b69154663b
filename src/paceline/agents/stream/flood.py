"""The flood: most lines of a text channel mean nothing, and many that mean something repeat each other.

Here: the cheap tests that pass over plain lines one by one and in blocks, and the bound on notices that are read
closely. The tests err on one side only: a line that could mean something is never passed over. Never here: what a
line or a notice means.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import product
from typing import cast

from paceline.agents.dialect import CLIP, NoticeReader
from paceline.agents.stream.lines import JSON_START, LongLine, clean_lines, clean_text
from paceline.detect.json_objects import Event
from paceline.detect.prefilter import needed_branches, shortest, telling_words, word_finder
from paceline.detect.provider import ProviderSet, any_of
from paceline.detect.text import HIDDEN, ODD, WRAP, join_lines, make_readable

Lines = list[bytes | LongLine]

# --- the lines of a block that may mean something ---------------------------------------------------------------


_REMOVED = "".join(re.escape(chr(code)) for code, plain in ODD.items() if plain in (None, "\n"))
_HIDING = (re.compile(rf"[{_REMOVED}{WRAP}\x1b][^\n]*"), re.compile(r"""\\[nrtu"'/][^\n]*"""))
"""Each finds the rest of every line in which a word may be hidden, by marks that are removed or break the line."""


def spellings(word: str) -> list[str]:
    """Return a word with each of its marks written in every way that reads the same."""
    ways = [[letter, *(chr(code) for code, plain in ODD.items() if plain and plain[0] == letter)] for letter in word]
    return ["".join(way) for way in product(*ways)]


class LineWords:
    """The words of which one is in every line that means something: for a rule, or for the form of a notice."""

    def __init__(self, limits: ProviderSet, notices: Iterable[str]) -> None:
        self._limits = limits
        self._notices = notices

    def may_be_notice(self, text: str) -> bool:
        """Return whether a line can be part of a notice that means anything: for a rule, or for its own pattern."""
        low = text.casefold()
        return any(finder.search(low) for finder in self.finders(low))

    def finders(self, text: str) -> tuple[re.Pattern[str], ...]:
        """Return the patterns that find the lines of a text, in lower case, that can be part of a notice."""
        return (self._finder_of_ascii,) if text.isascii() else (self._finder_of_ascii, self._finder_of_others)

    @cached_property
    def numbers(self) -> tuple[bytes, ...]:
        """The words with digits: lines that differ in them differ in meaning."""
        return tuple(word.encode() for word in self._ascii if any(map(str.isdigit, word)))

    @cached_property
    def _finder_of_ascii(self) -> re.Pattern[str]:
        return word_finder(self._ascii)

    @cached_property
    def _finder_of_others(self) -> re.Pattern[str]:
        ways = (way for word in (*self._ascii, *self._not_ascii) for way in spellings(word))
        return word_finder(way for way in ways if not way.isascii())

    @cached_property
    def _ascii(self) -> tuple[str, ...]:
        of_notices = telling_words(
            branch for pattern in filter(None, self._notices) for branch in needed_branches(pattern.casefold())
        )
        return shortest(frozenset(word for word in (*self._limits.hint_words, *of_notices) if word.isascii()))

    @cached_property
    def _not_ascii(self) -> tuple[str, ...]:
        return tuple(word for word in self._limits.hint_words if not word.isascii())


_HIDDEN_IN_BLOCK = re.compile(r"[^\n\x20-\x5b\x5d-\x7e]")
_WITH_BRACE = re.compile(r"\{[^\n]*")
_BINARY_SHARE = 5
"""A line of which more than a fifth is no text at all is data: no CLI words a notice so."""


def is_binary(text: str) -> bool:
    """Return whether a line is data."""
    return text.count("\ufffd") * _BINARY_SHARE > len(text)


def _places(finder: re.Pattern[str], block: str) -> Iterator[int]:
    """Yield the places of the lines in which something is found. The finder takes the rest of the line with it."""
    place, position = 0, 0
    for found in finder.finditer(block):
        place += block.count("\n", position, found.start())
        position = found.start()
        yield place


# --- plain lines, and lines that repeat each other --------------------------------------------------------------

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


class LineFilter:
    """Knows which lines of one channel are plain: no rule, no notice and no JSON can begin, end or lie in them."""

    def __init__(self, words: LineWords, notices: NoticeReader, *, cancelled_line: str | None) -> None:
        self._words = words
        self._beginning = _beginning(notices.frame, cancelled_line)

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
        if len(lines) <= _FEW_LINES:
            return range(len(lines))
        texts = clean_lines(lines)
        block = "\n".join(texts)
        places = {place for place, begun in enumerate(map(self._beginning.match, texts)) if begun}
        low = block.casefold()
        places.update(place for finder in self._words.finders(low) for place in _places(finder, low))
        if LongLine in set(map(type, lines)):
            places.update(place for place, line in enumerate(lines) if isinstance(line, LongLine))
        if _HIDDEN_IN_BLOCK.search(block):
            places.update(place for place in _places(_WITH_BRACE, block) if HIDDEN.search(texts[place]))
            hiding = {place for finder in _HIDING for place in _places(finder, block)}
            places.update(place for place in hiding if not is_binary(texts[place]))
        return sorted(places)

    def is_plain(self, line: bytes | LongLine) -> bool:
        """Return whether a line is plain."""
        if isinstance(line, LongLine):
            return False
        text = clean_text(line)[:CLIP]
        if self._beginning.match(text):
            return False
        if HIDDEN.search(text):
            if is_binary(text):
                return True
            if "{" in text:
                return False
            text = join_lines(make_readable(text))
        return not self._words.may_be_notice(text)

    def _shapes(self, lines: Lines) -> list[Shape]:
        """Return the shapes of many lines: all at once, since a flood has many."""
        if LongLine in set(map(type, lines)):
            return [self._shape(line) if isinstance(line, bytes) else line for line in lines]
        return list(self._shape(b"\n".join(cast(list[bytes], lines))).split(b"\n"))

    def _shape(self, line: bytes) -> bytes:
        """Return a line without its numbers. Those that have a meaning are kept, in other signs."""
        for number in self._words.numbers:
            if number in line:
                line = line.replace(number, number.translate(_SIGNS))
        return line.translate(None, _DIGITS)


@cache
def _beginning(frame: re.Pattern[str], cancelled_line: str | None) -> re.Pattern[str]:
    """Return what matches the beginning of lines that count whatever words they have. Every session needs it."""
    cancelled = rf"{re.escape(cancelled_line)}\s*$" if cancelled_line else ""
    return any_of([frame.pattern, JSON_START, cancelled])


def _ends_and_first(lines: Lines, distinct: set[bytes | LongLine]) -> Lines:
    """Return both ends of lines that repeat a few, and between them the first of each that is in neither end."""
    head, tail = lines[:_END_LINES], lines[max(_END_LINES, len(lines) - _END_LINES) :]
    return [*head, *sorted(distinct.difference(head, tail), key=lines.index), *tail]


# --- notices that are read closely --------------------------------------------------------------------------------

FREE_NOTICES = 128
"""Notices that are read whatever they are: more than any real CLI prints about its limits at a time."""
FREE_PER_SECOND = 8.0
"""Notices that become free with time, so that a long run is read closely to its end."""
FREE_AT_A_TIME = 32
"""Of these, so many that are read of one piece of output: each may take a millisecond, and other sessions wait."""
PER_BLOCK = 4
"""Further notices that are read in each block of output. Close reading is a thousand times slower than the rest."""
PER_SHAPE = 2
"""Of these, so many that differ only in numbers."""
LAST_OF_BLOCK = 2
"""Notices that are kept until the end of their block and read then: the last words about a limit count most."""
_NO_DIGITS = {ord(digit): None for digit in "0123456789"}


class NoticeBudget:
    """Decides which notices of one run are read closely. It keeps the last of those that are not."""

    def __init__(self) -> None:
        self._free = float(FREE_NOTICES)
        self._free_here = FREE_AT_A_TIME
        self._left = PER_BLOCK
        self._shapes: dict[str, int] = {}
        self._kept: OrderedDict[str, str | Event] = OrderedDict()

    @property
    def is_spent(self) -> bool:
        """Whether no further notice of this block is read as it comes."""
        return not self._has_free and not self._left

    @property
    def _has_free(self) -> bool:
        return self._free >= 1 and self._free_here > 0

    def add_time(self, seconds: float) -> None:
        """Free notices for time that has passed."""
        self._free = min(float(FREE_NOTICES), self._free + max(0.0, seconds) * FREE_PER_SECOND)
        if seconds > 0:
            self._free_here = FREE_AT_A_TIME

    def allows(self, notice: str, event: Event | None = None) -> bool:
        """Return whether to read a notice, or the event printed so, now. If not, the last ones of a block are kept."""
        if self._has_free:
            self._free -= 1
            self._free_here -= 1
            return True
        shape = notice.translate(_NO_DIGITS)
        read = self._shapes.get(shape, 0)
        if self._left and read < PER_SHAPE:
            self._left -= 1
            self._shapes[shape] = read + 1
            return True
        self._kept.pop(shape, None)
        self._kept[shape] = notice if event is None else event
        if len(self._kept) > LAST_OF_BLOCK:
            self._kept.popitem(last=False)
        return False

    def end_block(self) -> list[str | Event]:
        """Return the notices and events to read at the end of a block, and begin the next one."""
        kept = list(self._kept.values())
        self._free_here = FREE_AT_A_TIME
        self._left = PER_BLOCK
        self._shapes.clear()
        self._kept.clear()
        return kept
