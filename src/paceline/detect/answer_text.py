"""The final answer of an agent, in the words of its last message.

Here: which events hold it, and keeping the last of them undecoded. Never here: how one CLI writes it.
"""

from collections.abc import Callable

import msgspec

from paceline.detect.parsing.json_objects import Event, text_at
from paceline.detect.parsing.line_splitter import UNREADABLE, decode_json_event
from paceline.detect.run_facts import Head

MOST_ANSWER_BYTES = 16_384
"""What is kept of an answer: many pages of text, and small enough to store for each of 100,000 units."""
_CUT = " […]"


class AnswerEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Which quiet events of a CLI hold what the model says."""

    types: frozenset[str]
    path: tuple[str, ...]
    """Where the text is in such an event."""
    item: str | None = None
    """The type of its item, where it has one."""
    ends: frozenset[str] = frozenset()
    """Types after which another message begins, for a CLI that prints a message in pieces."""


class _Piece(msgspec.Struct, gc=False):
    content: str = ""


_decode_piece: Callable[[bytes], _Piece] = msgspec.json.Decoder(_Piece).decode


class AnswerText:
    """The last message of a run. Whole messages are kept undecoded; of pieces the text is kept, up to a bound."""

    def __init__(self, events: AnswerEvents) -> None:
        self._events = events
        self._last: bytes | None = None
        self._pieces: list[str] = []
        self._size = 0

    def take(self, head: Head, line: bytes) -> None:
        """Keep an event if it is a part of an answer."""
        events = self._events
        if head.type in events.ends or head.role == "user":
            self._pieces, self._size = [], 0
        elif head.type in events.types:
            if events.ends:
                self._add_piece(line)
            elif events.item is None or (head.item is not None and head.item.type == events.item):
                self._last = line

    @property
    def text(self) -> str | None:
        """The answer so far, or None."""
        if self._pieces:
            return "".join(self._pieces)
        event: Event | None = None if self._last is None else decode_json_event(self._last)
        return None if event is None else text_at(event, *self._events.path)

    def _add_piece(self, line: bytes) -> None:
        if self._size < MOST_ANSWER_BYTES:
            try:
                piece = _decode_piece(line).content
            except UNREADABLE:
                return
            self._pieces.append(piece)
            self._size += len(piece)


def bounded_answer(text: str | None) -> str | None:
    """Return the text without space around it, cut to what is kept of an answer. None if nothing is left."""
    if not text:
        return None
    text = text.strip()
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MOST_ANSWER_BYTES:
        text = encoded[: MOST_ANSWER_BYTES - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT
    return text or None
