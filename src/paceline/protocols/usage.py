"""The tokens that a response has used, and the error it may end with, read while its bytes pass.

Here: the usage fields of each protocol, in a body or in a stream of events. A response that is compressed, or of
another type, is *unknown* and never an error. Never here: changing a byte.
"""

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import msgspec

from paceline.core.values.session_output import Tokens
from paceline.protocols.request_reader import BYTES_PER_TOKEN, MemberScanner, decoded, tier_of

LONGEST_EVENT = 1_000_000
"""Bytes of one line in a stream that are kept. Only images and answers that are repeated whole are longer."""
LONGEST_TAIL = 65_536
"""Bytes kept of the end of a longer line: providers write its usage behind what makes it long."""
COMPRESSION = 4
"""How much longer text is than its compressed bytes: brotli and zstd shorten prose and JSON to a quarter or so."""
LARGEST_TOKENS = 1_000_000_000
"""Larger numbers are nonsense and are ignored."""

_ABSENT = msgspec.Raw()
_USAGE_OR_ERROR = re.compile(rb'"(?:usage|usageMetadata|error)"\s*+:\s*+[{"]')
_USAGE_IN_TAIL = re.compile(
    rb'(?<!\\)"(?:usage|usageMetadata)"\s*+:\s*+(\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\})'
)
_MEMBERS = frozenset({"model", "usage", "usageMetadata", "error", "service_tier"})
_TIER_HEADER = b"x-gemini-service-tier"
_TEXT = re.compile(
    rb'"response\.[a-z_.]++(?<!\.delta)"[^\n]*+'  # an event of OpenAI's responses that repeats what had come
    rb'|"(?:text|content|thinking|partial_json|arguments|reasoning|reasoning_content|delta)"\s*+:'
    rb'\s*+"((?:[^"\\]++|\\.)*+)'
)


class ResponseReader:
    """A reader of a response."""

    def __init__(self) -> None:
        self.usage = NO_USAGE
        """What the response has said so far."""
        self.is_usage_of_start = False
        """Whether it said that only when it began: its answer is not in it yet."""
        self.events = self.text_bytes = 0
        """Events of a stream that have come, and their text. 0 for a body."""
        self.model: str | None = None
        """The model that answers, if that was said beside the usage."""
        self.served: dict[str, str] = {}
        """How the call was served, by the member that says so, such as `service_tier`."""
        self.tokens: int | None = None
        """What counts towards rate limits: without cache reads where they are separate. None until it is known."""
        self.error: bytes | None = None
        """The event or member with an error that ended the response after it had begun."""

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes piece by piece as it is written, so that what has come is what was written."""
        return True

    @property
    def streamed_tokens(self) -> int:
        """How many tokens have come at least: one with each event, and those of its text."""
        return max(self.events, self.text_bytes // BYTES_PER_TOKEN)

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes."""
        raise NotImplementedError

    def _read_usage(self, raw: bytes | msgspec.Raw, before: "TokenUsage") -> bool:
        """Read an object of usage that adds to what was said before. Returns whether it is one."""
        if (said := decoded(raw, _USAGE)) is None:
            return False
        usage = TokenUsage(said)
        self.usage = usage.over(before)
        self.tokens = self.usage.total
        self.served |= usage.tiers()
        return True

    def _read_tier(self, name: str, raw: bytes | msgspec.Raw) -> None:
        if (tier := decoded(raw, _NAME)) is not None:
            self.served[name] = tier_of(tier)


def response_reader(headers: Iterable[tuple[bytes, bytes]]) -> ResponseReader | None:
    """Return a reader for a response with these headers (names in lower case), None if it cannot be read."""
    kind, tier = b"", b""
    for name, value in headers:
        if name == b"content-type":
            kind = value.lower()
        elif name == _TIER_HEADER:
            tier = value
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return None
    reader = EventReader() if b"event-stream" in kind else BodyReader() if b"json" in kind else None
    if reader is not None and tier:
        reader.served["service_tier"] = tier_of(tier.decode("latin-1"))
    return reader


