"""opencode: errors that carry a whole response, and its log, which names each failed call."""

from tests.detect.readings import NOW, event_signals

from paceline.core.signals import QuotaClosed, RateLimited, Signal, Unreachable
from paceline.detect import StreamReader

NOBODY = "AI_APICallError: Cannot connect to API: Unable to connect. Is the computer able to access the url?"
TOO_MANY = "AI_APICallError: Rate limit reached for gpt-5 on tokens per min (TPM). Please try again in 20s."


def log_line(error: str, *, message: str = "stream error", small: str = "false") -> bytes:
    origin = f"providerID=fake modelID=gpt-5 session.id=ses_1 small={small} agent=build mode=primary"
    line = f'timestamp=2026-11-16T03:30:31.315Z level=ERROR run=c2f2 message="{message}" {origin} error.error="{error}"'
    return line.encode() + b"\n"


def read(*lines: bytes) -> tuple[list[Signal], StreamReader]:
    reader = StreamReader("opencode", tz="UTC")
    return [signal for line in lines for signal in reader.feed(line, channel="stderr", seen_at=NOW)], reader


def test_opencode_carries_headers_and_body_in_its_error() -> None:
    data = {
        "message": "The usage limit has been reached",
        "statusCode": 429,
        "responseHeaders": {"x-codex-primary-used-percent": "100", "x-codex-primary-window-minutes": "300"},
        "responseBody": '{"error": {"type": "usage_limit_reached", "resets_in_seconds": 7200}}',
    }
    quota = event_signals(type="error", error={"name": "APIError", "data": data})[0]
    assert isinstance(quota, QuotaClosed)
    assert (quota.window, quota.resets_at) == ("5h", NOW + 7200)


def test_opencode_that_reaches_nobody_is_known_while_it_still_retries() -> None:
    first, _ = read(log_line(NOBODY))
    signals, reader = read(log_line(NOBODY), log_line(NOBODY))

    assert first == []
    assert signals == [Unreachable(source="text")]
    reader.close(exit_code=124, seen_at=NOW)
    assert reader.outcome == "unreachable"


def test_a_limit_that_opencode_waits_for_is_known_before_it_gives_up() -> None:
    signals, _ = read(log_line(TOO_MANY))

    assert [(type(signal), getattr(signal, "retry_after", None)) for signal in signals] == [(RateLimited, 20.0)]


def test_the_limits_of_titles_and_of_servers_of_tools_are_not_those_of_the_work() -> None:
    signals, reader = read(
        log_line(TOO_MANY, small="true"),
        log_line(NOBODY, message="failed to start server"),
        log_line(NOBODY, message="failed to start server"),
    )

    assert signals == []
    reader.close(exit_code=124, seen_at=NOW)
    assert reader.outcome == "quota_window"


def test_a_log_entry_is_shown_by_its_error() -> None:
    _, reader = read(log_line("ProviderModelNotFoundError: no model fake/gpt-6", message="failed"))
    reader.close(exit_code=1, seen_at=NOW)

    assert (reader.outcome, reader.failure_text) == ("failed", "ProviderModelNotFoundError: no model fake/gpt-6")
