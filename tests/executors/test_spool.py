"""A recording is read piece by piece while it grows, and its end without what comes before it."""

import os
from pathlib import Path

import pytest

from paceline.executors.spool import OutputReader, read_tail
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


def test_a_file_that_came_while_the_folder_was_listed_is_no_dropped_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording, reader = Recording("stdout"), OutputReader(str(tmp_path), "stdout")
    recording.write(b"a" * SEGMENT_BYTES)
    received = b"".join(iter(lambda: reader.read(is_over=False), b""))

    def list_while_two_files_come(folder: str) -> list[str]:
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        before = os.listdir(folder)
        recording.write(b"b" * SEGMENT_BYTES + b"c")
        return [*before, f"stdout.{2 * SEGMENT_BYTES}"]  # a system may return any of those that came meanwhile

    monkeypatch.setattr(os, "listdir", list_while_two_files_come)
    received += b"".join(iter(lambda: reader.read(is_over=False), b""))
    recording.close()

    assert received == b"a" * SEGMENT_BYTES + b"b" * SEGMENT_BYTES + b"c"
