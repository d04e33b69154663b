"""When a limit ends: every way of writing it, across midnight, year end and the nights when clocks change."""

import pytest
from tests.detect.each_row import each_row
from tests.detect.scoring import utc

from paceline.core.signals import QuotaClosed
from paceline.detect import Observation, detect
from paceline.detect.times import (
    discount_implausible,
    epoch_seconds,
    find_resets,
    parse_duration,
    parse_instant,
    parse_retry_after,
    read_duration,
    read_moment,
    resolve,
    zone_named,
)


def ends(text: str, *, seen_at: float, tz: str = "UTC") -> float | None:
    found = find_resets(text, seen_at=seen_at, tz=tz)
    return found[0].time(seen_at) if found else None


# --- clocks --------------------------------------------------------------------------------------


@each_row(
    ("text", "tz", "expected"),
    [
        ("resets 3pm (Europe/Paris)", "UTC", utc(2026, 7, 1, 13, 0)),
        ("resets 3pm", "America/New_York", utc(2026, 7, 1, 19, 0)),
        ("resets at 15:30", "UTC", utc(2026, 7, 1, 15, 30)),
        ("try again at 3:51 PM.", "UTC", utc(2026, 7, 1, 15, 51)),
        ("resets 12am (UTC)", "UTC", utc(2026, 7, 2, 0, 0)),
        ("resets 12pm (UTC)", "UTC", utc(2026, 7, 1, 12, 0)),
        ("resets 9am (UTC)", "UTC", utc(2026, 7, 2, 9, 0)),
        ("Access resets at 10:57 PM GMT-3.", "UTC", utc(2026, 7, 2, 1, 57)),
        ("Access resets at 12:00 AM PDT.", "UTC", utc(2026, 7, 2, 7, 0)),
        ("will reset at 1pm (Etc/GMT+5).", "UTC", utc(2026, 7, 1, 18, 0)),
        ("resets at midnight UTC", "Asia/Tokyo", utc(2026, 7, 2, 0, 0)),
        ("resets tomorrow at 9am", "UTC", utc(2026, 7, 2, 9, 0)),
        ("resets 3 p.m.", "UTC", utc(2026, 7, 1, 15, 0)),
        ("resets 3pm (Nowhere/Atall)", "UTC", utc(2026, 7, 1, 15, 0)),
    ],
)
def test_a_clock_time_is_the_next_one_in_its_zone(text: str, tz: str, expected: float) -> None:
    assert ends(text, seen_at=utc(2026, 7, 1, 10, 0), tz=tz) == expected


def test_ten_past_midnight_read_before_midnight_is_in_twenty_minutes() -> None:
    seen_at = utc(2026, 12, 31, 23, 50)
    assert ends("Resets at 00:10", seen_at=seen_at) == seen_at + 20 * 60


def test_a_clock_time_that_has_just_passed_means_now_and_not_tomorrow() -> None:
    seen_at = utc(2026, 7, 1, 15, 3)
    assert ends("resets 3pm", seen_at=seen_at) == utc(2026, 7, 1, 15, 0)


def test_a_clock_time_that_passed_before_midnight_still_means_now() -> None:
    seen_at = utc(2026, 7, 2, 0, 1)
    assert ends("resets 11:58pm", seen_at=seen_at) == utc(2026, 7, 1, 23, 58)


def test_a_time_that_the_clocks_skip_is_shifted_forward() -> None:
    # Given the night of 29 March 2026, when Berlin goes from 2:00 to 3:00
    seen_at = utc(2026, 3, 28, 23, 0)
    # Then 2:30, which does not exist, is half past three
    assert ends("resets 2:30am (Europe/Berlin)", seen_at=seen_at) == utc(2026, 3, 29, 1, 30)


def test_a_time_that_occurs_twice_is_the_later_one() -> None:
    # Given the night of 25 October 2026, when Berlin has 2:30 twice
    seen_at = utc(2026, 10, 24, 22, 0)
    assert ends("resets 2:30am (Europe/Berlin)", seen_at=seen_at) == utc(2026, 10, 25, 1, 30)


# --- dates ---------------------------------------------------------------------------------------


