"""The meaning of a response, and whether its request is sent again."""

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
    Succeeded,
)
from paceline.protocols import response_reader
from paceline.protocols.responses import (
    earliest_retry,
    is_idempotent,
    should_retry,
    signals_at_end,
    signals_of,
    with_pause,
)

NOW = 1_800_000_000.0
ANTHROPIC_429 = (
    b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit"}}'
)


def test_a_refusal_is_read_from_status_headers_and_body() -> None:
    signals = signals_of("anthropic-api", 429, [(b"retry-after", b"7")], ANTHROPIC_429, seen_at=NOW)

    assert [(type(signal), getattr(signal, "retry_after", None)) for signal in signals] == [(RateLimited, 7.0)]


def test_the_remaining_budget_is_read_from_the_headers_of_a_success() -> None:
    headers = [(b"content-type", b"text/plain"), (b"x-ratelimit-remaining-requests", b"3"),
               (b"x-ratelimit-reset-requests", b"20s")]  # fmt: skip

    signals = signals_of("openai-api", 200, headers, b'{"error": "429 too many requests"}', seen_at=NOW)

    assert signals == [Budget(requests_remaining=3, requests_reset_at=NOW + 20, source="header")]


def test_a_success_without_limits_in_its_headers_has_no_signals() -> None:
    assert signals_of("openai-api", 200, [(b"content-type", b"x")], b"rate limit exceeded", seen_at=NOW) == []


def test_odd_bytes_in_headers_and_body_are_no_error() -> None:
    assert signals_of("x", 404, [(b"\xff", b"\xfe"), (b"retry-after", b"\x00")], b"\xff" * 100_000, seen_at=NOW) == []


LIMITED = [RateLimited(retry_after=2.0)]


def retried(status: int, *signals: Signal, headers: tuple[tuple[bytes, bytes], ...] = (), within: float = 60.0) -> bool:
    return should_retry(signals, status, headers, now=NOW, deadline=NOW + within)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refused_request_is_sent_again(status: int) -> None:
    assert retried(status)


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 408, 409, 500, 502, 504])
def test_a_request_that_may_have_been_processed_is_not_sent_again(status: int) -> None:
    assert not retried(status)


@pytest.mark.parametrize("signal", [BillingStop(), AuthFailed()])
def test_an_error_that_waiting_does_not_fix_is_forwarded_at_once(signal: Signal) -> None:
    assert not retried(429, signal, *LIMITED)


def test_a_rate_limit_with_another_client_status_is_retried_but_a_server_error_is_not() -> None:
    assert retried(423, *LIMITED)
    assert not retried(500, *LIMITED)


def test_a_provider_that_forbids_a_retry_is_obeyed() -> None:
    assert not retried(429, headers=((b"x-should-retry", b"false"),))
    assert retried(429, headers=((b"x-should-retry", b"true"),))


def test_a_retry_time_after_the_deadline_is_not_waited_for() -> None:
    assert retried(429, RateLimited(retry_after=60.0), within=60.0)
    assert not retried(429, RateLimited(retry_after=61.0), within=60.0)


def test_without_a_response_only_idempotent_requests_are_sent_again() -> None:
    assert not is_idempotent("POST", [(b"content-type", b"application/json")])
    assert is_idempotent("GET", [])
    assert is_idempotent("POST", [(b"idempotency-key", b"1")])


def test_the_earliest_retry_is_the_latest_that_any_signal_names() -> None:
    assert earliest_retry([], NOW) is None
    assert earliest_retry([RateLimited(), Overloaded()], NOW) is None
    assert earliest_retry([RateLimited(retry_after=5.0), QuotaClosed(resets_at=NOW + 60)], NOW) == NOW + 60


def test_a_complete_response_has_its_tokens_or_the_error_that_ended_it() -> None:
    def at_end(status: int, body: bytes) -> list[Signal]:
        headers = [(b"content-type", b"text/event-stream")]
        reader = response_reader(headers)
        assert reader is not None
        reader.feed(body)
        return signals_at_end("anthropic-api", status, headers, error=body, reader=reader, seen_at=NOW)

    overloaded = b'data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n'

    assert at_end(200, b'data: {"usage": {"output_tokens": 7}}\n') == [Succeeded(tokens=7)]
    assert at_end(200, b"data: {}\n") == [Succeeded()]
    assert [type(signal) for signal in at_end(200, overloaded)] == [Overloaded]
    assert [type(signal) for signal in at_end(529, overloaded)] == [Overloaded]
    assert at_end(404, b"no such thing") == []


def test_a_retry_always_has_a_pause() -> None:
    assert with_pause([]) == [Overloaded()]
    for immediate in (PlatformLimit(limit=4), PlatformLimit(limit=4, retry_after=0.0)):
        assert with_pause([immediate]) == [immediate, Overloaded()]
    for pausing in (RateLimited(), Overloaded(), QuotaClosed(), PlatformLimit(limit=4, retry_after=1.0)):
        assert with_pause([pausing]) == [pausing]
