"""HTTP/1.1 heads as bytes: which headers end at this hop, and how heads and chunks are written.

Here: pure functions over header lists. Names and values stay as they came, byte for byte. Never here: sockets.
"""

from collections.abc import Iterable

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

LAST_CHUNK = b"0\r\n\r\n"
_END_TO_END = frozenset({b"content-length", b"content-type", b"content-encoding"})
_USUAL = frozenset({b"keep-alive", b"close", b""})


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
