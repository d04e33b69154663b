"""What a stream reader asks about one event or one line."""

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
from paceline.detect.observation_reader import read_event, read_line

NOW = 1_790_000_000.0


def event(**fields: object) -> list[Signal]:
    return read_event("claude-code", fields, seen_at=NOW, tz="UTC")


def line(text: str, provider: str = "claude-code", channel: str = "stderr") -> list[Signal]:
    return read_line(provider, text, channel=channel, seen_at=NOW, tz="UTC")


def test_a_rejected_rate_limit_event_closes_its_window() -> None:
    info = {"status": "rejected", "resetsAt": NOW + 60, "rateLimitType": "seven_day_opus"}
    (quota,) = event(type="rate_limit_event", rate_limit_info=info)
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.reach, quota.resets_at, quota.source) == ("weekly", "model", NOW + 60, "field")


def test_an_allowed_rate_limit_event_is_a_budget() -> None:
    info = {"status": "allowed_warning", "resetsAt": NOW + 60, "rateLimitType": "five_hour", "utilization": 0.93}
    (budget,) = event(type="rate_limit_event", rate_limit_info=info)
    assert isinstance(budget, Budget)
    assert (budget.window, budget.used_ratio, budget.resets_at) == ("5h", 0.93, NOW + 60)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (429, "rate_limit", RateLimited),
        (529, "overloaded", Overloaded),
        (500, "server_error", Overloaded),
        (None, "overloaded", Overloaded),
        (401, "authentication_failed", AuthFailed),
        (402, "billing_error", BillingStop),
    ],
)
def test_the_first_retry_is_reported(status: int | None, error: str, kind: type[Signal]) -> None:
    signals = event(type="system", subtype="api_retry", retry_delay_ms=2500.0, error_status=status, error=error)
    assert type(signals[0]) is kind
    if kind in (RateLimited, Overloaded):
        assert getattr(signals[0], "retry_after", None) == 2.5


def test_a_result_that_calls_itself_a_success_may_be_an_error() -> None:
    (quota,) = event(type="result", subtype="success", is_error=True, result="Session limit reached ∙ resets 3pm")
    assert isinstance(quota, QuotaClosed)
    assert quota.window == "5h"


def test_a_result_without_an_error_is_the_agents_words() -> None:
    assert event(type="result", subtype="success", is_error=False, result="You've hit your limit · resets 3pm") == []


def test_qwen_calls_an_error_none() -> None:
    signals = event(type="result", is_error=False, result="[API Error: 503 The server is overloaded or not ready yet.]")
    assert isinstance(signals[0], Overloaded)


def test_an_answer_that_the_cli_made_up_is_its_own_word() -> None:
    content = [{"type": "text", "text": "You've hit your limit · resets 3pm (UTC)"}]
    made_up = event(type="assistant", error="rate_limit", message={"model": "<synthetic>", "content": content})
    real = event(type="assistant", message={"model": "claude-opus-4-6", "content": content})
    assert isinstance(made_up[0], QuotaClosed)
    assert real == []


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "429 Too Many Requests"}]}},
        {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": "rate limit exceeded"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "You've hit your usage limit."}},
        {"type": "stream_event", "event": {"delta": {"text": "quota exceeded"}}},
        {"type": "system", "subtype": "init", "tools": ["rate limit exceeded"]},
        {"type": "text", "part": {"text": "API Error: Rate limit reached"}},
        {"type": "tool_use", "part": {"state": {"output": "429 rate limit exceeded"}}},
        {},
        {"type": 5},
        {"type": "rate_limit_event"},
        {"type": "error"},
    ],
)
def test_what_others_said_inside_of_an_event_is_silent(fields: dict[str, object]) -> None:
    assert read_event("claude-code", fields, seen_at=NOW, tz="UTC") == []


def test_a_failed_turn_of_codex_says_when_to_come_back() -> None:
    message = "You’ve hit your usage limit. Upgrade to Pro (https://x.y/pro) or try again at 4:02 PM."
    (quota,) = event(type="turn.failed", error={"message": message})
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 6520


def test_opencode_carries_headers_and_body_in_its_error() -> None:
    data = {
        "message": "The usage limit has been reached",
        "statusCode": 429,
        "responseHeaders": {"x-codex-primary-used-percent": "100", "x-codex-primary-window-minutes": "300"},
        "responseBody": '{"error": {"type": "usage_limit_reached", "resets_in_seconds": 7200}}',
    }
    quota = event(type="error", error={"name": "APIError", "data": data})[0]
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.resets_at) == ("5h", NOW + 7200)


@pytest.mark.parametrize(
    ("text", "in_use", "limit"),
    [
        ("sessions_spawn has reached max active children for this session (5/5)", 5, 5),
        ("sessions_spawn has reached max active children for this session (10/5; a.b.maxChildrenPerAgent).", 10, 5),
        ("sessions_spawn reached tools.swarm.maxChildrenPerGroup (3/3).", 3, 3),
        ("global worker limit reached (1/1 active); deferring", 1, 1),
        ("Too many concurrent requests. Limit: 4 concurrent requests", None, 4),
        ("agent thread limit reached", None, None),
        ("sessions_spawn has reached max active children for this session (2/0)", 2, None),
    ],
)
def test_a_platform_limit_is_told_with_its_numbers(text: str, in_use: int | None, limit: int | None) -> None:
    cap = line(text, "openclaw")[0]
    assert isinstance(cap, PlatformLimit)
    assert (cap.in_use, cap.limit) == (in_use, limit)


@pytest.mark.parametrize(
    "text",
    [
        "sessions_spawn is not allowed at this depth (current depth: 1, max: 1)",
        "Agent depth limit reached. Solve the task yourself.",
        "Context limit reached · /compact or /clear to continue",
        "Maximum turns reached.",
    ],
)
def test_other_limits_of_a_tool_are_none_of_capacity(text: str) -> None:
    assert line(text, "openclaw") == []


def test_a_retry_notice_is_reported_at_once() -> None:
    (signal,) = line(
        "Attempt 1 failed: You have exhausted your capacity on this model. Your quota will reset after 5s.."
    )
    assert isinstance(signal, RateLimited)
    assert signal.retry_after == 5.0


def test_an_opus_limit_reaches_the_model_and_a_weekly_limit_the_account() -> None:
    opus, weekly = (line(f"You've hit your {name} limit · resets 3pm")[0] for name in ("Opus", "weekly"))
    assert (opus.reach, weekly.reach) == ("model", "account")


def test_an_overload_reaches_the_provider() -> None:
    assert line("API Error: 529 Overloaded")[0].reach == "provider"
