"""The model and the tokens that a request asks for, read from a body that is forwarded unchanged.

Here: a scanner that takes chunks cut anywhere, keeps only the wanted members, and never raises; and the few members
that admission needs. Never here: the rest of the body.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, TypeVar

import msgspec

_SPACE = re.compile(rb"[ \t\r\n]*+")
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.S)
_IN_NESTED = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+', re.S)
_IN_SCALAR = re.compile(rb'[^ \t\r\n,:"\[\]{}]*+')
_BOM = b"\xef\xbb\xbf"
Value = TypeVar("Value")

State = Literal["start", "object", "key", "colon", "value", "scalar", "comma"]


class MemberScanner:
    """A scanner for the members `names` of an object, or of each object in an array. `found` has them as raw JSON.

    If a member comes twice, the last one counts, as for every common parser. A value longer than `longest` bytes is
    skipped. After `most_steps` brackets, keys and values, it stops and `gave_up` is true: the whole document must then
    be parsed.
    """

    # These are defaults of the class because most documents come in one piece, and need none of them.
    ended = False
    """Whether the scan is over: the last bracket is closed, or the bytes are not JSON."""
    gave_up = False
    _steps = 0
    _state: State = "start"
    is_array = False
    """Whether the document is an array, as far as it was scanned."""
    _depth = 0
    """Open brackets inside the current value."""
    _in_string = False
    _is_escaped = False
    _is_whole = False
    """Whether the current key or value ended with the last byte."""
    _key = ""
    _kept: bytearray | None = None

    def __init__(self, names: frozenset[str], *, longest: int = 8192, most_steps: float = math.inf) -> None:
        self.found: dict[str, bytes] = {}
        self._names = names
        self._longest = longest
        self._most_steps = most_steps

    def feed(self, chunk: bytes) -> None:
        """Scan the next bytes."""
        if self.gave_up:
            return
        position = 0
        if self._state == "start":
            if chunk.endswith(b"}") and self.read_whole(chunk):
                return
            position = len(_BOM) if chunk.startswith(_BOM) else 0
        while position < len(chunk) and not self.ended:
            if self._steps >= self._most_steps:
                self.gave_up = True
                return
            self._steps += 1
            start = position
            position = self._step(chunk, position)
            if self._kept is not None:
                self._keep(chunk[start:position])
            if self._is_whole:
                self._is_whole = False
                self._end_token()

    def read_whole(self, document: bytes) -> bool:
        """Parse a whole document, with the same result as the scan. Returns whether it is an object."""
        names, decoder = _decoder(self._names)
        try:
            members = msgspec.structs.astuple(decoder.decode(document.removeprefix(_BOM)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        self.take(dict(zip(names, members, strict=True)))
        return True

    def take(self, members: Mapping[str, msgspec.Raw]) -> None:
        """Find the wanted ones among the members of a whole document."""
        for name in self._names:
            if (value := members.get(name)) and len(raw := bytes(value)) <= self._longest:
                self.found[name] = raw
        self.ended = True

    def _step(self, chunk: bytes, position: int) -> int:
        """Skip or keep the bytes that belong together. Returns the new position."""
        if self._in_string:
            return self._pass_string(chunk, position)
        if self._depth:
            return self._pass_nested(chunk, position)
        if self._state == "scalar":
            position = _end(_IN_SCALAR, chunk, position)
            self._is_whole = position < len(chunk)
            return position
        position = _end(_SPACE, chunk, position)
        if position == len(chunk):
            return position
        self._begin(chunk[position : position + 1])
        return position + 1

    def _pass_string(self, chunk: bytes, position: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return position + 1
        position = _end(_IN_STRING, chunk, position)
        if position == len(chunk):
            return position
        self._is_escaped = chunk[position : position + 1] == b"\\"  # the backslash is the last byte of the chunk
        self._in_string = self._is_escaped
        self._is_whole = not self._in_string and not self._depth
        return position + 1

    def _pass_nested(self, chunk: bytes, position: int) -> int:
        position = _end(_IN_NESTED, chunk, position)
        if position == len(chunk):
            return position
        byte = chunk[position : position + 1]
        if byte == b'"':
            self._in_string = True
        else:
            self._depth += 1 if byte in b"[{" else -1
            self._is_whole = not self._depth
        return position + 1

    def _begin(self, byte: bytes) -> None:
        """Start the next token by its first byte. Anything unexpected is not JSON and ends the scan."""
        match self._state, byte:
            case "key", b'"':
                self._kept, self._in_string = bytearray(), True
            case "colon", b":":
                self._state = "value"
            case "value", _:
                self._begin_value(byte)
            case "comma", b",":
                self._state = "key"
            case (("comma" | "key"), b"}"):
                self._state, self.ended = "object", not self.is_array
            case (("start" | "object"), b"{"):
                self._state = "key"
            case "start", b"[":
                self._state, self.is_array = "object", True
            case "object", b",":
                pass
            case _:
                self.ended = True

    def _begin_value(self, byte: bytes) -> None:
        self._kept = bytearray() if self._key in self._names else None
        if byte == b'"':
            self._in_string = True
        elif byte in b"[{":
            self._depth = 1
        elif byte in b",:]}":
            self.ended = True
        else:
            self._state = "scalar"

    def _keep(self, piece: bytes) -> None:
        assert self._kept is not None
        self._kept += piece
        if len(self._kept) > self._longest:
            self._kept = None

    def _end_token(self) -> None:
        """Store the key or the value that has just ended."""
        raw, self._kept = self._kept, None
        if self._state == "key":
            self._key, self._state = decoded(bytes(raw or b""), _TEXT) or "", "colon"
            return
        if raw is not None:
            self.found[self._key] = bytes(raw)
        self._state = "comma"


@lru_cache(maxsize=16)
def _decoder(names: frozenset[str]) -> tuple[list[str], msgspec.json.Decoder[msgspec.Struct]]:
    """Return the members in order, and a decoder that reads them in an object as raw JSON and skips all others."""
    ordered = sorted(names)
    fields = [(name, msgspec.Raw, msgspec.Raw()) for name in ordered]
    return ordered, msgspec.json.Decoder(msgspec.defstruct("Members", fields))


def _end(pattern: re.Pattern[bytes], chunk: bytes, position: int) -> int:
    found = pattern.match(chunk, position)
    return found.end() if found is not None else position


def decoded(raw: bytes | msgspec.Raw | None, decoder: msgspec.json.Decoder[Value]) -> Value | None:
    """Return the value of raw JSON, None if there is none, or one of another type."""
    if not raw:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


# -- what a request asks for -------------------------------------------------------------------------

BYTES_PER_TOKEN = 4
"""For English text and code. Good enough to delay a request; the response then reports the real number."""
LARGEST_TOKENS = 100_000_000
"""Tokens of one request. Larger numbers are nonsense from a client and are ignored or cut to this."""

MOST_ANSWERS = 1000
"""Answers to one request. Providers refuse more than about a hundred; larger numbers are cut to this."""

MOST_STEPS = 1000
"""Brackets, keys and values of a body that are scanned as they come. A step takes some microseconds, so a body of
megabytes of brackets would hold up everything else for seconds. A conversation of 150 turns has fewer."""

_RESPONSE_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_ANSWERS = ("n", "best_of")
_GEMINI_NAMES = ("generationConfig", "generation_config")
"""Google reads both spellings of every name."""
_TIERS = {name: name for name in ("service_tier", "speed", "inference_geo")} | {"serviceTier": "service_tier"}
"""Members that ask for a price beside the list's: of OpenAI and Google, and two of Anthropic."""
_NAMES = frozenset({"model", "stream", *_GEMINI_NAMES, *_RESPONSE_LIMITS, *_ANSWERS, *_TIERS})
LONGEST_MEMBER = 65_536
"""Bytes of a member that is read. The settings of Gemini can contain a schema of many KiB for its answer."""


