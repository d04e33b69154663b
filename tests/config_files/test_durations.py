"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config_files.durations import duration_seconds
from paceline.errors import InvalidDuration

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