@each_row(
    ("text", "expected"),
    [
        ("resets Dec 2, 7pm (Europe/Moscow)", utc(2026, 12, 2, 16, 0)),
        ("resets Feb 17 at 2pm (Asia/Seoul)", utc(2027, 2, 17, 5, 0)),
        ("try again at Jul 5th, 2026 8:19 PM", utc(2026, 7, 5, 20, 19)),
        ("reset on April 20, 2026 at 2:00 AM", utc(2026, 4, 20, 2, 0)),
        ("reset at 2026-07-30 16:11:46 +0800 CST", utc(2026, 7, 30, 8, 11, 46)),
        ("reset at 2026-07-30T16:11:46Z", utc(2026, 7, 30, 16, 11, 46)),
        ("regain access on 2026-08-01 at 00:00 UTC", utc(2026, 8, 1)),
        ("reset at 07-27 09:25:00 UTC", utc(2026, 7, 27, 9, 25)),
        ("resets 17:33 on 5 May", utc(2027, 5, 5, 17, 33)),
        ("resets Mon 12:00am", utc(2026, 7, 6)),
        ("resets Wednesday at 9am", utc(2026, 7, 8, 9)),
        ("será redefinido em 10 de jul. de 2026, 11:52", utc(2026, 7, 10, 11, 52)),
        ("réinitialisé le 3 juil. 2026 à 11:43", utc(2026, 7, 3, 11, 43)),
        ("reset on 9월 13일 오전 10:36", utc(2026, 9, 13, 10, 36)),
        ("2026年7月3日 下午 1:43 重置", utc(2026, 7, 3, 13, 43)),
        ("将在 2026-08-25 07:41:44 重置", utc(2026, 8, 25, 7, 41, 44)),
    ],
)
def test_a_date_is_read_in_every_order_and_language(text: str, expected: float) -> None:
    assert ends(text, seen_at=utc(2026, 7, 1, 10, 0)) == expected


@each_row("text", ["cycle ends on 11/17/2026", "cycle ends on 11/17/26", "resets on November 17, 2026"])
def test_a_date_without_a_time_is_the_end_of_that_day(text: str) -> None:
    at = ends(text, seen_at=utc(2026, 11, 1))
    assert at is not None
    assert utc(2026, 11, 17, 23, 59, 59) <= at <= utc(2026, 11, 18)


def test_a_date_without_a_year_may_lie_two_days_back() -> None:
    assert ends("resets Dec 31, 8pm", seen_at=utc(2027, 1, 1, 12)) == utc(2026, 12, 31, 20)


def test_a_date_without_a_year_further_back_is_next_year() -> None:
    assert ends("resets Dec 25, 8pm", seen_at=utc(2027, 1, 1, 12)) == utc(2027, 12, 25, 20)


def test_the_29th_of_february_waits_for_a_leap_year() -> None:
    assert ends("resets Feb 29 at 8am", seen_at=utc(2026, 3, 1)) == utc(2028, 2, 29, 8)


# --- durations -----------------------------------------------------------------------------------


@each_row(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("20ms", 0.02),
        ("2m52.8s", 172.8),
        ("108h48m29s", 391709),
        ("391609.79s", 391609.79),
        ("0s", 0),
        ("45", 45),
        ("1.5", 1.5),
        ("5 days 22 hours 11 minutes", 511860),
        ("4hr 19min", 15540),
        ("29d 31m", 2507460),
        ("1 day, 3 hours and 2 minutes", 97320),
        ("70 seconds", 70),
        ("3 小时", 10800),
        ("soon", None),
        ("-1", None),
        ("NaN", None),
        ("inf", None),
        ("", None),
        ("5 apples", None),
    ],
)
def test_a_duration_is_read_in_every_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_units_that_do_not_get_smaller_are_two_durations() -> None:
    assert read_duration("2 minutes 3 hours") == (120.0, len("2 minutes"))


@each_row(
    "text",
    [
        "✻ Cogitated for 3m 51s",
        "retried 5 times (total retry wait time: 16.15 seconds)",
        "Done (30 tool uses · 51.0k tokens · 4m 41s)",
        "wait for limits to reset (every 5h and every week.)",
        "try again in a few minutes",
        "try again later",
        "connection limit reached (60 minutes)",
    ],
)
def test_a_time_that_is_no_reset_is_none(text: str) -> None:
    assert find_resets(text, seen_at=0.0, tz="UTC") == []


def test_the_servers_wait_comes_before_the_clients_own() -> None:
    found = find_resets("Try again in 4 seconds.; retrying 1/5 in 209ms", seen_at=0.0, tz="UTC")
    assert [(reset.after, reset.own) for reset in found] == [(4.0, False), (0.209, True)]


def test_of_the_clients_own_waits_the_last_counts() -> None:
    found = find_resets("Retrying x in 2.0 seconds\nRetrying x in 8.0 seconds", seen_at=0.0, tz="UTC")
    assert found[0].after == 8.0


# --- epochs and instants -------------------------------------------------------------------------


