"""Decompression of a response that is read in passing. The bytes that the client gets stay compressed.

gzip and deflate are read, other codings are *unknown*. A response that expands to an absurd size is read no further.
"""

import zlib

from paceline.gateway.http_heads import Header

MOST_AT_ONCE = 4 * 2**20
"""Bytes that one piece may expand to. Usage and errors are far smaller; a compression bomb stops here."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


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
