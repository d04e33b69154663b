"""Which of several statements decides: the innermost words, then codes, then the status."""

from tests.detect.each_row import each_row
from tests.detect.readings import NOW, answer_signals, line_signals

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
)


def test_an_overload_reaches_the_provider() -> None:
    assert line_signals("API Error: 529 Overloaded")[0].reach == "provider"


@each_row(
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
def test_a_status_alone_is_enough(status: int, kind: type[Signal]) -> None:
    assert type(answer_signals(status)[0]) is kind


def test_a_log_that_calls_its_line_an_error_may_speak_of_our_login() -> None:
    line = (
        'level=ERROR <id> mode=primary error.error="AI_APICallError: Incorrect API key provided: sk-fake. See below."'
    )
    padded = line.replace(
        "mode=", 'message="stream error" providerID=fake modelID=gpt-5 <id> small=true agent=title mode='
    )
    assert [type(signal) for signal in line_signals(padded)] == [AuthFailed]


@each_row("status", [200, 204, 301, 400, 403, 404, 413, 500, 502, 504])
def test_other_statuses_mean_nothing_for_capacity(status: int) -> None:
    assert answer_signals(status, text="something else") == []


def test_a_locked_slot_states_how_long_to_wait() -> None:
    (cap,) = answer_signals(423, {"Retry-After": "10"})
    assert isinstance(cap, PlatformLimit)
    assert cap.retry_after == 10.0


def test_the_innermost_reason_wins_over_the_outer_type() -> None:
    body = (
        '{"type":"error","error":{"type":"overloaded_error","message":"HTTP 429: {\\"error\\":{\\"message\\":'
        '\\"You have exhausted your capacity on this model. Your quota will reset after 2h37m22s.\\"}}"}}'
    )
    quota = answer_signals(429, text=body)[0]
    assert isinstance(quota, QuotaClosed)
    assert quota.resets_at == NOW + 2 * 3600 + 37 * 60 + 22


def test_the_words_decide_where_the_code_lies() -> None:
    body = (
        '{"error":{"type":"rate_limit_error","message":"The engine is currently overloaded, please try again later"}}'
    )
    assert isinstance(answer_signals(429, text=body)[0], Overloaded)


def test_the_cause_separates_tokens_from_requests() -> None:
    tokens = answer_signals(429, text="This request would exceed your rate limit of 20,000 input tokens per minute.")[0]
    requests = answer_signals(429, text="Rate limit of 50 requests per minute exceeded.")[0]
    assert isinstance(tokens, RateLimited)
    assert isinstance(requests, RateLimited)
    assert (tokens.cause, requests.cause) == ("tokens", "requests")
