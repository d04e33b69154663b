"""Output of agent CLIs for the stream tests, and one run that reads it."""

import json
from collections.abc import Iterable

from paceline.core.signals import QuotaClosed, Signal
from paceline.core.values.session_output import Channel
from paceline.detect import StreamReader

STARTED_AT = 1794705600.0  # 2026-11-15 01:20 UTC
RESET = 1794712805
INIT = {"type": "system", "subtype": "init", "session_id": "s1", "apiKeySource": "none", "model": "opus"}
ANSWER = {
    "type": "assistant",
    "session_id": "s1",
    "message": {
        "id": "m1",
        "model": "opus",
        "content": [{"type": "text", "text": "You've hit your limit · resets 3am. API Error: 429 rate limit"}],
        "usage": {"input_tokens": 12, "cache_creation_input_tokens": 30, "output_tokens": 8},
    },
}
TOOL_RESULT = {
    "type": "user",
    "session_id": "s1",
    "message": {"role": "user", "content": [{"type": "tool_result", "content": "Error: 429 Too Many Requests"}]},
}
RETRY = {
    "type": "system",
    "subtype": "api_retry",
    "attempt": 1,
    "max_retries": 10,
    "retry_delay_ms": 3000,
    "error_status": 429,
    "error": "rate_limit",
    "session_id": "s1",
}
REJECTED = {
    "type": "rate_limit_event",
    "rate_limit_info": {"status": "rejected", "resetsAt": RESET, "rateLimitType": "five_hour"},
    "session_id": "s1",
}
DONE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "All done. I met a 429 rate limit on the way.",
    "session_id": "s1",
    "usage": {"input_tokens": 12, "output_tokens": 8},
}
QUOTA = QuotaClosed(reach="account", confidence=1.0, source="field", resets_at=float(RESET), window="5h")
FAILED = DONE | {"is_error": True, "result": "API Error: it did not work"}
THREAD = {"type": "thread.started", "thread_id": "t1"}
GEMINI_INIT = {"type": "init", "timestamp": "t", "session_id": "s1", "model": "m"}
OPENCODE_ERROR = {"type": "error", "timestamp": 1, "sessionID": "ses_1"}
QWEN_RETRY = {
    "type": "system",
    "subtype": "retry",
    "session_id": "s1",
    "data": {"reason": "retry", "attempt": 1, "maxRetries": 10, "delayMs": 60000},
}
QWEN_NOTICE = b"Retrying in 60s (attempt 1/10): [API Error: 503 The server is overloaded or not ready yet.]\n"


def line(event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def lines(*events: object) -> bytes:
    return b"".join(line(event) for event in events)


class AgentRun:
    """One run of a CLI, and the reader of its output."""

    def __init__(self, provider: str = "claude-code") -> None:
        self.reader = StreamReader(provider, tz="UTC")
        self.now = STARTED_AT

    def prints(self, data: bytes, channel: Channel = "stdout") -> list[Signal]:
        return self.reader.feed(data, channel=channel, seen_at=self.now)

    def ends(self, exit_code: int | None) -> str | None:
        self.reader.close(exit_code=exit_code, seen_at=self.now)
        return self.reader.outcome


def outcome_of(provider: str, stdout: bytes, exit_code: int | None, stderr: bytes = b"") -> str | None:
    session = AgentRun(provider)
    session.prints(stdout)
    session.prints(stderr, "stderr")
    return session.ends(exit_code)


def kinds(signals: Iterable[Signal]) -> list[str]:
    return [type(signal).__name__ for signal in signals]
