"""Decompression of a response that is read in passing. The bytes that the client gets stay compressed.

gzip and deflate are read, other codings are *unknown*. A response that expands to an absurd size is read no further.
"""

import re
import zlib
from functools import lru_cache

from paceline.gateway.http_heads import Header

MOST_AT_ONCE = 4 * 2**20
"""Bytes that one piece may expand to. Usage and errors are far smaller; a compression bomb stops here."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})

_READABLE = _CODINGS | {b"identity"}
_REFUSED = re.compile(rb";\s*q\s*=\s*0(?:\.0*)?\s*$", re.I)


class Decompressor:
    """The decoder of one response, fed piece by piece."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_failed = False

    def feed(self, data: bytes) -> bytes:
        if self._has_failed or self._decoder.eof:  # the decoder would store all bytes after the end
            return b""
        try:
            decoded = self._decoder.decompress(data, MOST_AT_ONCE)
        except zlib.error:
            self._has_failed = True
            return b""
        self._has_failed = bool(self._decoder.unconsumed_tail)
        return decoded


def decompressor_for(headers: list[Header]) -> Decompressor | None:
    """Return a decoder for these headers (names in lower case). None if not compressed, or in an unknown coding."""
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    return Decompressor() if len(codings) == 1 and codings[0] in _CODINGS else None


def without_coding(headers: list[Header]) -> list[Header]:
    """Return the headers that describe the decompressed body."""
    return [header for header in headers if header[0] != b"content-encoding"]


@lru_cache(maxsize=64)  # few clients differ here; a value may be as long as a head
def readable_codings(accept_encoding: bytes) -> bytes:
    """Return the value of an `accept-encoding` without the codings that cannot be read here."""
    given = [each.strip() for each in accept_encoding.split(b",")]
    kept = [each for each in given if each.partition(b";")[0].strip().lower() in _READABLE]
    if len(kept) == len(given):
        return accept_encoding
    return b", ".join(kept) if any(_REFUSED.search(each) is None for each in kept) else b"identity"
