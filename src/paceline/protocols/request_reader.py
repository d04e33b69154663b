"""The model and the tokens that a request asks for, read from a body that is forwarded unchanged.

Here: the few members that admission needs. Never here: the rest of the body.
"""

from collections.abc import Mapping

import msgspec

from paceline.protocols.json_scanner import MemberScanner, decoded

BYTES_PER_TOKEN = 4
"""For English text and code. Good enough to delay a request; the response then reports the real number."""
LARGEST_TOKENS = 100_000_000
"""Tokens of one request. Larger numbers are nonsense from a client and are ignored or cut to this."""

MOST_STEPS = 1000
"""Brackets, keys and values of a body that are scanned as they come. A step takes some microseconds, so a body of
megabytes of brackets would hold up everything else for seconds. A conversation of 150 turns has fewer."""

_NAMES = frozenset({"model", "stream", "max_tokens", "max_completion_tokens", "max_output_tokens", "generationConfig"})
_RESPONSE_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class RequestReader:
    """A reader of a request's body as it comes in. `model` is None until it is known."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.max_tokens: int | None = None
        """The longest response that the request allows, if the part read so far contains it."""
        self._scanner = MemberScanner(_NAMES, most_steps=MOST_STEPS)
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
        for name in _RESPONSE_LIMITS:
            if name in found:
                self.max_tokens = _count(decoded(found[name], _NUMBER))
        if (settings := decoded(found.get("generationConfig"), _GEMINI_SETTINGS)) is not None:
            self.max_tokens = _count(settings.maxOutputTokens)


class _GeminiSettings(msgspec.Struct):
    maxOutputTokens: int | None = None  # noqa: N815 - Google's spelling


_TEXT = msgspec.json.Decoder(str)
_NUMBER = msgspec.json.Decoder(int)
_GEMINI_SETTINGS = msgspec.json.Decoder(_GeminiSettings)


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 < value <= LARGEST_TOKENS else None
