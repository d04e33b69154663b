"""Takes out of a text what must not leave the machine, and counts what it took. Pure: text in, text out.

Two nets. The first knows names and shapes: keys by their prefixes, `password=...`, e-mail addresses, home folders,
hosts. The second knows nothing: whatever is long and does not read like words is taken for a secret. What tells
a limit is kept: sentences, model names, error codes, header names, times.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from paceline.redaction.secret_shapes import SHAPES, Put

SHORTEST_KNOWN = 4
"""A value shorter than this would be found inside ordinary words."""
KNOWN = "name or key of this machine"

_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]")
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ESCAPED = re.compile(r"\\{1,4}u00([2-7][0-9a-fA-F])")
_PERCENT = re.compile(r"%(40|3[aA]|2[fFbBdDeE])")


class Redacted(msgspec.Struct, frozen=True):
    """A text without its secrets, and how many of each kind were taken out."""

    text: str
    counts: dict[str, int]


class Redactor:
    """Redacts texts, knowing some values by heart: user and host name, keys of the environment."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        values = sorted({value for value in known if len(value) >= SHORTEST_KNOWN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, values)), re.I) if values else None

    def redact(self, text: str) -> Redacted:
        counts: Counter[str] = Counter()
        clean = readable(text)
        if self._known is not None:
            clean, found = self._known.subn("<known>", clean)
            counts[KNOWN] += found
        for shape in SHAPES:
            clean = shape.pattern.sub(_counting(shape.kind, shape.put, counts), clean)
        return Redacted(clean, {kind: count for kind, count in counts.items() if count})


def readable(text: str) -> str:
    """Without colours, control characters and the escapes behind which an address or a key could hide."""
    plain = _UNSEEN.sub("", _ANSI.sub("", text))
    plain = _ESCAPED.sub(_unescaped, plain)
    return _PERCENT.sub(lambda found: chr(int(found[1], 16)), plain)


def _unescaped(found: re.Match[str]) -> str:
    """Quotes and backslashes stay escaped, or the JSON around them would break."""
    letter = chr(int(found[1], 16))
    return found[0] if letter in '"\\\x7f' else letter


def _counting(kind: str, put: Put, counts: Counter[str]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        replacement = put(found)
        if replacement is None or replacement == found[0]:
            return found[0]
        counts[kind] += 1
        return replacement

    return replace
