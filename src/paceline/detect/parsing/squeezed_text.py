"""Text of which nothing but letters and digits is left, so that no mark, escape or line break can hide a word.

Here: a coarse form for cheap tests. A word that `make_readable` would uncover is in it; a word that is in it may be
none. Never here: which words are looked for.
"""

import re
from itertools import product

from paceline.detect.parsing.text import ESCAPE, ODD, WRAP

_ESC = "\x1b"
_REMOVED = "".join(re.escape(chr(code)) for code, plain in ODD.items() if plain in (None, "\n"))
HIDING = (re.compile(rf"[{_REMOVED}{WRAP}{_ESC}][^\n]*"), re.compile(r"""\\[nrtu"'/][^\n]*"""))
"""Each finds the rest of every line in which a word may be hidden, by marks that are removed or break the line."""
_NO_LETTERS = re.compile(r"[^\w\n]+|_+")
_LEFT_OUT = re.compile("[✓✔√⎿]")
_BREAK = re.compile(r"\\(?:[nr]|u00(?:0[a-dA-D]|85)|u202[89])|[\x0b\x0c\x85\u2028\u2029]")


def squeezed(text: str) -> str:
    """Return the letters and digits of a text, line by line, in lower case and with those that were escaped."""
    bare = ESCAPE.sub(_letter, text) if "\\u" in text else ESCAPE.sub("", text)
    return _NO_LETTERS.sub("", bare.casefold())


def spellings(word: str) -> list[str]:
    """Return a word with each of its marks written in every way that reads the same."""
    ways = [[letter, *(chr(code) for code, plain in ODD.items() if plain and plain[0] == letter)] for letter in word]
    return ["".join(way) for way in product(*ways)]


def resists(line: str) -> bool:
    """Return whether the squeezed line may lack a word: terminal codes or whole parts of it are left out."""
    return _ESC in line or "\\u001" in line or bool(_LEFT_OUT.search(line) and _BREAK.search(line))


def _letter(escape: re.Match[str]) -> str:
    letter = chr(int(escape[1], 16)) if escape[1] else ""
    return letter if letter.isalnum() else ""
