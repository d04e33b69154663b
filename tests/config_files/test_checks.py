"""Sizes on disk, durations without an end and days, as people write them."""

import tomllib

import pytest

from paceline.config_files.checks import budget_dollars, day, disk_size, span_or_none
from paceline.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("5GB", 5 * 10**9),
        ("500 MB", 500 * 10**6),
        ("1.5GB", 1_500_000_000),
        ("64kB", 64_000),
        ("1GiB", 1 << 30),
        (4096, 4096),
        ("none", None),
    ],
)
def test_a_size_is_read_as_people_write_it(written: object, size: int | None) -> None:
    assert disk_size(written) == size


@pytest.mark.parametrize("wrong", ["", "5", "5 bytes", "-1GB", "0GB", "GB", "1e3GB", 0, -1, 1.5, True, None, "9" * 30])
def test_what_is_no_size_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput, match='must be a size such as "500MB" or "5GB", or "none" for unlimited'):
        disk_size(wrong)


def test_a_retention_is_a_duration_or_none() -> None:
    assert (span_or_none("14d"), span_or_none("none"), span_or_none(60)) == (14 * 86400.0, None, 60.0)
    with pytest.raises(InvalidInput, match='or "none" to keep it forever'):
        span_or_none("0s")


def test_dollars_are_read_as_people_write_them() -> None:
    assert [budget_dollars(text) for text in ("$30", " $2.50", "$1,000")] == [30.0, 2.5, 1000.0]


@pytest.mark.parametrize("written", ["2027-03-01", '"2027-03-01"', "2027-03-01T00:00:00Z", "2027-03-01T01:00:00+01:00"])
def test_a_day_begins_in_utc_and_a_time_has_its_zone(written: str) -> None:
    assert day(tomllib.loads(f"at = {written}")["at"]) == 1_803_859_200.0


@pytest.mark.parametrize("wrong", ["2027-03-01T08:00:00", '"soon"', '"2027-02-30"', "20270301", "08:00:00", "true"])
def test_what_is_no_day_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="must be a day, such as 2027-03-01, or a time with its zone"):
        day(tomllib.loads(f"at = {wrong}")["at"])
