"""A stated budget stops counting at the first use that is still out: the result is that of a count of all uses."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.gates.header_budget import BudgetKind, StatedBudget

START = 1_700_000_000.25
steps = st.lists(
    st.tuples(
        st.sampled_from(["use", "late use", "reading", "renewal"]),
        st.floats(min_value=0.0, max_value=40.0),
        st.integers(min_value=1, max_value=30),
    ),
    max_size=60,
)


def returned(budget: StatedBudget, now: float) -> float:
    """Return what has come back, from all uses."""
    return sum(use.amount for use in budget.uses if use.at + budget.span <= now)


@given(steps)
def test_counting_up_to_the_first_use_that_is_out_equals_counting_all(moves: list[tuple[str, float, int]]) -> None:
    # given a budget of 100 in a minute, each use of which comes back a minute later
    budget = StatedBudget.first(100.0, 100.0, START + 55.0, START)
    budget.kind = BudgetKind(bucket=1.0, period=1.0)
    now = START
    for kind, seconds, amount in moves:
        now += seconds

        # when it is used, read and renewed in any order, and uses are told late
        if kind == "use":
            budget.take(float(amount), now)
            budget.log_use(float(amount), now)
        elif kind == "late use":
            budget.log_use(float(amount), now - amount)
        elif kind == "reading":
            budget.on_reading(float(100 - amount), now + 55.0, budget.started_since(now - 20.0), now)
            budget.kind = BudgetKind(bucket=1.0, period=1.0)
        else:
            budget.renew(now)

        # then the uses are in order, and what is left is what a count of all of them gives, now and later
        assert [use.at for use in budget.uses] == sorted(use.at for use in budget.uses)
        assert budget.started_since(now - 20.0) == sum(use.amount for use in budget.uses if use.at > now - 20.0)
        for later in (now, now + 30.0, now + 65.0):
            assert budget.level(later) == min(100.0, budget.left + returned(budget, later))
