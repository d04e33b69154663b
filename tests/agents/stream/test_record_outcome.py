"""The conclusion about a whole run, from its exit code, its last event and its last trouble."""

from tests.agents.stream.agent_output import (
    ANSWER,
    DONE,
    FAILED,
    GEMINI_INIT,
    INIT,
    OPENCODE_ERROR,
    RETRY,
    THREAD,
    lines,
    outcome_of,
)
from tests.detect.each_row import each_row


@each_row(
    ("provider", "stdout", "exit_code", "outcome"),
    [
        ("claude-code", lines(INIT, ANSWER, DONE), 0, "success"),
        ("claude-code", lines(INIT, ANSWER, DONE), 1, "failed"),
        ("claude-code", lines(INIT, ANSWER), 0, "interrupted"),
        ("claude-code", b"", 0, "interrupted"),
        ("claude-code", lines(INIT, ANSWER), 143, "interrupted"),
        ("claude-code", lines(INIT, ANSWER), -9, "interrupted"),
        ("claude-code", lines(INIT, ANSWER), None, "interrupted"),
        ("claude-code", lines(INIT, ANSWER), 1, "failed"),
        ("claude-code", lines(INIT, RETRY), 143, "rate_limit"),
        ("claude-code", lines(INIT, RETRY, ANSWER), 143, "interrupted"),
        ("claude-code", lines(INIT, DONE | {"subtype": "error_max_turns"}), 1, "failed"),
        ("claude-code", lines(INIT, FAILED | {"api_error_status": 500}), 1, "overloaded"),
        ("claude-code", lines(INIT, FAILED | {"api_error_status": 401}), 1, "auth"),
        ("claude-code", lines(INIT, FAILED | {"api_error_status": None}), 1, "failed"),
        ("claude-code", "You've hit your limit · resets 3am".encode(), 143, "interrupted"),
        ("claude-code", lines(INIT, RETRY | {"error_status": 401, "error": "authentication_failed"}), 124, "auth"),
        ("claude-code", b"API Error: 500 Internal server error. This is a server-side issue.\n", 1, "overloaded"),
        ("claude-code", b"Credit balance is too low\n", 1, "billing"),
        ("claude-code", b"Execution error", 0, "interrupted"),
        ("claude-code", b"Execution error", 1, "failed"),
        ("codex", lines(THREAD, {"type": "turn.started"}), 0, "interrupted"),
        ("codex", lines(THREAD, {"type": "turn.failed", "error": {"message": "stream disconnected"}}), 1, "failed"),
        ("codex", lines(THREAD, {"type": "turn.started"}), 1, "interrupted"),
        ("codex", lines(THREAD, {"type": "error", "message": "no such model"}), 1, "failed"),
        ("gemini-cli", b"An answer that broke", 0, "interrupted"),
        ("gemini-cli", b"An answer.\n", 0, "success"),
        ("gemini-cli", lines(GEMINI_INIT), 0, "interrupted"),
        ("gemini-cli", lines(GEMINI_INIT), 173, "rate_limit"),
        ("gemini-cli", lines(GEMINI_INIT, {"type": "result", "timestamp": "t", "status": "error"}), 244, "overloaded"),
        ("gemini-cli", lines(GEMINI_INIT, {"type": "result", "timestamp": "t", "status": "error"}), 0, "failed"),
        ("opencode", lines(OPENCODE_ERROR | {"error": {"name": "MessageAbortedError"}}), 1, "interrupted"),
        ("opencode", lines(OPENCODE_ERROR | {"error": {"data": {"statusCode": 500}}}), 1, "overloaded"),
        ("opencode", lines(OPENCODE_ERROR | {"error": {"name": "UnknownError"}}), 1, "failed"),
        ("opencode", b"", 124, "quota_window"),
        ("qwen-code", b"", 124, "rate_limit"),
        ("qwen-code", lines(INIT, DONE | {"result": "[API Error: 429 Rate limit reached]"}), 0, "rate_limit"),
        ("qwen-code", lines(INIT, DONE | {"result": "[API Error: Connection error.]"}), 0, "unreachable"),
        ("qwen-code", b"[API Error: 503 The server is overloaded or not ready yet.]\n", 0, "overloaded"),
        ("qwen-code", b"[API Error: Connection error.]\n", 0, "unreachable"),
        ("copilot-cli", lines({"type": "session.start", "data": {"sessionId": "s1"}}), 143, "interrupted"),
        ("copilot-cli", lines({"type": "abort", "data": {"reason": "user_abort"}}), 1, "interrupted"),
        ("command", b"whatever\n", 0, "success"),
        ("command", b"", 0, "success"),
        ("command", b"", 3, "failed"),
    ],
)  # fmt: skip
def test_the_conclusion(provider: str, stdout: bytes, exit_code: int | None, outcome: str) -> None:
    assert outcome_of(provider, stdout, exit_code) == outcome


def test_a_retry_notice_that_comes_after_the_result_does_not_undo_it() -> None:
    stderr = b"Attempt 1 failed with status 503. Retrying with backoff...\n"
    done = {"type": "result", "timestamp": "t", "status": "success", "stats": {}}

    assert outcome_of("gemini-cli", lines(GEMINI_INIT, done), 0, stderr) == "success"
    assert outcome_of("gemini-cli", lines(GEMINI_INIT), 0, stderr) == "overloaded"
