"""The end of a recording is read without what comes before it, over the seam of two files too."""

from pathlib import Path

import pytest

from paceline.executors.spool import read_tail
from paceline.executors.spool_writer import SEGMENT_BYTES, Recording


@pytest.mark.parametrize(
    ("written", "most", "expected"),
    [
        (b"", 10, b""),
        (b"short", 10, b"short"),
        (b"longer than that", 4, b"that"),
        (b"x" * (SEGMENT_BYTES - 2) + b"abcdef", 5, b"bcdef"),
        (b"x" * SEGMENT_BYTES + b"y" * 4, 4, b"yyyy"),
    ],
)
def test_the_last_bytes(
    written: bytes, most: int, expected: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording = Recording("stdout")
    recording.write(written)
    recording.close()

    assert read_tail(str(tmp_path), "stdout", most) == expected


def test_where_nothing_was_recorded_there_is_nothing(tmp_path: Path) -> None:
    assert read_tail(str(tmp_path / "gone"), "stdout", 10) == b""
