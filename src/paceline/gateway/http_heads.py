"""HTTP/1.1 heads as bytes: which headers end at this hop, how heads and chunks are written, which codings are read.

Here: functions over header lists. Names and values stay as they came, byte for byte. Responses are decompressed only to
be read in passing: gzip and deflate are read, other codings are *unknown*, and the client gets the compressed bytes.
Never here: sockets.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

Header = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that concern one connection only. `Trailer` is not among them: trailers of a response are forwarded."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
_END_TO_END = frozenset({b"content-length", b"content-type", b"content-encoding"})
_NOT_VISIBLE = re.compile(rb"[^\x21-\x7e]")
_USUAL = frozenset({b"keep-alive", b"close", b""})
READ_AT_ONCE = 4096
"""Compressed bytes of one step. Deflate expands a byte to 1,032 at most, so a step has 4 MiB at most."""
MOST_EXPANDED, MOST_RATIO = 32 * 2**20, 32
"""A response may expand to so many bytes, and to so many more for each that has come. A compression bomb stops here."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})

_READABLE = _CODINGS | {b"identity"}
_REFUSED = re.compile(rb";\s*q\s*=\s*0(?:\.0*)?\s*$", re.I)


def header_value(text: str) -> bytes:
    """Return a text as the value of a header, with a dash for each byte that is no visible ASCII character."""
    return _NOT_VISIBLE.sub(b"-", text.encode(errors="replace"))


def header_lines(headers: Iterable[Header]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def last_chunk(trailers: list[Header]) -> bytes:
    return b"0\r\n%b\r\n" % header_lines(trailers) if trailers else LAST_CHUNK


def lowered(headers: Iterable[Header]) -> list[Header]:
    """Return the headers with their names in lower case, for lookups."""
    return [(name.lower(), value) for name, value in headers]


def named_by_connection(value: bytes) -> frozenset[bytes]:
    """Return the headers that `Connection` declares hop-by-hop, except those needed to read the body."""
    value = value.lower()
    if value in _USUAL:
        return frozenset()
    return frozenset(name.strip() for name in value.split(b",")) - _END_TO_END


class Decompressor:
    """The decoder of one response, fed piece by piece. A response may have several members, each compressed alone."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._left = MOST_EXPANDED
        self.unread_bytes = 0
        """Compressed bytes that cannot be read, or would expand too far."""

    @property
    def is_at_end(self) -> bool:
        return self._decoder.eof and not self.unread_bytes

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the next bytes step by step."""
        self._left += len(data) * MOST_RATIO
        for start in range(0, len(data), READ_AT_ONCE):
            rest = data[start : start + READ_AT_ONCE]
            while rest and not self.unread_bytes and self._left >= 0:
                if self._decoder.eof:
                    if not (rest := rest.lstrip(b"\0")):  # padding
                        break
                    self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
                try:
                    decoded = self._decoder.decompress(rest)
                except zlib.error:
                    break
                self._left -= len(decoded)
                rest = self._decoder.unused_data
                yield decoded
            self.unread_bytes += len(rest)


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