class EventReader(ResponseReader):
    """The reader of server-sent events. Only events with usage or an error are parsed."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def feed(self, chunk: bytes) -> None:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            block = self._with_begun(chunk[:cut])
            self.events += block.count(b"data:")
            self.text_bytes += sum(map(len, _TEXT.findall(block)))
            if _USAGE_OR_ERROR.search(block) is not None:
                self._read_lines(block)
            chunk = chunk[cut:]
        if chunk:
            self._begun_bytes += len(chunk)
            self._begun.append(chunk)
            if self._begun_bytes > LONGEST_EVENT:
                self._begun = [b"".join(self._begun)[-LONGEST_TAIL:]]

    def _with_begun(self, block: bytes) -> bytes:
        """Put the kept beginning in front of the first line. A first line that is too long is read and removed."""
        if not self._begun_bytes:
            return block
        block, size = b"".join((*self._begun, block)), self._begun_bytes
        self._begun.clear()
        self._begun_bytes = 0
        if size > LONGEST_EVENT:
            end = block.index(b"\n")
            self._read_tail(block[:end], size)
            block = block[end:]
        return block

    def _read_tail(self, tail: bytes, size: int) -> None:
        """Read the usage in the end of a line. Without any, the line counts as text: it may be all of an answer."""
        self.events += 1
        found = [self._read_usage(usage, self.usage) for usage in _USAGE_IN_TAIL.findall(tail)]
        if any(found):
            self.is_usage_of_start = False
        else:
            self.text_bytes += size

    def _read_lines(self, block: bytes) -> None:
        for line in block.split(b"\n"):
            if line.startswith(b"data:") and _USAGE_OR_ERROR.search(line) is not None:
                self._read_event(line[5:].strip())

    def _read_event(self, data: bytes) -> None:
        event = decoded(data, _EVENT)
        if event is None:
            return
        start = decoded(event.message, _HOLDER)
        for holder in (event, start, *(decoded(raw, _HOLDER) for raw in (event.response, event.x_groq))):
            if holder is None:
                continue
            self.model = decoded(holder.model, _NAME) or self.model
            self._read_tier("service_tier", holder.service_tier)
            for raw in (holder.usage, holder.usageMetadata):
                if self._read_usage(raw, self.usage):
                    self.is_usage_of_start = holder is start
            if _is_error(holder.error):
                self.error = data


class BodyReader(ResponseReader):
    """The reader of one JSON document."""

    def __init__(self) -> None:
        super().__init__()
        self._scanner = MemberScanner(_MEMBERS)

    @property
    def is_stream(self) -> bool:
        """Google streams an array, with one object for each piece."""
        return self._scanner.is_array

    def feed(self, chunk: bytes) -> None:
        if self._scanner.ended:
            return
        self._scanner.feed(chunk)
        for name, raw in self._scanner.found.items():
            if name == "error":
                self.error = raw if _is_error(raw) else None
            elif name == "model":
                self.model = decoded(raw, _NAME)
            elif name == "service_tier":
                self._read_tier(name, raw)
            else:
                self._read_usage(raw, NO_USAGE)


class TokenUsage:
    """Usage in the spellings of all protocols, as it was said. Each protocol uses some of the names."""

    def __init__(self, said: Mapping[str, object]) -> None:
        self._said = said

    def tiers(self) -> dict[str, str]:
        """Return how the call was served, in the spellings of `ResponseReader.served`.

        Anthropic's `service_tier` is left out: it is about capacity that was paid before.
        """
        named = [(to, value) for name, to in _TIERS.items() if isinstance(value := self._said.get(name), str)]
        return {name: tier_of(value) for name, value in named}

    @property
    def extras(self) -> dict[str, int]:
        """What is not paid at the list price by the kinds of `split`, or beside them."""
        parts = self._objects("promptTokensDetails")
        return {
            "audio": sum(_count(each.get("tokenCount")) for each in parts if each.get("modality") == "AUDIO"),
            "hour_cache_write": self._count("cache_creation", "ephemeral_1h_input_tokens"),
            "web_search": self._count("server_tool_use", "web_search_requests"),
        }

    @property
    def names_models(self) -> bool:
        """Whether several models have served the call, each a part of it."""
        return any(part.get("model") for part in self._objects("iterations"))

    def over(self, before: "TokenUsage") -> "TokenUsage":
        """Return `before` with what this one says: Anthropic counts the prompt first and the response last."""
        return TokenUsage({**before._said, **{name: value for name, value in self._said.items() if value is not None}})

    @property
    def total(self) -> int | None:
        """The sum of the parts if cache reads are separate, else the protocol's own total or parts."""
        for parts in _TOTALS:
            known = [value for name in parts if (value := _number(self._said.get(name))) is not None]
            if known:
                return sum(known)
        return None

    @property
    def is_nonsense(self) -> bool:
        """Whether a number is none, negative or too large. It counts as 0, so what was used is not known."""
        said = [value for name in _NUMBERS if (value := self._said.get(name)) is not None]
        return any(_number(value) is None for value in said)

    @property
    def split(self) -> Tokens | None:
        """The tokens by kind, None if the response says at most their sum.

        Anthropic counts the prompt that is in a cache beside `input_tokens`. All others count it within the prompt. A
        call of Anthropic that compacts its context or asks an advisor says all of its parts in a list alone.
        """
        count = self._count
        if self._says("prompt_tokens", "completion_tokens"):
            details, prompt, answer = "prompt_tokens_details", count("prompt_tokens"), count("completion_tokens")
            read = max(map(count, ("prompt_cache_hit_tokens", "cache_read_input_tokens")))
            if self._says("completion_tokens"):  # xAI and Google count thoughts in nothing but the sum
                answer = max(answer, count("total_tokens") - prompt)
            written = max(count(details, "cache_write_tokens"), count("cache_creation_input_tokens"))
            return _within(prompt, answer, max(count(details, "cached_tokens"), read), written)
        if self._says("input_tokens", "output_tokens"):
            details = "input_tokens_details"
            within = count(details, "cached_tokens"), count(details, "cache_write_tokens")
            own = _within(count("input_tokens"), count("output_tokens"), *within)
            beside = Tokens(
                cache_read=count("cache_read_input_tokens"), cache_write=count("cache_creation_input_tokens")
            )
            last = own.plus(beside)
            parts = [TokenUsage(each).split or Tokens() for each in self._objects("iterations")]
            return last.plus(reduce(Tokens.plus, parts, Tokens()).beyond(last))
        if self._says("promptTokenCount", "candidatesTokenCount"):
            prompt = count("promptTokenCount") + count("toolUsePromptTokenCount")
            answer = count("candidatesTokenCount") + count("thoughtsTokenCount")
            return _within(prompt, answer, count("cachedContentTokenCount"), 0)
        return None

    def _says(self, *names: str) -> bool:
        return any(self._said.get(name) is not None for name in names)

    def _count(self, name: str, within: str | None = None) -> int:
        value = self._said.get(name)
        if within is not None:
            value = value.get(within) if isinstance(value, dict) else None
        return _count(value)

    def _objects(self, name: str) -> list[dict[str, object]]:
        value = self._said.get(name)
        return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


