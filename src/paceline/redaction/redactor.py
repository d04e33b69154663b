"""The redactor: it removes from a text what must not leave the machine, and counts it. Pure: text in, text out.

It works in two passes. The first knows names and shapes: keys by their prefixes, `password=...`, e-mail addresses, home
folders, hosts. The second assumes nothing: everything that is long and does not read like words is taken for a secret.
What describes a limit is kept: sentences, model names, error codes, header names, times.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from paceline.redaction.secret_shapes import SHAPES, Replacement

SHORTEST_KNOWN = 4
"""A shorter value would match inside ordinary words."""
KNOWN = "name or key of this machine"

_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ESCAPED = re.compile(r"\\{1,4}u00([2-7][0-9a-fA-F])")
_PERCENT = re.compile(r"%(40|3[aA]|2[fFbBdDeE])")


class Redacted(msgspec.Struct, frozen=True):
    """A text without its secrets, and how many of each kind were removed."""

    text: str
    counts: dict[str, int]


class Redactor:
    """A remover of secrets. `known` values are removed whatever they look like: user and host name, keys."""

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
            clean = shape.pattern.sub(_counting(shape.kind, shape.replacement, counts), clean)
        return Redacted(clean, {kind: count for kind, count in counts.items() if count})


def readable(text: str) -> str:
    """Remove colours and control characters, and decode escapes that could hide an address or a key."""
    plain = _INVISIBLE.sub("", _ANSI.sub("", text))
    plain = _ESCAPED.sub(_unescaped, plain)
    return _PERCENT.sub(lambda found: chr(int(found[1], 16)), plain)


def _unescaped(found: re.Match[str]) -> str:
    """Decode one escape. Quotes and backslashes stay escaped, or the JSON around them would break."""
    letter = chr(int(found[1], 16))
    return found[0] if letter in '"\\\x7f' else letter


def _counting(kind: str, replacement_of: Replacement, counts: Counter[str]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        replacement = replacement_of(found)
        if replacement is None or replacement == found[0]:
            return found[0]
        counts[kind] += 1
        return replacement

    return replace
