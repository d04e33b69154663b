"""The kind of a budget, told by the resets that were stated."""

from collections.abc import Sequence

from paceline.core.gates.header_budget import StatedBudget

START = 1_000.25


def kind_after(readings: Sequence[tuple[float, float, float]], used_at: list[float] | None = None) -> str:
    """Return the kind after readings of (seconds, left of 60, seconds until the reset), with uses just before each."""
    (at, left, reset), *others = readings
    budget = StatedBudget.first(left, 60.0, START + at + reset, START + at)
    for number, (at, left, reset) in enumerate(others):
        budget.take(0.0, START + (at if used_at is None else used_at[number]))
        budget.on_reading(left, START + at + reset, None, START + at)
    return budget.kind.name


def test_a_bucket_states_a_later_reset_the_more_was_used() -> None:
    assert kind_after([(0, 50, 10), (5, 30, 30), (10, 45, 15), (15, 10, 50)]) == "bucket"


def test_a_period_states_the_same_reset_whatever_was_used() -> None:
    assert kind_after([(0, 50, 60), (5, 30, 55), (10, 29, 50), (15, 10, 45)]) == "period"


def test_a_sum_states_a_reset_one_period_after_the_last_use() -> None:
    used_at = [4.0, 9.0, 9.0, 25.0]
    readings = [(0, 50, 60.0), (5, 30, 59.0), (10, 29, 59.0), (15, 29, 54.0), (25, 20, 60.0)]
    assert kind_after(readings, used_at) == "sum"


def test_a_few_readings_are_enough_to_see_that_a_kind_was_mistaken() -> None:
    as_period = [(float(at), 50.0 - at, 60.0 - at) for at in range(0, 40, 10)]
    as_bucket = [(40.0 + 5 * turn, 60.0 - used, float(used)) for turn, used in enumerate((20, 35, 50, 30) * 6)]
    assert kind_after(as_period) == "period"
    assert kind_after(as_period + as_bucket) == "bucket"
