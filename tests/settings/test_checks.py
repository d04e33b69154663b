"""Sizes on disk, durations without an end and days, as people write them."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidDuration, InvalidInput
from paceline.settings.checks import budget_dollars, day, disk_size, duration_seconds, span_or_none


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


# -- Durations as people write them -----------------------------------------------------------------


WRITTEN = {
    "350ms": 0.35,
    "1s": 1.0,
    "30m": 1800.0,
    "5h": 18000.0,
    "2d": 172800.0,
    "1h30m": 5400.0,
    "1.5h": 5400.0,
    "1m 500ms": 60.5,
    " 90 s ": 90.0,
    "0s": 0.0,
}


@pytest.mark.parametrize(("text", "seconds"), WRITTEN.items())
def test_a_duration_is_read_as_written(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("number", [0, 1, 2.5])
def test_a_number_is_seconds(number: float) -> None:
    assert duration_seconds(number) == float(number)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "30", "ms", "1x", "-1s", "1m1h", "1s1s", "1 hour", "5H", "١s", "1e3s", "1.s", "9" * 400 + "s",
        True, None, [], -1, float("nan"), float("inf"), 1e300,
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidDuration):
        duration_seconds(wrong)


def test_zero_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(InvalidDuration, match="timeout"):
        duration_seconds("0s", "timeout", above_zero=True)


@given(
    days=st.integers(0, 99), hours=st.integers(0, 99), minutes=st.integers(0, 99), seconds=st.integers(0, 99),
    milliseconds=st.integers(0, 999),
)  # fmt: skip
def test_the_parts_add_up(days: int, hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s{milliseconds}ms"

    assert duration_seconds(text) == days * 86400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


@given(st.text() | st.floats() | st.integers())
def test_any_value_is_a_duration_or_refused(value: object) -> None:
    try:
        seconds = duration_seconds(value)
    except InvalidDuration:
        return
    assert seconds >= 0
