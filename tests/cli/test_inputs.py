"""The zone of the machine, however it is named."""

import shutil
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import pytest

from paceline.daemon.times import named_local_zone

ZONES = next((folder for folder in map(Path, TZPATH) if (folder / "Asia" / "Tokyo").is_file()), None)
needs_zone_files = pytest.mark.skipif(ZONES is None, reason="this machine has no zone files")


@pytest.fixture(autouse=True)
def without_tz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)


@needs_zone_files
def test_a_localtime_that_is_a_copy_names_the_zone_of_its_data(tmp_path: Path) -> None:
    shutil.copy(Path(ZONES or "") / "Asia" / "Tokyo", tmp_path / "localtime")

    assert named_local_zone(tmp_path / "localtime", tmp_path / "timezone") == ZoneInfo("Asia/Tokyo")


@needs_zone_files
def test_a_localtime_that_is_a_link_names_the_zone_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "localtime").symlink_to(Path(ZONES or "") / "Europe" / "Paris")

    assert named_local_zone(tmp_path / "localtime", tmp_path / "timezone") == ZoneInfo("Europe/Paris")


def test_the_file_timezone_names_the_zone(tmp_path: Path) -> None:
    (tmp_path / "localtime").write_bytes(b"TZif of nobody")
    (tmp_path / "timezone").write_text("America/New_York\n", "utf-8")

    assert named_local_zone(tmp_path / "localtime", tmp_path / "timezone") == ZoneInfo("America/New_York")


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Asia/Kolkata")
    (tmp_path / "timezone").write_text("America/New_York\n", "utf-8")

    assert named_local_zone(tmp_path / "localtime", tmp_path / "timezone") == ZoneInfo("Asia/Kolkata")


def test_a_machine_that_names_no_zone_has_none(tmp_path: Path) -> None:
    (tmp_path / "localtime").write_bytes(b"TZif of nobody")

    assert named_local_zone(tmp_path / "localtime", tmp_path / "timezone") is None
    assert named_local_zone(tmp_path / "missing", tmp_path / "missing") is None
