"""What the fake provider admits and refuses, by its rules alone: no server, time as a number."""

from paceline.simulation.provider.capacity import (
    AccountReading,
    Admission,
    ProviderCapacity,
    RateReading,
    Refusal,
    WindowReading,
)
from paceline.testing.provider import Burst, CapacityChange, Episode, Limits, Penalty, Scenario, Window


def admit(
    capacity: ProviderCapacity, *, key: str = "k", model: str = "opus", tokens: int = 10, now: float = 0.0
) -> str:
    """`served`, or the name of the refusal."""
    verdict = capacity.admit(key, model, tokens, now)
    return "served" if isinstance(verdict, Admission) else verdict.error


def test_a_hard_capacity_counts_running_requests_and_those_that_finished_within_the_lag() -> None:
    capacity = ProviderCapacity(Scenario(concurrency=1, lag=2.0), started_at=0.0)
    first = capacity.admit("k", "opus", 10, 0.0)
    assert isinstance(first, Admission)
    assert admit(capacity, now=1.0) == "429_concurrency"

    capacity.finish(first, 5.0)

    assert [
        (admit(capacity, now=6.9), capacity.in_use("k", 6.9)),
        capacity.in_use("k", 7.0),
        admit(capacity, now=7.0),
    ] == [
        ("429_concurrency", 1),
        0,
        "served",
    ]


def test_each_key_is_an_account_of_its_own_and_may_have_limits_of_its_own() -> None:
    capacity = ProviderCapacity(Scenario(concurrency=1, accounts={"big": Limits(concurrency=2)}), started_at=0.0)
    asked = ["small", "small", "other", "big", "big", "big"]
    assert [(key, admit(capacity, key=key)) for key in asked] == [
        ("small", "served"),
        ("small", "429_concurrency"),
        ("other", "served"),
        ("big", "served"),
        ("big", "served"),
        ("big", "429_concurrency"),
    ]


def test_each_model_that_matches_a_pattern_has_a_cap_of_its_own() -> None:
    capacity = ProviderCapacity(Scenario(model_concurrency={"opus-*": 1}), started_at=0.0)
    asked = ["opus-4-6", "opus-4-6", "opus-4-5", "sonnet-4-5", "sonnet-4-5"]
    assert [(model, admit(capacity, model=model)) for model in asked] == [
        ("opus-4-6", "served"),
        ("opus-4-6", "429_concurrency"),
        ("opus-4-5", "served"),
        ("sonnet-4-5", "served"),
        ("sonnet-4-5", "served"),
    ]


def test_capacity_changes_at_its_times() -> None:
    changes = (CapacityChange(at=10.0, concurrency=3), CapacityChange(at=20.0, concurrency=None))
    capacity = ProviderCapacity(Scenario(concurrency=2, changes=changes), started_at=100.0)
    assert [capacity.limit("k", now) for now in (100.0, 109.9, 110.0, 119.9, 120.0)] == [2, 2, 3, 3, None]


def test_requests_per_minute_are_a_bucket_that_refills_evenly() -> None:
    capacity = ProviderCapacity(Scenario(requests_per_minute=2), started_at=0.0)
    assert [admit(capacity, now=now) for now in (0.0, 0.0, 0.0, 29.0, 30.0, 31.0)] == [
        "served",
        "served",
        "429_requests",
        "429_requests",
        "served",
        "429_requests",
    ]


def test_tokens_per_minute_refuse_a_request_for_as_long_as_its_tokens_are_missing() -> None:
    capacity = ProviderCapacity(Scenario(tokens_per_minute=600), started_at=0.0)
    assert admit(capacity, tokens=500, now=0.0) == "served"

    refusal = capacity.admit("k", "opus", 200, 0.0)

    assert isinstance(refusal, Refusal)
    assert (refusal.error, refusal.facts.retry_after) == ("429_tokens", 10.0)
    assert admit(capacity, tokens=200, now=10.0) == "served"


