"""The plain numbers behind `/metrics`: what falls in which bucket, and how many names have counts of their own."""

import pytest

from paceline.core.signals import Overloaded, RateLimited
from paceline.metrics import MOST_NAMES, OTHER, Histogram, LabelledCounter, MetricsRegistry


def test_an_observation_falls_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((0.1, 1.0))

    for seconds in (0.05, 0.1, 0.5, 1.0, 30.0):
        histogram.observe(seconds)

    assert histogram.counts == [2, 2, 1]
    assert histogram.count == 5
    assert histogram.total == 31.65


def test_names_beyond_the_most_are_counted_together() -> None:
    tally = LabelledCounter("scope", "direction")

    for number in range(MOST_NAMES + 7):
        tally.add(f"provider-{number}", "down")
        tally.add(f"provider-{number}", "up", by=2)

    assert len({name for name, _ in tally.values}) == MOST_NAMES + 1
    assert tally.values[OTHER, "down"] == 7
    assert tally.values[OTHER, "up"] == 14
    assert tally.values["provider-0", "up"] == 2


def test_a_name_that_has_its_own_count_keeps_it_when_there_is_no_place_left() -> None:
    tally = LabelledCounter("scope", "cause")
    for number in range(MOST_NAMES):
        tally.add(f"provider-{number}", "rate_limited")

    tally.add("provider-3", "overloaded")

    assert tally.values["provider-3", "overloaded"] == 1


def test_a_grant_is_counted_with_its_wait() -> None:
    metrics = MetricsRegistry()

    metrics.granted(0.0)
    metrics.granted(2.0)

    assert (metrics.grants, metrics.wait_seconds.count, metrics.wait_seconds.total) == (2, 2, 2.0)


def test_a_block_is_timed_also_when_it_fails() -> None:
    histogram = Histogram((3600.0,))

    with pytest.raises(ZeroDivisionError), histogram.timed():
        _ = 1 / 0

    assert histogram.counts == [1, 0]


def test_every_refusal_for_going_too_fast_is_counted_where_it_reaches() -> None:
    metrics = MetricsRegistry()

    metrics.reported("anthropic/max-1/claude-opus-4-6", RateLimited())
    metrics.reported("anthropic/max-1/opus-4-6", RateLimited(reach="account"))
    metrics.reported("anthropic/max-1/opus-4-6", RateLimited())
    metrics.reported("anthropic/max-1/opus-4-6", Overloaded())

    assert metrics.rate_limited.values == {("anthropic/max-1/opus-4-6",): 2, ("anthropic/max-1",): 1}
