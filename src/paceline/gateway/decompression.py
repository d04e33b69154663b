"""Reading along with an answer that is compressed; what goes to the client stays as it is.

gzip and deflate are read, other codings are *unknown*. An answer that unpacks to an absurd size is read no further.
"""

import zlib

from paceline.gateway.http_heads import Header

MOST_AT_ONCE = 4 * 2**20
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


class Unpacker:
    """One answer, in pieces as they come."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_failed = False

    def feed(self, data: bytes) -> bytes:
        if self._has_failed or self._decoder.eof:  # what follows the end would pile up in the decoder
            return b""
        try:
            unpacked = self._decoder.decompress(data, MOST_AT_ONCE)
        except zlib.error:
            self._has_failed = True
            return b""
        self._has_failed = bool(self._decoder.unconsumed_tail)
        return unpacked


def unpacker_for(headers: list[Header]) -> Unpacker | None:
    """For an answer with these headers (names in lower case); None where it is not compressed, or nobody knows how."""
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    return Unpacker() if len(codings) == 1 and codings[0] in _CODINGS else None


def without_coding(headers: list[Header]) -> list[Header]:
    """The headers of what comes out."""
    return [header for header in headers if header[0] != b"content-encoding"]