@each_row("number", [1_788_879_437.0, 1_788_879_437_000.0, 1_788_879_437_000_000.0])
def test_an_epoch_is_never_read_in_the_wrong_unit(number: float) -> None:
    assert epoch_seconds(number) == 1_788_879_437.0


@each_row("number", [0.0, 60.0, 86400.0, 31_536_000.0])
def test_a_small_number_is_no_epoch(number: float) -> None:
    assert epoch_seconds(number) is None


@each_row(
    ("text", "expected"),
    [
        ("Thu, 01 Jan 2026 00:03:00 GMT", utc(2026, 1, 1, 0, 3)),
        ("2026-01-01T00:00:30Z", utc(2026, 1, 1, 0, 0, 30)),
        ("2026-01-01T02:00:30.250+02:00", utc(2026, 1, 1, 0, 0, 30) + 0.25),
        ("1767225630", utc(2026, 1, 1, 0, 0, 30)),
        ("Invalid Date String", None),
        ("3pm", None),
    ],
)
def test_an_instant_is_read_in_every_form(text: str, expected: float | None) -> None:
    assert parse_instant(text, seen_at=0.0, tz="UTC") == expected


def test_a_retry_after_that_is_no_time_is_none() -> None:
    for text in ("Invalid Date String", "", "NaN", "-5", "soon"):
        assert parse_retry_after(text, seen_at=0.0, rule="x") is None


# --- trust ---------------------------------------------------------------------------------------


def quota(text: str, seen_at: float) -> QuotaClosed:
    signals = detect(Observation(provider="claude-code", channel="screen", text=text, seen_at=seen_at))
    assert isinstance(signals[0], QuotaClosed)
    return signals[0]


def test_a_reset_in_the_past_is_kept_and_hardly_believed() -> None:
    signal = quota("Claude AI usage limit reached|1748268000", utc(2026, 7, 1))
    assert (signal.resets_at, signal.confidence <= 0.2) == (1748268000.0, True)


def test_a_reset_in_31_years_is_kept_and_hardly_believed() -> None:
    at = utc(2057, 7, 1)
    signal = quota(f"Claude AI usage limit reached|{int(at)}", utc(2026, 7, 1))
    assert (signal.resets_at, signal.confidence <= 0.2) == (at, True)


def test_a_named_zone_is_trusted_more_than_the_machines() -> None:
    seen_at = utc(2026, 7, 1)
    named, local = (quota(f"You've hit your limit · resets 3pm{zone}", seen_at) for zone in (" (UTC)", ""))
    assert named.confidence > local.confidence


def test_a_plausible_reset_keeps_its_confidence() -> None:
    reset = find_resets("try again in 3 hours", seen_at=0.0, tz="UTC")[0]
    assert discount_implausible(reset, 0.0) == reset


@each_row("name", ["", "Mars/Phobos", "../etc/passwd", "x" * 300, "GMT+99"])
def test_a_zone_that_does_not_exist_is_none(name: str) -> None:
    assert zone_named(name) is None


def test_a_moment_far_outside_of_time_is_none() -> None:
    read = read_moment("3pm")
    assert read is not None
    assert resolve(read[0], seen_at=1e300, tz="UTC") is None


@each_row("text", ["resets Friday", "resets on Fri"])
def test_a_weekday_without_a_time_is_the_end_of_that_day(text: str) -> None:
    at = ends(text, seen_at=utc(2026, 7, 1, 10, 0))
    assert at is not None
    assert utc(2026, 7, 3, 23, 59, 59) <= at <= utc(2026, 7, 4)


def test_a_log_that_repeats_itself_is_read_at_its_end() -> None:
    line = "agent executor error: You have exhausted your capacity on this model. Your quota will reset after {}."
    text = "\n".join(line.format(wait) for wait in ("42h1m20s", "42h0m5s"))
    assert ends(text, seen_at=0.0) == 42 * 3600 + 5


def test_the_first_of_two_different_waits_is_the_servers() -> None:
    assert ends("Your quota will reset after 54s. (reset after 1s)", seen_at=0.0) == 54.0


@each_row(
    ("text", "expected"),
    [
        ("You can resume using this model at 7/2/2026, 3:14:05 PM.", utc(2026, 7, 2, 15, 14, 5)),
        ("Usage limit reached · Auto-resuming at 20:59", utc(2026, 7, 1, 20, 59)),
    ],
)
def test_when_work_resumes_is_a_reset(text: str, expected: float) -> None:
    assert ends(text, seen_at=utc(2026, 7, 1, 10, 0)) == expected
