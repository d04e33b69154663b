"""The family `replicas` of the control benchmark: its parts work as described, and its days are fair to the oracle."""

from itertools import pairwise
from random import Random

import pytest
from benchmarks.control.allowances import BookedWindow, PlainPeriod, WeightedCount, job_periods
from benchmarks.control.answers import Reading, Size
from benchmarks.control.levels import DAY, Steps, jobs, scaling, still
from benchmarks.control.penalties import EstimatedAdvice
from benchmarks.control.provider import PublicReadings
from benchmarks.control.replicas import Replicas
from benchmarks.control.run import ORACLE, Task, simulate
from benchmarks.control.scenarios import day_of
from hypothesis import given
from hypothesis import strategies as st

OPUS = "opus-4-6"
HALF_AN_HOUR = 1800.0
SIMPLE = ("semaphore, exact", "minus one on 429", "AIMD")


def pool(cap: Steps, *, most_refusals: int = 1, strangers: Steps | None = None) -> Replicas:
    return Replicas({OPUS: cap}, 2, most_refusals, 10.0, strangers)


# -- the count ---------------------------------------------------------------------------------


def test_the_router_fills_all_replicas_evenly_and_refuses_a_call_beyond_them() -> None:
    count = pool(still(4))

    accepted = [count.turn(name, OPUS, 0.0) for name in "abcde"]

    assert (accepted, count.calls[OPUS]) == ([True] * 4 + [False], {"a": 0, "b": 1, "c": 0, "d": 1})


def test_a_replica_that_refused_takes_no_call_for_a_while_and_counts_as_full() -> None:
    count = pool(still(4))
    for name in "abcde":
        count.turn(name, OPUS, 0.0)
    for name in "ab":
        count.turn_over(name, OPUS, 5.0)

    accepted = [count.turn(name, OPUS, 5.0) for name in "ab"]
    readings = [count.count(OPUS, now) for now in (9.9, 10.0)]

    assert (accepted, readings, count.calls[OPUS]) == ([True, False], [4, 3], {"c": 0, "d": 1, "a": 1})


def test_only_several_refusals_within_a_minute_leave_a_replica_out() -> None:
    count = pool(still(4), most_refusals=2)
    for name in "abcd":
        count.turn(name, OPUS, 0.0)

    def left_out_after(*times: float) -> bool:
        for now in times:
            count.turn("e", OPUS, now)
        return count.next_change(OPUS, times[-1]) == times[-1] + 10.0

    assert [left_out_after(0.0, 60.0), left_out_after(100.0)] == [False, True]


def test_the_only_replica_of_a_pool_is_never_left_out() -> None:
    count = pool(still(2))
    for name in "abc":
        count.turn(name, OPUS, 0.0)
    count.turn_over("a", OPUS, 1.0)

    assert count.turn("c", OPUS, 1.0)


def test_a_removed_replica_finishes_its_calls_and_takes_no_others() -> None:
    count = pool(Steps([(0.0, 4), (10.0, 2)]))
    for name in "abcd":
        count.turn(name, OPUS, 0.0)
    room = [count.can_turn("e", OPUS, 10.0)]
    for name in "bda":
        count.turn_over(name, OPUS, 11.0)
        room.append(count.can_turn("e", OPUS, 11.0))

    assert (room, count.count(OPUS, 11.0), count.own(OPUS)) == ([False, False, False, True], 1, 1)


def test_strangers_take_places_on_all_replicas_in_turn() -> None:
    count = pool(still(4), strangers=Steps([(0.0, 0), (10.0, 3)]))

    assert [(count.count(OPUS, now), count.next_change(OPUS, now)) for now in (0.0, 10.0)] == [
        (0, 10.0),
        (3, float("inf")),
    ]


def test_a_smaller_last_replica_has_only_the_places_that_the_cap_leaves() -> None:
    count = pool(still(3))

    assert [count.turn(name, OPUS, 0.0) for name in "abcd"] == [True, True, True, False]


# -- advice, rates and windows -----------------------------------------------------------------


def test_estimated_advice_is_too_short_as_often_as_too_long_and_at_least_a_second() -> None:
    advice = EstimatedAdvice(Random(1), number=4.0, sigma=0.5)

    known, unknown = ([advice.seconds(wait) or 0.0 for _ in range(1000)] for wait in (100.0, None))

    assert 450 < sum(seconds < 100.0 for seconds in known) < 550
    assert {1.0, 4.0, 9.0} < set(unknown)
    assert min(advice.seconds(0.01) or 0.0 for _ in range(100)) == 1.0


