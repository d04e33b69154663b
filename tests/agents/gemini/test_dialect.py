"""Gemini CLI and API: retry notices, and quotas that never clear."""

from tests.detect.readings import answer_signals, line_signals

from paceline.core.signals import (
    BillingStop,
    RateLimited,
)


def test_a_retry_notice_is_reported_at_once() -> None:
    (signal,) = line_signals(
        "Attempt 1 failed: You have exhausted your capacity on this model. Your quota will reset after 5s.."
    )
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == 5.0


def test_a_limit_of_zero_never_clears() -> None:
    body = "Quota exceeded for metric: x.googleapis.com/free_tier_requests, limit: 0\nPlease retry in 25s."
    signals = answer_signals(429, text=body, provider="gemini-api")
    assert [type(signal) for signal in signals] == [BillingStop]
