"""How many tokens an answer has used, and the error it may end with, read while its bytes pass by.

Here: the usage fields of each protocol, in a body or in a stream of events. An answer that is compressed, or of
another kind, is *unknown* and never an error. Never here: changing a byte.

Cache reads are left out where they are told apart: they count towards no limit.
"""

import re
from collections.abc import Iterable
from typing import Protocol, TypeGuard, TypeVar

import msgspec

from paceline.protocols.json_scanner import MemberScanner

LONGEST_EVENT = 1_000_000
"""A longer line of a stream is passed over."""
LARGEST_TOKENS = 1_000_000_000

Value = TypeVar("Value")
_NOTHING = msgspec.Raw()
_NEWS = re.compile(rb'"(?:usage|usageMetadata|error)"\s*+:\s*+[{"]')
_MEMBERS = frozenset({"usage", "usageMetadata", "error"})


class AnswerReader(Protocol):
    """Reads an answer; `tokens` and `error` are None until they are known."""

    tokens: int | None
    error: bytes | None
    """The event or member that says the answer failed after it had begun."""

    def feed(self, chunk: bytes) -> None: ...


def answer_reader(headers: Iterable[tuple[bytes, bytes]]) -> AnswerReader | None:
    """A reader for an answer with these headers (names in lower case), or None where nothing can be read."""
    kind = b""
    for name, value in headers:
        if name == b"content-type":
            kind = value.lower()
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return None
    if b"event-stream" in kind:
        return EventReader()
    return BodyReader() if b"json" in kind else None


class EventReader:
    """A stream of server-sent events: only those that hold usage or an error are parsed."""

    def __init__(self) -> None:
        self.tokens: int | None = None
        self.error: bytes | None = None
        self._usage = Usage()
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def feed(self, chunk: bytes) -> None:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            block = self._with_begun(chunk[:cut])
            if _NEWS.search(block) is not None:
                self._read_lines(block)
            chunk = chunk[cut:]
        if chunk:
            self._begun_bytes += len(chunk)
            self._begun.append(chunk)
            if self._begun_bytes > LONGEST_EVENT:
                self._begun.clear()

    def _with_begun(self, block: bytes) -> bytes:
        """Whole lines, with the beginning of the first; without that line where it is too long."""
        if not self._begun_bytes:
            return block
        is_kept = self._begun_bytes <= LONGEST_EVENT
        block = b"".join((*self._begun, block)) if is_kept else block[block.index(b"\n") :]
        self._begun.clear()
        self._begun_bytes = 0
        return block

    def _read_lines(self, block: bytes) -> None:
        for line in block.split(b"\n"):
            if line.startswith(b"data:") and _NEWS.search(line) is not None:
                self._read_event(line[5:].strip())

    def _read_event(self, data: bytes) -> None:
        event = _decoded(data, _EVENT)
        if event is None:
            return
        for holder in (event, *(_decoded(raw, _HOLDER) for raw in (event.message, event.response, event.x_groq))):
            if holder is None:
                continue
            for raw in (holder.usage, holder.usageMetadata):
                if (usage := _decoded(raw, _USAGE)) is not None:
                    self._usage = usage.over(self._usage)
                    self.tokens = self._usage.total
            if _is_error(holder.error):
                self.error = data


class BodyReader:
    """One JSON document."""

    def __init__(self) -> None:
        self.tokens: int | None = None
        self.error: bytes | None = None
        self._scanner = MemberScanner(_MEMBERS)

    def feed(self, chunk: bytes) -> None:
        if self._scanner.ended:
            return
        self._scanner.feed(chunk)
        for name, raw in self._scanner.found.items():
            if name == "error":
                self.error = raw if _is_error(raw) else None
            elif (usage := _decoded(raw, _USAGE)) is not None:
                self.tokens = usage.total


class Usage(msgspec.Struct, frozen=True):
    """Usage as the protocols spell it; each uses some of the fields."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    totalTokenCount: int | None = None  # noqa: N815 - Google's spelling
    promptTokenCount: int | None = None  # noqa: N815
    candidatesTokenCount: int | None = None  # noqa: N815
    thoughtsTokenCount: int | None = None  # noqa: N815

    def over(self, before: "Usage") -> "Usage":
        """Each field as it was told last: Anthropic counts the prompt in the first event and the answer in the last."""
        told = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(before, **told)

    @property
    def total(self) -> int | None:
        """The sum of the parts where cache reads are told apart, else the protocol's own total or its parts."""
        for parts in _WAYS_TO_COUNT:
            known = [value for name in parts if _is_count(value := getattr(self, name))]
            if known:
                return sum(known)
        return None


_WAYS_TO_COUNT = (
    ("input_tokens", "cache_creation_input_tokens", "output_tokens"),
    ("total_tokens",),
    ("prompt_tokens", "completion_tokens"),
    ("totalTokenCount",),
    ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
)


class _Holder(msgspec.Struct):
    """What may hold usage; what cannot be read of it is left out, and the rest is read."""

    usage: msgspec.Raw = _NOTHING
    usageMetadata: msgspec.Raw = _NOTHING  # noqa: N815 - Google's spelling
    error: msgspec.Raw = _NOTHING


class _Event(_Holder):
    message: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING
    x_groq: msgspec.Raw = _NOTHING


_EVENT = msgspec.json.Decoder(_Event)
_HOLDER = msgspec.json.Decoder(_Holder)
_USAGE = msgspec.json.Decoder(Usage)


def _decoded(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Value]) -> Value | None:
    if not raw:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_count(value: int | None) -> TypeGuard[int]:
    return value is not None and 0 <= value <= LARGEST_TOKENS


def _is_error(raw: bytes | msgspec.Raw) -> bool:
    """Many answers have an `error` that is null."""
    return bytes(raw)[:1] in (b"{", b'"')