def test_a_weighted_count_fades_over_the_next_period() -> None:
    rate = WeightedCount(10.0)
    rate.take(10.0, 59.0)

    left = [rate.left(now) for now in (59.0, 60.0, 90.0)]
    rate.take(5.0, 90.0)

    assert (left, rate.left(90.0), rate.left(105.0), rate.left(300.0)) == ([0.0, 0.0, 5.0], 0.0, 2.5, 10.0)


@pytest.mark.parametrize(
    ("before", "now_used", "ready_at"), [(10.0, 0.0, 78.0), (10.0, 4.0, 102.0), (0.0, 10.0, 138.0)]
)
def test_a_weighted_count_is_ready_when_enough_has_faded(before: float, now_used: float, ready_at: float) -> None:
    """Ask for 3 of 10 at second 60: in this period if its own use leaves room for them, otherwise in the next one."""
    rate = WeightedCount(10.0, used=now_used, used_before=before, period=1)

    assert rate.ready_at(3.0, 60.0) == pytest.approx(ready_at)
    assert rate.left(rate.ready_at(3.0, 60.0)) == pytest.approx(3.0)


def test_a_weighted_count_is_full_when_both_periods_are_forgotten() -> None:
    rate = WeightedCount(10.0, seconds=30.0)
    untouched = rate.full_at(5.0)
    rate.take(1.0, 5.0)

    assert (untouched, rate.full_at(5.0), rate.full_at(31.0), rate.full_at(61.0)) == (5.0, 60.0, 60.0, 61.0)


def test_a_booked_window_closes_with_the_next_batch_and_reopens_empty() -> None:
    window = BookedWindow("5h", 10.0, [PlainPeriod(100.0, 100.0), PlainPeriod(200.0, 200.0)], every=30.0)
    window.charge(Size(15.0, 1.0), 5.0)

    assert [(window.is_open(now), window.used) for now in (29.0, 30.0, 99.0, 100.0)] == [
        (True, 0.0),
        (False, 15.0),
        (False, 15.0),
        (True, 0.0),
    ]


def test_a_job_resets_late_or_a_person_early_and_the_rest_is_announced_right() -> None:
    def delays(wrong: float) -> list[float]:
        periods = [period for seed in range(50) for period in job_periods(Random(seed), 18000.0, wrong)]
        return [period.ends_at - (period.announced(0.0) or 0.0) for period in periods]

    late = [delay for delay in delays(1.0) if delay > 0]
    early = [-delay for delay in delays(1.0) if delay <= 0]

    assert set(delays(0.0)) == {0.0}
    assert len(late) > len(early)
    assert max(late) <= 1800.0
    assert 600.0 <= min(early) < max(early) <= 5400.0


# -- the day -----------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_a_scaled_cap_begins_as_configured_and_stays_within_half_of_it(seed: int) -> None:
    steps = scaling(Random(seed), 24).steps

    assert steps[0] == (0.0, 24)
    assert all(before[0] < after[0] and before[1] != after[1] for before, after in pairwise(steps))
    assert 12 <= min(level for _, level in steps) < max(level for _, level in steps) <= 36


@given(st.integers(0, 2**32))
def test_a_stranger_with_a_job_has_the_same_number_of_sessions_each_time(seed: int) -> None:
    steps = jobs(Random(seed), 6).steps

    sizes = {level for _, level in steps}
    begins = [at for at, level in steps if level]
    assert len(sizes) == 2
    assert sizes <= {0, 2, 3, 4, 5, 6}
    assert sorted(steps) == steps
    assert all(3600.0 <= after - before <= 10800.0 for before, after in pairwise(begins))
    assert begins[-1] < DAY


def test_a_usage_reading_shows_calls_and_the_cap() -> None:
    provider = day_of("replicas", "steady", 1).provider
    for number in range(5):
        assert provider.turn(f"s{number}", OPUS, Size(100.0, 10.0), 0.0) is None

    assert PublicReadings(provider).usage(OPUS, 0.0) == Reading(5, 24)


@pytest.mark.parametrize("scenario", ["steady", "models"])
def test_a_semaphore_at_the_exact_cap_is_never_refused(scenario: str) -> None:
    figures = simulate(Task("replicas", scenario, 2, "semaphore, exact"), until=HALF_AN_HOUR)

    assert (figures.runs > 20, figures.by_kind) == (True, {})


@pytest.mark.parametrize("scenario", ["steady", "everything"])
def test_no_simple_policy_does_more_than_the_oracle(scenario: str) -> None:
    best = simulate(Task("replicas", scenario, 3, ORACLE), until=HALF_AN_HOUR)
    others = [simulate(Task("replicas", scenario, 3, policy), until=HALF_AN_HOUR) for policy in SIMPLE]

    assert best.by_kind == {}
    assert max(figures.work for figures in others) <= 1.005 * best.work
