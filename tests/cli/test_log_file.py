"""The log file: a fault that repeats is one record, and a log that cannot be written is one line on the terminal."""

import logging
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from paceline.daemon.process import LastWarnings, LogFile
from paceline.errors import StoreFull


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, None) if error is not None else None
    return logging.LogRecord("paceline.engine", logging.ERROR, __file__, 1, message, None, exc_info)


def lines_of(path: Path) -> list[str]:
    """The lines without their date and time."""
    return [line.partition(" ERROR ")[2] or line for line in path.read_text().splitlines()]


def test_a_fault_that_repeats_is_one_record(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "paceline.log")

    for _ in range(1000):
        log.handle(record("a pass failed; the next one recovers", StoreFull("no room left: free some")))
    log.handle(record("another matter"))
    log.close()

    assert lines_of(tmp_path / "paceline.log") == [
        "a pass failed; the next one recovers",
        "  no room left: free some",
        "the record before was repeated 999 times",
        "another matter",
    ]


def test_a_log_that_cannot_be_written_is_one_line_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paceline.log").mkdir()
    log = LogFile(tmp_path / "paceline.log")

    for number in range(1000):
        log.handle(record(f"a pass failed: {number}", OSError("no room")))
    log.close()

    assert capsys.readouterr().err == (
        f"paceline: cannot write {tmp_path / 'paceline.log'}: Is a directory; log records are dropped\n"
    )


def test_a_log_whose_disk_is_full_is_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "paceline.log").symlink_to("/dev/full")
    log = LogFile(tmp_path / "paceline.log")

    log.handle(record("a pass failed"))
    log.close()

    assert capsys.readouterr().err == (
        f"paceline: cannot write {tmp_path / 'paceline.log'}: No space left on device; log records are dropped\n"
    )


def test_a_warning_that_repeats_is_shown_once_in_ten_minutes() -> None:
    warnings = LastWarnings(ZoneInfo("UTC"))
    shown: list[str] = []

    for second in range(700):
        given = record("a pass failed", StoreFull("no room left: free some"))
        given.created = 1_800_000_000.0 + second
        warnings.handle(given)
        shown.extend(warnings.texts)

    assert list(dict.fromkeys(shown)) == [
        "08:00:00 a pass failed: no room left: free some",
        "08:10:00 a pass failed: no room left: free some",
    ]


def test_a_warning_does_not_hide_the_one_before_it() -> None:
    """An outage of the database is two: of the engine, and of the thread that listens, in any order."""
    warnings = LastWarnings(ZoneInfo("UTC"))

    for message in ("the store cannot be used", "the store announces no changes"):
        given = record(message)
        given.created = 1_800_000_000.0
        warnings.handle(given)

    assert list(warnings.texts) == ["08:00:00 the store cannot be used", "08:00:00 the store announces no changes"]


def test_an_unexpected_error_keeps_its_traceback(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "paceline.log")
    try:
        raise ValueError("odd")
    except ValueError as error:
        given = logging.LogRecord("paceline", logging.ERROR, __file__, 1, "it failed", None, None)
        given.exc_info = (ValueError, error, error.__traceback__)
    log.handle(given)
    log.close()

    lines = lines_of(tmp_path / "paceline.log")
    assert (lines[0], lines[1], lines[-1]) == ("it failed", "Traceback (most recent call last):", "ValueError: odd")
