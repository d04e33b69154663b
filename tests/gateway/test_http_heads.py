"""Decompression of responses in passing: bounded in memory and steps, whatever the upstream sends."""

import gzip
import tracemalloc
import zlib

import pytest

from paceline.gateway.http_heads import MOST_EXPANDED, MOST_RATIO, READ_AT_ONCE, Decompressor

MOST_AT_ONCE = 1032 * READ_AT_ONCE


@pytest.mark.parametrize("members", [1, 4])
def test_a_response_that_expands_to_an_absurd_size_is_read_no_further(members: int) -> None:
    decompressor, most = Decompressor(), MOST_EXPANDED + MOST_AT_ONCE
    bomb = gzip.compress(b"\0" * (most * 2 // members)) * members

    tracemalloc.start()
    try:
        expanded = sum(map(len, decompressor.feed(bomb)))
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_AT_ONCE
    finally:
        tracemalloc.stop()
    assert MOST_EXPANDED < expanded < most + len(bomb) * MOST_RATIO
    unread = decompressor.unread_bytes
    assert len(bomb) // 4 < unread < len(bomb)
    assert list(decompressor.feed(b"more")) == []
    assert (decompressor.unread_bytes, decompressor.is_at_end) == (unread + 4, False)


def test_bytes_after_the_end_of_a_compressed_response_are_not_kept() -> None:
    for tail, unread in ((bytes(MOST_AT_ONCE), 0), (b"?" * MOST_AT_ONCE, MOST_AT_ONCE)):
        decompressor = Decompressor()
        assert b"".join(decompressor.feed(zlib.compress(b"answer"))) == b"answer"

        tracemalloc.start()
        try:
            assert list(decompressor.feed(tail)) == []
            assert tracemalloc.get_traced_memory()[1] < MOST_AT_ONCE
        finally:
            tracemalloc.stop()
        assert (decompressor.unread_bytes, decompressor.is_at_end) == (unread, not unread)


def test_members_are_read_however_they_are_cut() -> None:
    packed = b"".join(gzip.compress(b"%d," % number) for number in range(2000))
    for size in (1, 7, READ_AT_ONCE, len(packed)):
        decompressor = Decompressor()
        pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert b"".join(part for piece in pieces for part in decompressor.feed(piece)).count(b",") == 2000
        assert decompressor.is_at_end
