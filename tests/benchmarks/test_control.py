"""The simulated days of the control benchmark are repeatable, fair to the oracle and closed to all other policies."""

from pathlib import Path
from random import Random

import pytest
from benchmarks.control.allowances import RollingWindow, SlidingMinute
from benchmarks.control.answers import Refusal, Size
from benchmarks.control.counts import Census, FlightCount, Leases, Utilisation
from benchmarks.control.families import FAMILIES, TUNED, UNSEEN
from benchmarks.control.fleet import Campaign, Session
from benchmarks.control.levels import Steps, still
from benchmarks.control.oracle import Oracle
from benchmarks.control.penalties import JitteredAdvice, Strikes
from benchmarks.control.published_limits import AdaptiveConnections
from benchmarks.control.report import Cell, write_table
from benchmarks.control.run import ORACLE, POLICIES, Figures, Task, simulate
from benchmarks.control.scenarios import SCENARIOS, day_of

HALF_AN_HOUR = 1800.0
CELLS = [(family, list(SCENARIOS)[number % len(SCENARIOS)]) for number, family in enumerate(FAMILIES)]
"""One cell for each family. `make bench-control` runs them all."""
OPUS = "opus-4-6"


def test_the_unseen_family_is_none_of_the_tuned_ones() -> None:
    assert UNSEEN not in TUNED
    assert {*TUNED, UNSEEN} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seeded_day_is_the_same_each_time(family: str) -> None:
    task = Task(family, "everything", 7, "AIMD")

    assert simulate(task, until=HALF_AN_HOUR) == simulate(task, until=HALF_AN_HOUR)


@pytest.mark.parametrize(("family", "scenario"), CELLS)
def test_the_oracle_is_refused_by_chance_only(family: str, scenario: str) -> None:
    figures = simulate(Task(family, scenario, 3, ORACLE), until=HALF_AN_HOUR)

    assert figures.runs > 20
    assert figures.refused_per_1000 <= 5.0


def test_the_oracle_keeps_a_delayed_turn_while_its_window_is_closed() -> None:
    figures = simulate(Task("reserved", "window", 3, ORACLE), until=8 * HALF_AN_HOUR)

    assert figures.by_kind == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_policy_but_the_oracle_gets_hold_of_the_provider(family: str) -> None:
    day = day_of(family, "everything", 5)
    policies = [make(day.starting_caps, None, 5) for make in POLICIES.values()]

    assert all(day.provider not in vars(policy).values() for policy in policies)
    assert day.provider in vars(Oracle(day.provider)).values()


def test_a_census_accepts_a_burst_beyond_the_cap_and_refuses_its_youngest_mid_run() -> None:
    count = Census({OPUS: still(2)}, every=10.0)

    accepted = [count.start(name, OPUS, 1.0) for name in "abc"]
    turns = [count.turn(name, OPUS, 11.0) for name in "abc"]

    assert (accepted, turns) == ([True, True, True], [True, True, False])


def test_a_lease_outlives_its_session_by_the_idle_time() -> None:
    count = Leases({OPUS: still(1)}, idle_seconds=5.0)
    count.turn("a", OPUS, 0.0)
    count.turn_over("a", OPUS, 10.0)
    count.release("a", OPUS, 10.0)

    assert [count.can_turn("b", OPUS, now) for now in (14.9, 15.0)] == [False, True]


def test_a_request_in_flight_may_not_fit_after_the_last_one_of_its_session() -> None:
    count = FlightCount({OPUS: still(1)}, lag=lambda: 2.0)
    count.turn("a", OPUS, 0.0)
    count.turn_over("a", OPUS, 10.0)

    assert [count.can_turn("a", OPUS, now) for now in (10.0, 12.0)] == [False, True]


def test_a_meter_of_service_lets_more_calls_than_the_cap_run_until_it_is_full() -> None:
    count = Utilisation({OPUS: still(2)}, estimate=10.0, depth_seconds=15.0)

    accepted = [count.turn(name, OPUS, 0.0) for name in "abcd"]
    later = [count.can_turn("d", OPUS, now) for now in (0.0, 0.1)]

    assert (accepted, later) == ([True, True, True, False], [False, True])


def test_a_meter_of_service_is_charged_the_real_length_of_a_call_at_its_end() -> None:
    """Drain 2 seconds of service per second, and after 30 s only 1: a call of 45 s charges 35 more than estimated."""
    count = Utilisation({OPUS: Steps([(0.0, 2), (30.0, 1)])}, estimate=10.0, depth_seconds=15.0)
    count.turn("a", OPUS, 0.0)
    count.turn_over("a", OPUS, 45.0)

    assert [count.can_turn("a", OPUS, now) for now in (45.0, 65.0, 65.1)] == [False, False, True]


def test_a_meter_of_service_reads_as_a_full_cap_while_it_is_full() -> None:
    count = Utilisation({OPUS: still(4)}, estimate=10.0, depth_seconds=5.0, strangers=still(1))
    readings = [count.count(OPUS, 0.0)]
    for name in "ab":
        count.turn(name, OPUS, 0.0)
        readings.append(count.count(OPUS, 0.0))

    assert (readings, count.count(OPUS, 1.0)) == ([1, 2, 4], 3)


