"""Spend of the gateway for people: grouped by what was asked for, honest about what is not known."""

from paceline.core.values.session_output import Tokens
from paceline.store import Cost, SpendRow
from paceline.views.gateway_calls import GatewaySpend, SpendSum, spend_view

ROWS = [
    SpendRow(day="2026-11-15", key="a", account="w", model="m", requests=1, tokens=Tokens(input=1), billed=1.0),
    SpendRow(day="2026-11-16", key="a", account="w", model="n", requests=2, tokens=Tokens(output=2), imputed=0.5),
    SpendRow(day="2026-11-16", key="b", account="w", model="m", requests=3, billed=4.0, estimated=1),
    SpendRow(day="2026-11-16", key="b", account="v", model="x", requests=4, unpriced=4),
]
TOTAL = SpendSum(
    requests=10,
    tokens=Tokens(input=1, output=2),
    cost=Cost(billed=5.0, imputed=0.5),
    unpriced=4,
    estimated=1,
)


def test_the_most_expensive_comes_first() -> None:
    shown = spend_view(ROWS, "2026-11-15", ("key",))

    assert shown == GatewaySpend(
        since="2026-11-15",
        by=("key",),
        rows=[
            SpendSum(key="b", requests=7, tokens=Tokens(), cost=Cost(billed=4.0), unpriced=4, estimated=1),
            SpendSum(
                key="a",
                requests=3,
                tokens=Tokens(input=1, output=2),
                cost=Cost(billed=1.0, imputed=0.5),
                unpriced=0,
                estimated=0,
            ),
        ],
        total=TOTAL,
    )


def test_days_keep_their_order() -> None:
    shown = spend_view(ROWS, "", ("day", "model"))

    assert [(each.day, each.model) for each in shown.rows] == [
        ("2026-11-15", "m"),
        ("2026-11-16", "m"),
        ("2026-11-16", "n"),
        ("2026-11-16", "x"),
    ]


def test_nothing_was_spent() -> None:
    shown = spend_view([], "", ())

    assert (shown.rows, shown.total) == (
        [],
        SpendSum(requests=0, tokens=Tokens(), cost=Cost(), unpriced=0, estimated=0),
    )
