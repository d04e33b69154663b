"""Budgets of keys: announced once at 80 % and at their end, and over in their next period."""

import pytest

from paceline.events import Event
from paceline.gateway.errors import GatewayError
from paceline.gateway.key_budgets import KeyBudgets, next_period
from paceline.store import ClientKey, KeyBudget, SpendRow
from paceline.testing import VirtualClock

START = 1_800_000_000.0  # 2027-01-15 08:00 UTC
DAY = 86_400.0


class Spent:
    """Dollars by day, as the gateway knows them."""

    def __init__(self, **days: float) -> None:
        self.days = {name.replace("_", "-").removeprefix("d"): dollars for name, dollars in days.items()}

    def spent_by(self, key: str, since: str) -> float:
        return sum(dollars for day, dollars in self.days.items() if day >= since)


async def test_a_budget_is_announced_once_at_80_percent_and_once_at_its_end_in_each_period() -> None:
    clock, spent, events = VirtualClock(START), Spent(), list[Event]()
    budgets = KeyBudgets(spent, clock)
    budgets.emit = events.append
    key = ClientKey(name="team", budget=KeyBudget(10.0, "day"), created_at=START)

    for dollars in (7.9, 8.0, 9.0, 10.0, 11.0):
        spent.days["2027-01-15"] = dollars
        budgets.note(key)
    with pytest.raises(GatewayError, match="it continues at 2027-01-16 00:00 UTC"):
        budgets.check(key)
    await clock.advance(DAY)
    budgets.check(key)
    spent.days["2027-01-16"] = 8.5
    budgets.note(key)

    assert [(each.name, each.scope, each.fields["share"], each.fields["spent"]) for each in events] == [
        ("budget.reached", "key:team", 0.8, 8.0),
        ("budget.reached", "key:team", 1.0, 10.0),
        ("budget.reached", "key:team", 0.8, 8.5),
    ]


def test_a_total_budget_counts_days_that_are_no_longer_in_memory() -> None:
    budgets = KeyBudgets(Spent(d2027_01_14=3.0), VirtualClock(START))
    old = SpendRow(day="2026-10-01", key="team", account="work", model="m", requests=1, billed=6.0)
    new = SpendRow(day="2027-01-14", key="team", account="work", model="m", requests=1, billed=3.0)
    budgets.read_spend = lambda *, since, key=None: [old, new]
    key = ClientKey(name="team", budget=KeyBudget(9.0, "total"), created_at=START - 120 * DAY)

    with pytest.raises(GatewayError, match=r"\$9, is reached \(\$9.00 spent\); ask for a key with another budget"):
        budgets.check(key)


@pytest.mark.parametrize(
    ("period", "at", "expected"),
    [("day", START, 1_800_057_600.0), ("month", START, 1_801_440_000.0), ("total", START, None)],
)
def test_the_next_period_begins_at_midnight_or_with_the_month(period: str, at: float, expected: float | None) -> None:
    assert next_period(KeyBudget(1.0, period), at) == expected  # type: ignore[arg-type]