NO_USAGE = TokenUsage({})
_TIERS = {
    "speed": "speed",
    "inference_geo": "inference_geo",
    "serviceTier": "service_tier",
    "trafficType": "service_tier",
}
_TOTALS = (
    ("input_tokens", "cache_creation_input_tokens", "output_tokens"),
    ("total_tokens",),
    ("prompt_tokens", "completion_tokens"),
    ("totalTokenCount",),
    ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
)
_BESIDE = ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount", "toolUsePromptTokenCount")
_NUMBERS = (*_BESIDE, *(name for names in _TOTALS for name in names))


class TokensUsed(msgspec.Struct, frozen=True, gc=False):
    """The tokens of a response. `is_estimated`: the response did not say all of them."""

    tokens: Tokens
    is_estimated: bool = False


def tokens_used(
    reader: ResponseReader, request_bytes: int, response_bytes: int = 0, *, is_whole: bool, factor: float = 1.0
) -> TokensUsed | None:
    """Return what a response has used, None if nothing is known.

    A response that broke off, or whose client left, counts as far as it came, and so does a stream that ends with an
    error, or early, before it has said what its answer used. Where it says nothing, the prompt is estimated by its
    bytes, and the answer by what was streamed, times a factor. Numbers that cannot be true count as 0, and each kind as
    its estimate by bytes if that is more.
    """
    said = reader.usage.split
    streamed = min(round(reader.streamed_tokens * factor), LARGEST_TOKENS)
    if said is not None and reader.usage.is_nonsense:
        by_bytes = tokens_by_bytes(request_bytes, response_bytes, is_compressed=False).tokens
        sent = msgspec.structs.replace(said, input=max(said.input, by_bytes.input - said.cache_read - said.cache_write))
        return TokensUsed(msgspec.structs.replace(sent, output=max(said.output, by_bytes.output)), is_estimated=True)
    if said is not None and is_whole and not reader.is_usage_of_start:
        return TokensUsed(said)
    if said is not None:
        return TokensUsed(msgspec.structs.replace(said, output=max(said.output, streamed)), is_estimated=True)
    if not reader.events and (is_whole or reader.error is not None):
        return None  # a body without usage, such as a list
    prompt = min(request_bytes // BYTES_PER_TOKEN, LARGEST_TOKENS)
    answer = streamed if reader.events else min(response_bytes // BYTES_PER_TOKEN, LARGEST_TOKENS)
    return TokensUsed(Tokens(input=prompt, output=answer), is_estimated=True)


def tokens_by_bytes(request_bytes: int, response_bytes: int, *, is_compressed: bool) -> TokensUsed:
    """Return an estimate for a response that could not be read, or that says nothing of what it has used."""
    prompt = min(request_bytes // BYTES_PER_TOKEN, LARGEST_TOKENS)
    answer = response_bytes * (COMPRESSION if is_compressed else 1) // BYTES_PER_TOKEN
    return TokensUsed(Tokens(input=prompt, output=min(answer, LARGEST_TOKENS)), is_estimated=True)


def _within(prompt: int, answer: int, read: int, written: int) -> Tokens:
    """Return the split of a prompt that includes what was read from and written to a cache."""
    return Tokens(input=max(0, prompt - read - written), output=answer, cache_read=read, cache_write=written)


class _Holder(msgspec.Struct):
    """An object that may contain usage. Members that cannot be read are ignored."""

    model: msgspec.Raw = _ABSENT
    usage: msgspec.Raw = _ABSENT
    usageMetadata: msgspec.Raw = _ABSENT  # noqa: N815 - Google's spelling
    error: msgspec.Raw = _ABSENT
    service_tier: msgspec.Raw = _ABSENT


class _Event(_Holder):
    message: msgspec.Raw = _ABSENT
    response: msgspec.Raw = _ABSENT
    x_groq: msgspec.Raw = _ABSENT


_EVENT = msgspec.json.Decoder(_Event)
_HOLDER = msgspec.json.Decoder(_Holder)
_USAGE = msgspec.json.Decoder(dict[str, Any])
_NAME = msgspec.json.Decoder(str)


def _number(value: object) -> int | None:
    """Return a count of tokens, None if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= LARGEST_TOKENS else None


def _count(value: object) -> int:
    return _number(value) or 0


def _is_error(raw: bytes | msgspec.Raw) -> bool:
    """Return whether it is an error. Many responses have an `error` that is null."""
    return bytes(raw)[:1] in (b"{", b'"')
