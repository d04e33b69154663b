"""A terminal screen rendered from the raw bytes of a pty, and the paragraphs at its lower end.

Here: pyte within bounds, and the removal of boxes. Never here: a pty, or what the text means.
"""

import codecs
import re
import unicodedata
from collections.abc import Callable

import pyte

COLUMNS, ROWS = 200, 50
"""Wide enough that notices are seldom wrapped, and high enough for the interface of any agent CLI."""
_PIECE = 4096
"""Bytes after which the screen is read, so that a long burst cannot scroll a notice past unseen."""
_READ_BYTES = 64
"""Fewer new bytes are read only after `_READ_SECONDS`: reading a screen costs the same for one byte as for many."""
_READ_SECONDS = 0.25
"""The longest delay of a notice that arrives in few bytes."""
_PARSER_LIFE = 1 << 18
"""Characters after which the parser is replaced, because it would collect a terminal code that never ends forever.
That happens before an escape, where a new parser reads the same, or anywhere in a piece that has none."""
_LOWER_ROWS = 24
"""A CLI's own notices are near its prompt; text further up has scrolled by and may be the agent's or a tool's."""

# pyte drops the rest of a run of text at a character without width, and gathers combining marks without end.
_WITHOUT_WIDTH = frozenset({"Mn", "Me", "Cf", "Zl", "Zp", "Cs"})
_UNUSED_CONTROL = re.compile(r"[\x00-\x06\x10-\x1a\x1c-\x1f\x7f-\x9a\x9e\x9f\u1160-\u11ff]")
_BEFORE_ESCAPE = re.compile(r"(?=\x1b)")
_BORDER = re.compile(r"^[\s│┃║|╭╮╰╯┌┐└┘├┤─━═╌]++|[\s│┃║|╭╮╰╯┌┐└┘├┤─━═╌]++$")


class BoundedScreen:
    """A terminal that takes any bytes, in bounded memory."""

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._columns = columns
        self._screen = pyte.Screen(columns, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parser = pyte.Stream(self._screen)
        self._parser_age = 0
        self._rows = [""] * rows

    def feed(self, data: bytes) -> None:
        """Draw the bytes. Codes that pyte cannot read are dropped, as a terminal would."""
        text = _UNUSED_CONTROL.sub("", self._decoder.decode(data))
        if not text.isascii():
            text = "".join(char for char in text if unicodedata.category(char) not in _WITHOUT_WIDTH)
        for start in range(0, len(text), _PIECE):
            self._draw(text[start : start + _PIECE])

    def display(self) -> list[str]:
        """Return all rows as text. Only rows that have changed since the last call are read again."""
        for number in self._screen.dirty:
            if number < len(self._rows):
                cells = self._screen.buffer[number]
                self._rows[number] = "".join(cells[column].data for column in range(self._columns)).rstrip()
        self._screen.dirty.clear()
        return list(self._rows)

    def _draw(self, piece: str) -> None:
        """Draw a piece code by code, so that an unreadable code loses only itself."""
        for segment in _BEFORE_ESCAPE.split(piece):
            self._parser_age += len(segment)
            if self._parser_age > _PARSER_LIFE:
                self._start_parser()
            try:
                self._parser.feed(segment)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                self._start_parser()

    def _start_parser(self) -> None:
        self._parser = pyte.Stream(self._screen)
        self._parser_age = 0


class ScreenParagraphs:
    """The paragraphs near the foot of the screen, each returned once while it is shown.

    `clean` takes out of the rows what is not the CLI's own.
    """

    def __init__(self, clean: Callable[[list[str]], list[str]]) -> None:
        self._screen = BoundedScreen()
        self._clean = clean
        self._shown: frozenset[str] = frozenset()
        self._unread_bytes = 0
        self._read_at = float("-inf")

    def feed(self, data: bytes, *, seen_at: float) -> list[str]:
        """Draw the bytes. Return the paragraphs that have appeared, once there are enough new bytes."""
        fresh: list[str] = []
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            self._screen.feed(piece)
            self._unread_bytes += len(piece)
            if self._unread_bytes >= _READ_BYTES or seen_at >= self._read_at + _READ_SECONDS:
                self._read_at = seen_at
                fresh += self.new_paragraphs()
        return fresh

    def new_paragraphs(self) -> list[str]:
        """Return the paragraphs that have appeared since the last call."""
        self._unread_bytes = 0
        paragraphs = lower_paragraphs(self._clean(self._screen.display()))
        fresh = [paragraph for paragraph in paragraphs if paragraph not in self._shown]
        self._shown = frozenset(paragraphs)
        return fresh


def lower_paragraphs(rows: list[str]) -> list[str]:
    """Return the runs of rows with text near the foot of a screen, without their borders."""
    bare = [_BORDER.sub("", row) for row in rows]
    while bare and not bare[-1]:
        bare.pop()
    paragraphs: list[list[str]] = [[]]
    for row in bare[-_LOWER_ROWS:]:
        if row:
            paragraphs[-1].append(row)
        elif paragraphs[-1]:
            paragraphs.append([])
    return ["\n".join(paragraph) for paragraph in paragraphs if paragraph]
