"""Claude Code and the Anthropic API: events, windows, unified headers and who pays."""

from tests.agents.stream.agent_output import (
    DONE,
    INIT,
    RETRY,
    AgentRun,
    kinds,
    line,
    lines,
)
from tests.detect.each_row import each_row
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


@each_row(
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


@each_row(
    ("source", "mode"), [("none", "subscription"), ("ANTHROPIC_API_KEY", "api_key"), ("/login managed key", "api_key")]
)
def test_who_pays_is_known_from_the_first_event(source: str, mode: str) -> None:
    session = AgentRun()
    session.prints(line(INIT | {"apiKeySource": source}))

    assert session.reader.auth_mode == mode


@each_row(
    "model", ["us.anthropic.claude-opus-5-5", "anthropic.claude-haiku-4-5-20251001-v1:0", "claude-opus-4-5@20251101"]
)
def test_a_model_of_a_cloud_is_not_paid_by_the_subscription(model: str) -> None:
    session = AgentRun()
    session.prints(line(INIT | {"apiKeySource": "none", "model": model}))

    assert session.reader.auth_mode == "api_key"


def test_an_auth_failure_is_reported() -> None:
    session = AgentRun()
    retry = RETRY | {"error_status": 401, "error": "authentication_failed"}

    assert [type(signal) for signal in session.prints(lines(INIT, retry, retry))] == [AuthFailed]


WINDOWS = {
    "five_hour": {"utilization": 0.23, "status": "allowed", "resetsAt": 1790003600},
    "seven_day": {"utilization": 0.93, "status": "allowed_warning", "resetsAt": 1790400000},
    "seven_day_opus": {"utilization": 0.5, "status": "allowed"},
    "overage": {"status": "rejected"},
}
USED = [
    Budget(used_ratio=0.23, window="5h", resets_at=1790003600.0, reach="account", source="field"),
    Budget(used_ratio=0.93, window="weekly", resets_at=1790400000.0, reach="account", source="field"),
    Budget(used_ratio=0.5, window="weekly", reach="model", source="field"),
]


def test_the_used_share_of_every_window_is_read() -> None:
    info = {"status": "allowed", "resetsAt": 1790003600, "rateLimitType": "five_hour", "unifiedWindows": WINDOWS}

    assert event_signals(type="rate_limit_event", rate_limit_info=info) == USED


def test_a_refusal_in_open_windows_is_too_many_calls_at_once() -> None:
    info = {"status": "rejected", "resetsAt": 1790003600, "rateLimitType": "five_hour", "unifiedWindows": WINDOWS}
    refused = RateLimited(cause="concurrency", confidence=0.9, source="field")

    assert event_signals(type="rate_limit_event", rate_limit_info=info) == [refused, *USED]


def test_the_windows_decide_which_one_is_spent() -> None:
    spent = WINDOWS | {"seven_day": {"utilization": 1.0, "status": "rejected", "resetsAt": 1790400000}}
    info = {"status": "rejected", "resetsAt": 1790003600, "rateLimitType": "five_hour", "unifiedWindows": spent}
    quota, *_ = event_signals(type="rate_limit_event", rate_limit_info=info)

    assert quota == QuotaClosed(resets_at=1790400000.0, window="weekly", reach="account", source="field")


def test_without_windows_a_refusal_closes_the_one_it_names() -> None:
    for windows in ({}, {"seven_day": WINDOWS["seven_day"]}, None, "odd", {"five_hour": "odd"}):
        info = {"status": "rejected", "resetsAt": 1790003600, "rateLimitType": "five_hour", "unifiedWindows": windows}
        quota, *_ = event_signals(type="rate_limit_event", rate_limit_info=info)
        assert quota == QuotaClosed(resets_at=1790003600.0, window="5h", reach="account", source="field")


def test_the_sentence_after_a_refusal_in_open_windows_closes_none() -> None:
    info = {"status": "rejected", "resetsAt": 1790003600, "rateLimitType": "five_hour", "unifiedWindows": WINDOWS}
    event = {"type": "rate_limit_event", "rate_limit_info": info, "session_id": "s1"}
    said = "You've hit your 5-hour limit · resets 3:20am (UTC)"
    run = AgentRun("claude-code")
    signals = run.prints(lines(INIT, event, DONE | {"is_error": True, "api_error_status": 429, "result": said}))

    assert kinds(signals) == ["RateLimited", "Budget", "Budget", "Budget"]
    assert run.ends(1) == "rate_limit"
