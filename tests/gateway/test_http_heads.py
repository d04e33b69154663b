"""Decompression of responses in passing: bounded in memory, whatever the upstream sends."""

import tracemalloc
import zlib

from paceline.gateway.http_heads import MOST_AT_ONCE, Decompressor


def test_a_response_that_expands_to_an_absurd_size_is_read_no_further() -> None:
    decompressor = Decompressor()
    bomb = zlib.compress(b"\0" * (8 * MOST_AT_ONCE))

    assert len(decompressor.feed(bomb)) == MOST_AT_ONCE
    assert decompressor.feed(b"more") == b""


def test_bytes_after_the_end_of_a_compressed_response_are_not_kept() -> None:
    decompressor = Decompressor()
    tail = bytes(MOST_AT_ONCE)
    assert decompressor.feed(zlib.compress(b"answer")) == b"answer"

    tracemalloc.start()
    try:
        assert decompressor.feed(tail) == b""
        assert tracemalloc.get_traced_memory()[1] < MOST_AT_ONCE
    finally:
        tracemalloc.stop()
