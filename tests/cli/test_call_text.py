"""Calls of the gateway in a few words."""

from zoneinfo import ZoneInfo

import msgspec
import pytest

from paceline.cli.call_text import activity_text, call_counts_text, count_text, failure_text, tokens_text
from paceline.core.values.tokens import Tokens
from paceline.store import Cost
from paceline.views.gateway_calls import GatewayActivity, GatewayCounts, MemberFailure

NOW = 1_700_000_000.0
UTC = ZoneInfo("UTC")


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


def test_a_failing_account_says_since_when_and_when_it_is_tried() -> None:
    failure = MemberFailure(
        account="key-a", scope="anthropic/key-a", pools=("team",), kind="unreachable", detail="no connection: refused",
        since=NOW - 150, last_at=NOW - 10, calls=7, retry_at=NOW + 60,
    )  # fmt: skip
    refused = msgspec.structs.replace(
        failure, kind="refused", detail="status 429", calls=1, pools=("team", "all"), retry_at=None
    )
    since = "since 2023-11-14 22:10:50 UTC, 2 min ago"

    assert [failure_text(failure, now, UTC) for now in (NOW, NOW + 61)] == [
        f"cannot be reached {since}: no connection: refused, 7 calls; "
        "tried last in the pool team until 2023-11-14 22:14:20 UTC, in 60 s",
        "cannot be reached since 2023-11-14 22:10:50 UTC, 4 min ago: no connection: refused, 7 calls; "
        "the next call of the pool team may try it",
    ]
    assert failure_text(refused, NOW, UTC) == (
        f"refuses calls {since}: status 429, 1 call; the pools team, all used other accounts for them"
    )
