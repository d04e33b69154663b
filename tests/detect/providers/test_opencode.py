"""opencode: errors that carry a whole response."""

from tests.detect.readings import NOW, event_signals

from paceline.core.signals import (
    QuotaClosed,
)


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
