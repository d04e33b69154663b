"""The bytes of a process, cut into lines, and the JSON objects in them.

Here: bounded line buffers, removal of terminal codes, and JSON from whole, mixed, cut and pretty-printed lines.
Never here: what any of it means, or which agent CLI wrote it.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from paceline.detect.json_objects import Event

LINE_LIMIT = 1 << 20
"""Bytes. Of a longer line only both ends are kept: no notice about a limit is that long, but a tool result may be."""
EDGE = 1 << 16
"""Bytes of each end of an over-long line that are kept: its small members are near the ends."""
DOCUMENT_LIMIT = 1 << 20
"""Characters. A pretty-printed document that grows beyond this is given up, so that memory stays bounded."""
_TRIES = 32
"""Places of one line that are tried as the start or end of an object. The bound keeps the work linear."""

_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_OBJECT_START = re.compile(r'\{\s{0,8}"')
_MEMBER_START = re.compile(rb',\s{0,8}"[A-Za-z_][A-Za-z0-9_]{0,40}"\s{0,8}:')
_DOCUMENT_START = re.compile(r'[\[{]\s{0,8}(?:$|["{\[])')
JSON_START = r'\{|\[\s*(?:$|["{\[])'
"""Matches where an object or a document may begin."""
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?')
_DECODER = json.JSONDecoder(strict=False)
UNREADABLE = (ValueError, RecursionError, msgspec.DecodeError)
"""What the decoders may raise on arbitrary bytes."""


class LongLine(msgspec.Struct, frozen=True):
    """The two ends of a line that was too long to keep."""

    head: bytes
    tail: bytes

    def __len__(self) -> int:
        return len(self.head) + len(self.tail)


class LineSplitter:
    """A buffer that cuts chunks into lines. The lines depend on the bytes alone, never on how they were chunked."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._long_head = b""
        self._long_tail = bytearray()

    def feed(self, chunk: bytes) -> list[bytes | LongLine]:
        """Return the lines that this chunk completed, without their line feeds."""
        first, *rest = chunk.split(b"\n")
        self._grow(first)
        if not rest:
            return []
        open_end = rest.pop()
        lines: list[bytes | LongLine] = [self._take()]
        lines += rest if len(chunk) <= LINE_LIMIT else map(_whole_or_ends, rest)
        self._grow(open_end)
        return lines

    def flush(self) -> bytes | LongLine | None:
        """Return what is left when the stream has ended inside a line."""
        return self._take() if self._size else None

    def _grow(self, part: bytes) -> None:
        self._size += len(part)
        if self._long_head:
            self._long_tail += part
        else:
            self._parts.append(part)
            if self._size > LINE_LIMIT:
                self._keep_ends()
        if len(self._long_tail) > 2 * EDGE:
            del self._long_tail[:-EDGE]

    def _keep_ends(self) -> None:
        whole = b"".join(self._parts)
        self._parts = []
        self._long_head = whole[:EDGE]
        self._long_tail += whole[-EDGE:]

    def _take(self) -> bytes | LongLine:
        line = LongLine(self._long_head, bytes(self._long_tail[-EDGE:])) if self._long_head else b"".join(self._parts)
        self._parts, self._size = [], 0
        self._long_head, self._long_tail = b"", bytearray()
        return line


def _whole_or_ends(line: bytes) -> bytes | LongLine:
    return line if len(line) <= LINE_LIMIT else LongLine(line[:EDGE], line[-EDGE:])


def clean_text(line: bytes) -> str:
    """Return a line as a person would have seen it: no terminal codes, and only what the last carriage return left."""
    text = _TERMINAL_CODE.sub("", line.decode("utf-8", "replace"))
    return text.rstrip().rpartition("\r")[2]


def clean_lines(lines: list[bytes | LongLine]) -> list[str]:
    """Return many lines as `clean_text` does, but with white space at their ends, and nothing of over-long ones."""
    block = b"\n".join([line if isinstance(line, bytes) else b"" for line in lines])
    texts = _TERMINAL_CODE.sub("", block.decode("utf-8", "replace")).split("\n")
    return [text.rstrip().rpartition("\r")[2] for text in texts] if b"\r" in block else texts