def test_what_headers_may_tell() -> None:
    window = Window(name="5h", seconds=100.0, requests=4)
    capacity = ProviderCapacity(
        Scenario(requests_per_minute=60, tokens_per_minute=600, windows=(window,)), started_at=0.0
    )
    admit(capacity, tokens=100, now=0.0)
    assert capacity.read("k", "opus", 0.0) == AccountReading(
        requests=RateReading(limit=60, remaining=59, full_at=1.0),
        tokens=RateReading(limit=600, remaining=500, full_at=10.0),
        windows=(WindowReading(name="5h", seconds=100.0, used_ratio=0.25, resets_at=100.0),),
    )


def test_a_window_begins_with_its_first_request_and_reopens_when_its_time_is_over() -> None:
    capacity = ProviderCapacity(Scenario(windows=(Window(seconds=100.0, requests=2),)), started_at=0.0)
    assert [admit(capacity, now=now) for now in (50.0, 60.0, 70.0, 149.0, 150.0)] == [
        "served",
        "served",
        "429_unified",
        "429_unified",
        "served",
    ]


def test_a_window_is_spent_by_tokens_too_and_only_for_its_models() -> None:
    window = Window(name="7d_opus", tokens=100, models="opus*")
    capacity = ProviderCapacity(Scenario(windows=(window,)), started_at=0.0)
    asked = [("opus", 60), ("opus", 60), ("opus", 1), ("sonnet", 500)]
    assert [admit(capacity, model=model, tokens=tokens) for model, tokens in asked] == [
        "served",
        "served",
        "429_unified",
        "served",
    ]


def test_a_window_that_reopens_late_announces_the_time_it_missed() -> None:
    capacity = ProviderCapacity(Scenario(windows=(Window(seconds=100.0, requests=1, late=20.0),)), started_at=0.0)
    admit(capacity, now=0.0)

    refusal = capacity.admit("k", "opus", 1, 110.0)

    assert isinstance(refusal, Refusal)
    assert (refusal.facts.resets_at, refusal.facts.retry_after) == (100.0, 0.0)
    assert admit(capacity, now=120.0) == "served"


def test_of_two_spent_windows_the_later_reset_is_announced() -> None:
    windows = (Window(name="5h", seconds=10.0, requests=1), Window(name="7d", seconds=99.0, requests=1))
    capacity = ProviderCapacity(Scenario(windows=windows), started_at=0.0)
    admit(capacity, now=0.0)

    refusal = capacity.admit("k", "opus", 1, 1.0)

    assert isinstance(refusal, Refusal)
    assert (refusal.facts.window, refusal.facts.resets_at) == ("7d", 99.0)


def test_too_many_starts_at_once_are_refused_whatever_the_capacity() -> None:
    capacity = ProviderCapacity(Scenario(burst=Burst(starts=2, seconds=1.0)), started_at=0.0)
    assert [admit(capacity, now=now) for now in (0.0, 0.5, 0.9, 1.0, 1.2)] == [
        "served",
        "served",
        "429_starts",
        "served",
        "429_starts",
    ]


def test_a_429_costs_a_penalty_that_its_own_refusals_do_not_prolong() -> None:
    scenario = Scenario(burst=Burst(starts=1, seconds=1.0), penalty=Penalty(seconds=10.0))
    capacity = ProviderCapacity(scenario, started_at=0.0)
    assert [admit(capacity, now=now) for now in (0.0, 0.5, 9.0, 10.5)] == [
        "served",
        "429_starts",
        "429_retry_after",
        "served",
    ]


def test_a_penalty_may_slow_down_instead() -> None:
    scenario = Scenario(burst=Burst(starts=1, seconds=1.0), penalty=Penalty(seconds=10.0, slowdown=4.0))
    capacity = ProviderCapacity(scenario, started_at=0.0)
    verdicts = [capacity.admit("k", "opus", 1, now) for now in (0.0, 0.5, 2.0, 11.0)]
    assert [verdict.slowdown if isinstance(verdict, Admission) else None for verdict in verdicts] == [
        1.0,
        None,
        4.0,
        1.0,
    ]


def test_an_overload_episode_refuses_everybody_for_its_time() -> None:
    capacity = ProviderCapacity(Scenario(overloads=(Episode(start=10.0, seconds=5.0),)), started_at=100.0)
    assert [admit(capacity, now=now) for now in (109.9, 110.0, 114.9, 115.0)] == ["served", "529", "529", "served"]
