"""The sieve that finds the few lines of a block which may mean something.

Here: tests of a whole block at once, since a flood has more lines than there is time to test each. They err on
one side only: a line that could mean something is never passed over. Never here: what a line means.
"""

import re
from collections.abc import Iterator

from paceline.detect.hint_words import HintWords
from paceline.detect.parsing.line_splitter import LongLine, clean_lines
from paceline.detect.parsing.squeezed_text import HIDING, resists, squeezed

Lines = list[bytes | LongLine]
HIDDEN = re.compile(r"[^\x20-\x5b\x5d-\x7e]")
"""Escapes, colours, line breaks and odd letters may hide words, so only plain text can be tested as it is."""
_HIDDEN_IN_BLOCK = re.compile(r"[^\n\x20-\x5b\x5d-\x7e]")
_WITH_BRACE = re.compile(r"\{[^\n]*")
_BINARY_SHARE = 5
"""A line of which more than a fifth is no text at all is data: no CLI words a notice so."""


def is_binary(text: str) -> bool:
    """Return whether a line is data."""
    return text.count("\ufffd") * _BINARY_SHARE > len(text)


class LineSieve:
    """Finds the lines that are not certainly plain. `beginning` matches lines that count whatever words they have."""

    def __init__(self, beginning: re.Pattern[str], words: HintWords) -> None:
        self.beginning = beginning
        self.words = words

    def doubtful(self, lines: Lines) -> list[int]:
        """Return the places of the lines that must be tested one by one, in order."""
        texts = clean_lines(lines)
        block = "\n".join(texts)
        places = {place for place, begun in enumerate(map(self.beginning.match, texts)) if begun}
        low = block.casefold()
        places.update(place for finder in self.words.finders(low) for place in _places(finder, low))
        if LongLine in set(map(type, lines)):
            places.update(place for place, line in enumerate(lines) if isinstance(line, LongLine))
        if _HIDDEN_IN_BLOCK.search(block):
            places.update(self._with_hidden_words(texts, block))
        return sorted(places)

    def _with_hidden_words(self, texts: list[str], block: str) -> Iterator[int]:
        """Yield the places of lines in which a word may be hidden, and of those that may hold JSON with one."""
        yield from (place for place in _places(_WITH_BRACE, block) if HIDDEN.search(texts[place]))
        hiding = {place for finder in HIDING for place in _places(finder, block)}
        places = sorted(place for place in hiding if not is_binary(texts[place]))
        yield from (place for place in places if resists(texts[place]))
        rest = squeezed("\n".join([texts[place] for place in places]))
        yield from (places[number] for number in _places(self.words.squeezed_finder, rest))


def _places(finder: re.Pattern[str], block: str) -> Iterator[int]:
    """Yield the places of the lines in which something is found. The finder takes the rest of the line with it."""
    place, position = 0, 0
    for found in finder.finditer(block):
        place += block.count("\n", position, found.start())
        position = found.start()
        yield place