def test_only_many_refusals_within_a_minute_lock_a_model() -> None:
    penalty = Strikes(most=3, seconds=20.0)

    def locked_after(*times: float) -> float:
        for now in times:
            penalty.refused(OPUS, now, is_shut=now < penalty.shut_until(OPUS, is_start=False))
        return penalty.shut_until(OPUS, is_start=False)

    assert [locked_after(0.0, 30.0, 60.0), locked_after(61.0), locked_after(70.0, 82.0)] == [0.0, 81.0, 81.0]


def test_jittered_advice_is_never_shorter_than_the_wait_nor_half_longer() -> None:
    advice = JitteredAdvice(Random(1), number=4.0)

    known, unknown = ([advice.seconds(wait) or 0.0 for _ in range(100)] for wait in (20.0, None))

    assert 20.0 <= min(known) < max(known) <= 30.0
    assert 4.0 <= min(unknown) < max(unknown) <= 6.0


@pytest.mark.parametrize(("announces_last", "announced"), [(False, 100.0), (True, 130.0)])
def test_a_rolling_window_returns_slice_by_slice(announces_last: bool, announced: float) -> None:
    window = RollingWindow("5h", 30.0, length=100.0, slice_seconds=10.0, announces_last=announces_last)
    for now in (1.0, 9.0, 35.0):
        window.charge(Size(10.0, 1.0), now)

    opened = [window.is_open(now) for now in (35.0, 99.9)]
    said = window.announced(99.9)
    left = [window.budget - window.used for now in (100.0, 129.9, 130.0) if window.is_open(now)]

    assert (opened, said, left) == ([False, False], announced, [20.0, 20.0, 30.0])


def test_a_sliding_sum_may_be_over_less_than_a_minute() -> None:
    rate = SlidingMinute(2.0, seconds=20.0)
    rate.take(1.0, 0.0)
    rate.take(1.0, 5.0)

    assert (rate.ready_at(1.0, 6.0), rate.full_at(6.0), rate.left(20.0)) == (20.0, 25.0, 1.0)


def test_a_moved_reset_is_announced_one_window_later_although_it_reopens_within_minutes() -> None:
    """Find a moving period of a family that has them and refuse a turn on both sides of its announced end."""
    window = next(
        quota
        for seed in range(20)
        for quota in day_of("flights", "late", seed).provider.rules.windows
        if quota.reopenings()[0] > (quota.announced(0.0) or 0.0)
    )
    announced = window.announced(0.0)
    assert announced is not None
    window.used = window.budget

    assert window.announced(announced) == announced + 5 * 3600.0
    assert not window.is_open(announced)
    assert window.is_open(announced + 1500.0)


def test_a_start_says_nothing_where_only_requests_are_counted() -> None:
    provider = day_of("leases", "steady", 1).provider
    starts = [provider.start(f"s{number}", OPUS, 0.0) for number in range(100)]
    turns = [provider.turn(f"s{number}", OPUS, Size(100.0, 10.0), 0.0) for number in range(100)]

    assert starts == [None] * 100
    assert sum(isinstance(turn, Refusal) for turn in turns) == 100 - 24


def test_adaptive_connections_double_cut_once_per_episode_and_then_grow_by_a_twentieth() -> None:
    policy = AdaptiveConnections({OPUS: 24}, seed=1)
    campaign = Campaign("mid/opus", 1, OPUS)
    sessions = [Session(f"s{number}", campaign, OPUS, 100.0, number, 0.0) for number in range(100)]
    refusal = Refusal("cap")

    def finish_round(now: float) -> float:
        policy.live[OPUS] = int(policy.limits[OPUS])
        for session in sessions[: policy.live[OPUS]]:
            policy.ask_turn(session, now)
            policy.turn_done(session, 10.0, now)
        return policy.limits[OPUS]

    doubled = finish_round(0.0)
    policy.turn_refused(sessions[98], refusal, 10.0)
    policy.turn_refused(sessions[99], refusal, 20.0)
    limits = [doubled, policy.limits[OPUS], finish_round(24.0), finish_round(26.0)]

    assert limits == [40, 30, 30, 35]


def test_adaptive_connections_do_not_grow_while_a_fifth_of_them_is_unused() -> None:
    policy = AdaptiveConnections({OPUS: 24}, seed=1)
    session = Session("s", Campaign("mid/opus", 1, OPUS), OPUS, 100.0, 1, 0.0)
    policy.live[OPUS] = 15
    for _ in range(20):
        policy.ask_turn(session, 0.0)
        policy.turn_done(session, 10.0, 0.0)

    assert policy.limits[OPUS] == 20


def test_the_table_marks_the_unseen_family_and_shows_the_frontier_where_a_target_is_missed(tmp_path: Path) -> None:
    def cell(policy: str, share: float, refused: float) -> Cell:
        figures = Figures(1.0, refused, 0.0, 10, 1.0, {0: (1.0, 2.0)}, None, None, {})
        return Cell(UNSEEN, "steady", 1000, policy, False, share, figures)

    cells = [cell("paceline", 0.9, 2.0), cell("AIMD", 0.8, 500.0), cell("inspect_ai", 0.95, 300.0)]
    write_table(cells, tmp_path / "table.md")

    lines = (tmp_path / "table.md").read_text().splitlines()
    assert (lines[2], lines[6]) == (
        "| replicas (never tuned on) | steady | 1 | **90.0** / 2.0 | 95 / 3 |  | 99.5 / 0.2 |",
        "| replicas (never tuned on) | steady | blind | paceline 90.0 / 2.0; inspect_ai 95.0 / 300.0 |",
    )
