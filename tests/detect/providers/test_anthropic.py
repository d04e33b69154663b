"""Claude Code and the Anthropic API: events, windows, unified headers and who pays."""

import pytest
from tests.detect.agent_output import (
    INIT,
    RETRY,
    AgentRun,
    line,
    lines,
)
from tests.detect.readings import NOW, answer_signals, event_signals, line_signals

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    QuotaClosed,
    RateLimited,
    Signal,
)


def test_a_rejected_rate_limit_event_closes_its_window() -> None:
    info = {"status": "rejected", "resetsAt": NOW + 60, "rateLimitType": "seven_day_opus"}
    (quota,) = event_signals(type="rate_limit_event", rate_limit_info=info)
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.reach, quota.resets_at, quota.source) == ("weekly", "model", NOW + 60, "field")


def test_an_allowed_rate_limit_event_is_a_budget() -> None:
    info = {"status": "allowed_warning", "resetsAt": NOW + 60, "rateLimitType": "five_hour", "utilization": 0.93}
    (budget,) = event_signals(type="rate_limit_event", rate_limit_info=info)
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
    signals = event_signals(type="system", subtype="api_retry", retry_delay_ms=2500.0, error_status=status, error=error)
    assert type(signals[0]) is kind
    if kind in (RateLimited, Overloaded):
        assert getattr(signals[0], "retry_after", None) == 2.5


def test_a_result_that_calls_itself_a_success_may_be_an_error() -> None:
    (quota,) = event_signals(
        type="result", subtype="success", is_error=True, result="Session limit reached ∙ resets 3pm"
    )
    assert isinstance(quota, QuotaClosed)
    assert quota.window == "5h"


def test_a_result_without_an_error_is_the_agents_words() -> None:
    assert (
        event_signals(type="result", subtype="success", is_error=False, result="You've hit your limit · resets 3pm")
        == []
    )


def test_an_answer_that_the_cli_made_up_is_its_own_error() -> None:
    content = [{"type": "text", "text": "You've hit your limit · resets 3pm (UTC)"}]
    made_up = event_signals(type="assistant", error="rate_limit", message={"model": "<synthetic>", "content": content})
    real = event_signals(type="assistant", message={"model": "claude-opus-4-6", "content": content})
    assert isinstance(made_up[0], QuotaClosed)
    assert real == []


def test_an_opus_limit_reaches_the_model_and_a_weekly_limit_the_account() -> None:
    opus, weekly = (line_signals(f"You've hit your {name} limit · resets 3pm")[0] for name in ("Opus", "weekly"))
    assert (opus.reach, weekly.reach) == ("model", "account")


def test_a_rejected_weekly_window_of_one_model_reaches_that_model_only() -> None:
    prefix = "anthropic-ratelimit-unified"
    signals = answer_signals(
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
    signals = answer_signals(200, {f"{prefix}-status": "allowed", f"{prefix}-overage-status": "rejected"})
    assert all(isinstance(signal, Budget) for signal in signals)


@pytest.mark.parametrize(
    ("source", "mode"), [("none", "subscription"), ("ANTHROPIC_API_KEY", "api_key"), ("/login managed key", "api_key")]
)
def test_who_pays_is_known_from_the_first_event(source: str, mode: str) -> None:
    session = AgentRun()
    session.prints(line(INIT | {"apiKeySource": source}))

    assert session.reader.auth_mode == mode


def test_an_auth_failure_is_reported() -> None:
    session = AgentRun()
    retry = RETRY | {"error_status": 401, "error": "authentication_failed"}

    assert [type(signal) for signal in session.prints(lines(INIT, retry, retry))] == [AuthFailed]