class RequestReader:
    """A reader of a request's body as it comes in. `model` is None until it is known."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.max_tokens: int | None = None
        """The longest response that the request allows, if the part read so far contains it. All `answers` together."""
        self.answers = 1
        """How many answers to its prompt the request wants. The response has all of them, and each is paid for."""
        self.served: dict[str, str] = {}
        """How the request wants to be served, by the member that says so, such as `service_tier`."""
        self._scanner = MemberScanner(_NAMES, longest=LONGEST_MEMBER, most_steps=MOST_STEPS)
        self._body_bytes = 0

    def feed(self, chunk: bytes) -> bool:
        """Read the next bytes. Returns whether that is enough: the model is known, or there is none."""
        self._body_bytes += len(chunk)
        if not self._scanner.ended:
            self._scanner.feed(chunk)
            self._read_found()
        return self.model is not None or self._scanner.ended

    @property
    def needs_whole(self) -> bool:
        """Whether the body has too many members for a scan. `read_whole` must then parse it once it has come."""
        return self._scanner.gave_up

    def read_whole(self, body: bytes) -> None:
        """Parse a whole body. One that is no object, or too deep, names no model."""
        if self._scanner.read_whole(body):
            self._read_found()

    def read_members(self, members: Mapping[str, msgspec.Raw]) -> None:
        """Read a body that was decoded before."""
        self._scanner.take(members)
        self._read_found()

    @property
    def is_stream(self) -> bool:
        """Whether the part read so far asks for a stream of events."""
        return self._scanner.found.get("stream") == b"true"

    def tokens(self, body_bytes: int | None = None) -> int:
        """Return the most tokens the request can use: its body, and the longest response it allows."""
        size = self._body_bytes if body_bytes is None else body_bytes
        return min(size // BYTES_PER_TOKEN + (self.max_tokens or 0), LARGEST_TOKENS)

    def _read_found(self) -> None:
        found = self._scanner.found
        if not found:
            return
        self.model = decoded(found.get("model"), _TEXT) or None
        self.served = {to: tier_of(value) for name, to in _TIERS.items() if (value := decoded(found.get(name), _TEXT))}
        settings = [each for name in _GEMINI_NAMES if (each := decoded(found.get(name), _GEMINI_SETTINGS)) is not None]
        self.answers = min(_largest(found, _ANSWERS, *(each.answers for each in settings)) or 1, MOST_ANSWERS)
        longest = _largest(found, _RESPONSE_LIMITS, *(each.longest for each in settings))
        self.max_tokens = None if longest is None else min(longest * self.answers, LARGEST_TOKENS)


def tier_of(value: str) -> str:
    """Return a tier in its short form. Google writes `SERVICE_TIER_PRIORITY`, and `ON_DEMAND_PRIORITY` for Vertex."""
    return value.lower().rsplit("_", 1)[-1]


class _GeminiSettings(msgspec.Struct):
    maxOutputTokens: int | None = None  # noqa: N815 - Google's spelling
    candidateCount: int | None = None  # noqa: N815
    max_output_tokens: int | None = None
    candidate_count: int | None = None

    @property
    def longest(self) -> int | None:
        return self.maxOutputTokens or self.max_output_tokens

    @property
    def answers(self) -> int | None:
        return self.candidateCount or self.candidate_count


_TEXT = msgspec.json.Decoder(str)
_NUMBER = msgspec.json.Decoder(int)
_GEMINI_SETTINGS = msgspec.json.Decoder(_GeminiSettings)


def _largest(found: Mapping[str, bytes], names: Iterable[str], *others: int | None) -> int | None:
    """Return the largest number that these members name, beside the others: servers differ in which one they obey."""
    numbers = (*others, *(decoded(found.get(name), _NUMBER) for name in names))
    return max((each for each in numbers if each is not None and 0 < each <= LARGEST_TOKENS), default=None)
