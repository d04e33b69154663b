"""JSON in any surroundings: alone, many in a row, in the middle of a line, cut, in strings.

Here: finding whole objects in a text with bounded work, flattening an object to key-value pairs, and reading members
by their path. Never here: what a key means.
"""

import json
import re

MAX_DOCUMENTS = 64
"""Objects of one text that are returned: more than any message has."""
MAX_STARTS = 128
"""Each failed start may read to the end of the text, so their number bounds the work."""
MAX_PAIRS = 400
"""Pairs of one text or object that are read: more than any error has."""
MOST_COUNTED = 10**12
"""A larger number is no count of tokens or turns."""
MAX_DEPTH = 12
"""Levels of nesting that are read, JSON in strings included."""

Event = dict[str, object]
"""One JSON object out of a stream."""
Pairs = list[tuple[str, str]]

# Not strict: a narrow terminal breaks lines inside strings, and the break is then part of them.
_DECODER = json.JSONDecoder(strict=False)
_START = re.compile(r"""(?<!["'`])\{\s{0,80}["}]""")  # in quotes it is a string of some program
_PAIR = re.compile(
    r"""["']?\b(?P<key>[A-Za-z][\w.\-]{1,60})["']?\s?(?::|=)\s{0,8}"""
    r"""(?:"(?P<quoted>[^"\n]{0,400})|'(?P<single>[^'\n]{0,400})|(?P<bare>[^\s,;{}\[\]"']{1,120}))"""
)
_PROTO_DURATION = re.compile(r"\b(?P<key>[a-z_]{3,40})\s?\{\s{0,8}seconds:\s?(?P<seconds>\d{1,9})\b")
_PROTO = re.compile(r'key:\s?"(?P<key>[\w.\-]{1,60})"\s{0,8}value:\s?"(?P<value>[^"\n]{0,400})"')


def find_documents(text: str) -> list[dict[str, object]]:
    """Return the whole JSON objects in a text, outermost first, in order. Cut or broken ones are skipped."""
    found: list[dict[str, object]] = []
    position = 0
    for _ in range(MAX_STARTS):
        start = _START.search(text, position)
        if start is None or len(found) >= MAX_DOCUMENTS:
            break
        try:
            value, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            position = start.start() + 1
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def flatten(document: object) -> Pairs:
    """Return all leaves of an object as (key, text), including those of JSON in strings."""
    pairs: Pairs = []
    _flatten("", document, pairs, 0)
    return pairs


def _flatten(key: str, value: object, pairs: Pairs, depth: int) -> None:
    if len(pairs) >= MAX_PAIRS or depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(str(name), inner, pairs, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _flatten(key, inner, pairs, depth + 1)
    elif isinstance(value, str):
        pairs.append((key, value))
        for document in find_documents(value) if "{" in value else []:
            _flatten(key, document, pairs, depth + 1)
    elif value is not None:
        pairs.append((key, str(value)))


def scan_pairs(text: str) -> Pairs:
    """Return key-value pairs by their form, in cut JSON, Python dicts, Go maps, header dumps and proto-text."""
    pairs: Pairs = [(match["key"], match["value"]) for match in _PROTO.finditer(text)][:MAX_PAIRS]
    pairs += [(match["key"], f"{match['seconds']}s") for match in _PROTO_DURATION.finditer(text)][:MAX_PAIRS]
    for match in _PAIR.finditer(text):
        if len(pairs) >= MAX_PAIRS:
            break
        value = next(part for part in (match["quoted"], match["single"], match["bare"]) if part is not None)
        pairs.append((match["key"], value))
    return pairs


def member(value: object, *path: str) -> object:
    """Return the member at a path of nested objects, or None."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def items_of(value: object) -> list[tuple[str, object]]:
    """Return the members of an object with their names; none of anything else."""
    return [(str(name), each) for name, each in value.items()] if isinstance(value, dict) else []


def text_at(value: object, *path: str) -> str | None:
    """Return the text at a path, or None."""
    found = member(value, *path)
    return found if isinstance(found, str) and found else None


def number_at(value: object, *path: str) -> int | None:
    """Return the whole number at a path, or None."""
    found = member(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def count_at(value: object, *path: str) -> int:
    """Return the count at a path: a whole number that is not absurd, else 0."""
    found = number_at(value, *path)
    return found if found is not None and 0 <= found <= MOST_COUNTED else 0


def sum_at(value: object, *names: str) -> int | None:
    """Return the sum of the whole numbers among these members, or None if there is none."""
    if not isinstance(value, dict):
        return None
    found = [number for name in names if (number := number_at(value, name)) is not None]
    return sum(found) if found else None
