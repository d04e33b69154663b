"""What headers and error bodies say: structured facts come first."""

import pytest

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
)
from paceline.detect import Observation, detect

NOW = 1_790_000_000.0


def answer(
    status: int | None, headers: dict[str, str] | None = None, text: str = "", provider: str = "x"
) -> list[Signal]:
    return detect(
        Observation(provider=provider, channel="http", status=status, headers=headers, text=text, seen_at=NOW, tz="UTC")
    )


@pytest.mark.parametrize(
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
def test_a_429_says_how_long_to_wait(headers: dict[str, str], after: float | None) -> None:
    signal = answer(429, headers)[0]
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == (None if after is None else pytest.approx(after))


@pytest.mark.parametrize(
    "headers",
    [[("Retry-After", "20")], ((b"retry-after", b"20"),), {b"Retry-After": b"20"}, {"retry-after": ["20"]}],
)
def test_headers_may_come_in_any_shape(headers: object) -> None:
    observation = Observation(provider="x", channel="http", status=429, headers=headers, seen_at=NOW)  # type: ignore[arg-type]
    (signal,) = detect(observation)
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == 20.0


def test_an_exhausted_bucket_on_a_200_is_a_budget_and_no_limit() -> None:
    signals = answer(200, {"RateLimit": '"default";r=0;t=48'})
    assert [type(signal) for signal in signals] == [Budget]


def test_healthy_headers_tell_what_is_left() -> None:
    (budget,) = answer(
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
    assert answer(None, {"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}) == []


def test_a_rejected_weekly_window_of_one_model_reaches_that_model_only() -> None:
    prefix = "anthropic-ratelimit-unified"
    signals = answer(
        429,
        {
            f"{prefix}-status": "rejected",
            f"{prefix}-7d_opus-status": "rejected",
            f"{prefix}-7d_opus-reset": str(int(NOW) + 5000),
            f"{prefix}-5h-status": "allowed",
            f"{prefix}-5h-utilization": "0.3",
        },
    )
    quota = signals[0]
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.reach, quota.resets_at, quota.source) == ("weekly", "model", NOW + 5000, "header")


def test_a_rejected_overage_on_a_healthy_answer_is_normal() -> None:
    prefix = "anthropic-ratelimit-unified"
    signals = answer(200, {f"{prefix}-status": "allowed", f"{prefix}-overage-status": "rejected"})
    assert all(isinstance(signal, Budget) for signal in signals)


def test_the_codex_window_is_named_by_its_minutes_and_not_by_its_place() -> None:
    headers = {
        "x-codex-primary-used-percent": "100",
        "x-codex-primary-window-minutes": "10080",
        "x-codex-primary-reset-at": str(int(NOW) + 9000),
        "x-codex-secondary-used-percent": "12",
    }
    quota = answer(429, headers)[0]
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.resets_at) == ("weekly", NOW + 9000)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, RateLimited),
        (529, Overloaded),
        (503, Overloaded),
        (402, BillingStop),
        (423, PlatformLimit),
        (401, AuthFailed),
    ],
)
def test_a_status_alone_says_enough(status: int, kind: type[Signal]) -> None:
    assert type(answer(status)[0]) is kind


@pytest.mark.parametrize("status", [200, 204, 301, 400, 403, 404, 413, 500, 502, 504])
def test_other_statuses_say_nothing_about_capacity(status: int) -> None:
    assert answer(status, text="something else") == []


def test_a_locked_slot_says_how_long_to_wait() -> None:
    (cap,) = answer(423, {"Retry-After": "10"})
    assert isinstance(cap, PlatformLimit)
    assert cap.retry_after == 10.0


def test_the_innermost_reason_wins_over_the_outer_type() -> None:
    body = (
        '{"type":"error","error":{"type":"overloaded_error","message":"HTTP 429: {\\"error\\":{\\"message\\":'
        '\\"You have exhausted your capacity on this model. Your quota will reset after 2h37m22s.\\"}}"}}'
    )
    quota = answer(429, text=body)[0]
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 2 * 3600 + 37 * 60 + 22


def test_headers_that_a_proxy_put_into_its_error_are_read() -> None:
    body = '{"error":{"message":"boom","code":429,"metadata":{"headers":{"Retry-After":"77"}}}}'
    signal = answer(429, text=body)[0]
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == 77.0


def test_an_answer_of_200_that_talks_about_limits_is_no_limit() -> None:
    body = '{"choices":[{"message":{"content":"Rate limit exceeded. Please try again in 20s."}}]}'
    assert answer(200, text=body) == []


def test_a_banner_that_a_proxy_passed_on_as_an_answer_is_one() -> None:
    body = '{"content":[{"type":"text","text":"You\'ve hit your limit · resets 3pm (UTC)"}],"stop_reason":"end_turn"}'
    quota = answer(200, text=body)[0]
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 2800


def test_an_error_that_a_proxy_passed_on_as_an_answer_is_one() -> None:
    said = "Error: request failed (429): Your quota will reset after 2h0m0s."
    quota = answer(200, text=f'{{"choices":[{{"message":{{"content":"{said}"}}}}]}}')[0]
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 7200


def test_an_error_inside_of_a_200_stream_is_one() -> None:
    body = 'event: error\ndata: {"error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert isinstance(answer(200, text=body)[0], Overloaded)


def test_the_words_decide_where_the_code_lies() -> None:
    body = (
        '{"error":{"type":"rate_limit_error","message":"The engine is currently overloaded, please try again later"}}'
    )
    assert isinstance(answer(429, text=body)[0], Overloaded)


def test_a_limit_of_zero_never_clears() -> None:
    body = "Quota exceeded for metric: x.googleapis.com/free_tier_requests, limit: 0\nPlease retry in 25s."
    signals = answer(429, text=body, provider="gemini-api")
    assert [type(signal) for signal in signals] == [BillingStop]


def test_the_cause_tells_tokens_from_requests() -> None:
    tokens = answer(429, text="This request would exceed your rate limit of 20,000 input tokens per minute.")[0]
    requests = answer(429, text="Rate limit of 50 requests per minute exceeded.")[0]
    assert isinstance(tokens, RateLimited)
    assert isinstance(requests, RateLimited)
    assert (tokens.cause, requests.cause) == ("tokens", "requests")