def decode_json_event(line: bytes) -> Event | None:
    """Return the object that a line consists of, or None."""
    try:
        value = msgspec.json.decode(line)
    except UNREADABLE:
        value = _decode_leniently(line)
    return value if isinstance(value, dict) else None


def _decode_leniently(line: bytes) -> object:
    """Decode JSON that quotes half surrogate pairs, control characters or invalid UTF-8, as agents do."""
    try:
        return _DECODER.decode(line.decode("utf-8", "replace"))
    except UNREADABLE:
        return None


def events_within(line: bytes) -> list[Event]:
    """Return the objects in a line that is not one object: several run together, an array, or one between other text.

    Quotes inside a JSON string are escaped, so quoted JSON in prose or in a tool result never looks like a start.
    """
    text = _TERMINAL_CODE.sub("", line.decode("utf-8", "replace"))
    if text.lstrip().startswith("["):
        value = _decode_leniently(line)
        if isinstance(value, list):
            return [cast(Event, item) for item in value if isinstance(item, dict)]
    return list(_objects_in(text))


def _objects_in(text: str) -> Iterator[Event]:
    position = 0
    for _ in range(_TRIES):
        start = _OBJECT_START.search(text, position)
        if start is None:
            return
        try:
            value, position = _DECODER.raw_decode(text, start.start())
        except UNREADABLE:
            position = start.end()
            continue
        if isinstance(value, dict):
            yield value


def salvage(line: LongLine) -> Event | None:
    """Return the small members at both ends of an over-long object: all but the value that made it long.

    Returns None unless both ends can be read, so that a cut line never passes for a whole one.
    """
    cuts = [match.start() for match in _MEMBER_START.finditer(line.head)][: -_TRIES - 1 : -1]
    starts = [match.start() for match in _MEMBER_START.finditer(line.tail)][:_TRIES]
    head = _first_event(line.head[:cut] + b"}" for cut in cuts)
    tail = _first_event(b"{" + line.tail[start + 1 :] for start in starts)
    return None if head is None or tail is None else head | tail


def _first_event(texts: Iterable[bytes]) -> Event | None:
    return next((event for text in texts if (event := decode_json_event(text)) is not None), None)


class DocumentReader:
    """A JSON document that is printed over many lines, gathered until its brackets are closed."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._depth = 0

    @property
    def is_open(self) -> bool:
        """Whether a document has begun and not ended."""
        return bool(self._lines)

    def begins(self, text: str) -> bool:
        """Keep the line and return True if a document begins with it: a bracket that is not closed on the line."""
        depth = _nesting(text) if _DOCUMENT_START.match(text) else 0
        if depth <= 0:
            return False
        self._lines, self._size, self._depth = [text], len(text), depth
        return True

    def add(self, text: str) -> bool:
        """Add a line. Return True when the document has ended, or has grown too long to be one."""
        self._lines.append(text)
        self._size += len(text)
        self._depth += _nesting(text)
        return self._depth <= 0 or self._size > DOCUMENT_LIMIT

    def text(self) -> str:
        """Return the lines of an open document as they were printed."""
        return "\n".join(self._lines)

    def drop(self) -> None:
        """Forget an open document."""
        self._lines = []

    @property
    def is_too_long(self) -> bool:
        """Whether the document was given up because it grew without end."""
        return self._size > DOCUMENT_LIMIT

    def take(self) -> tuple[list[Event], list[str]]:
        """Return the objects of the document and no lines; or, if it was no document after all, its lines."""
        lines, self._lines = self._lines, []
        value = _decode_leniently("\n".join(lines).encode("utf-8", "replace")) if self._depth <= 0 else None
        items = value if isinstance(value, list) else [value]
        events = [item for item in items if isinstance(item, dict)]
        return events, [] if events else lines


def _nesting(text: str) -> int:
    """Return the number of brackets that a line opens and does not close, without those inside strings."""
    bare = _STRING.sub("", text) if '"' in text else text
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
