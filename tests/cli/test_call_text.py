"""Calls of the gateway in a few words."""

import pytest

from paceline.cli.call_text import activity_text, call_counts_text, count_text, tokens_text
from paceline.core.values.tokens import Tokens
from paceline.store import Cost
from paceline.views.gateway_calls import GatewayActivity, GatewayCounts


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00k"), (12_400, "12.4k"), (812_000, "812k"), (3_050_000, "3.05M")],
)
def test_large_counts_have_three_digits(count: int, text: str) -> None:
    assert count_text(count) == text


def test_the_calls_of_now_and_of_the_day() -> None:
    busy = GatewayActivity(
        in_flight=4,
        waiting=56,
        per_minute=120,
        refused_per_minute=3,
        requests_today=900,
        tokens_today=Tokens(input=1_000_000, output=200_000),
        cost_today=Cost(billed=4.0, imputed=0.1),
    )

    assert activity_text(busy) == "4 in flight, 56 wait, 120/min, 3 refused, 1.20M tokens, $4.10 today"
    assert call_counts_text(busy.counts) == "4 calls in flight, 56 waiting; 120 in the last minute, 3 refused"
    assert activity_text(GatewayActivity(per_minute=1)) == "0 in flight, 0 wait, 1/min"
    assert call_counts_text(GatewayCounts()) == "0 calls in flight, 0 waiting; 0 in the last minute"
    assert call_counts_text(None) == "the daemon does not answer"


def test_tokens_by_kind() -> None:
    assert tokens_text(Tokens(input=1, output=2)) == "1 in, 2 out"
    assert tokens_text(Tokens(input=1, cache_read=3, cache_write=4)) == "1 in, 0 out, 3 from cache, 4 to cache"
