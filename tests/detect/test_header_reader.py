"""What headers state: waits, buckets and what is left."""

import pytest
from tests.detect.each_row import each_row
from tests.detect.readings import NOW, answer_signals

from paceline.core.signals import (
    Budget,
    RateLimited,
)
from paceline.detect import Observation, detect


@each_row(
    ("headers", "after"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Mon, 21 Sep 2026 14:14:20 GMT"}, 60.0),
        ({"retry-after": "2026-09-21T14:14:20Z"}, 60.0),
        ({"retry-after": "Mon, 21 Sep 2020 14:14:20 GMT"}, 0.0),
        ({"retry-after": "Invalid Date String"}, None),
        ({"retry-after": "NaN"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 90)}, 90.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((int(NOW) + 90) * 1000)}, 90.0),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "9s"}, None),
        ({"RateLimit": '"default";r=0;t=48'}, 48.0),
        ({"RateLimit": "limit=100, remaining=0, reset=48"}, 48.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "48"}, 48.0),
        ({"Retry-After": "20", "RateLimit": '"dynamic";r=15;t=40'}, 20.0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "7",
                "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:21Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-09-21T14:13:50Z",
            },
            30.0,
        ),
        ({"anthropic-ratelimit-unified-status": "allowed", "retry-after": "3"}, 3.0),
        ({}, None),
    ],
)
def test_a_429_states_how_long_to_wait(headers: dict[str, str], after: float | None) -> None:
    signal = answer_signals(429, headers)[0]
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == (None if after is None else pytest.approx(after))


@each_row(
    "headers",
    [[("Retry-After", "20")], ((b"retry-after", b"20"),), {b"Retry-After": b"20"}, {"retry-after": ["20"]}],
)
def test_headers_may_come_in_any_shape(headers: object) -> None:
    observation = Observation(provider="x", channel="http", status=429, headers=headers, seen_at=NOW)  # type: ignore[arg-type]
    (signal,) = detect(observation)
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == 20.0


def test_an_exhausted_bucket_on_a_200_is_a_budget_and_no_limit() -> None:
    signals = answer_signals(200, {"RateLimit": '"default";r=0;t=48'})
    assert [type(signal) for signal in signals] == [Budget]


def test_healthy_headers_state_what_is_left() -> None:
    (budget,) = answer_signals(
        200,
        {
            "x-ratelimit-remaining-requests": "998",
            "x-ratelimit-reset-requests": "2m52.8s",
            "x-ratelimit-remaining-tokens": "7927",
            "x-ratelimit-reset-tokens": "547ms",
        },
    )
    assert isinstance(budget, Budget)
    assert (budget.requests_remaining, budget.tokens_remaining) == (998, 7927)
    assert budget.requests_reset_at == pytest.approx(NOW + 172.8)


def test_a_remaining_of_minus_one_means_unknown() -> None:
    assert answer_signals(None, {"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}) == []


def test_headers_that_a_proxy_put_into_its_error_are_read() -> None:
    body = '{"error":{"message":"boom","code":429,"metadata":{"headers":{"Retry-After":"77"}}}}'
    signal = answer_signals(429, text=body)[0]
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == 77.0
