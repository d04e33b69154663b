"""StreamReader: what agent output means while it comes, and what became of the run."""

import json
from collections.abc import Iterable

import pytest

from paceline.core.signals import AuthFailed, Budget, Overloaded, QuotaClosed, RateLimited, Signal
from paceline.detect import StreamReader
from paceline.detect.parsing.line_splitter import EDGE, LINE_LIMIT
from paceline.detect.parsing.screen import render_screen
from paceline.detect.stream import Channel
from paceline.errors import InvalidInput

NOW = 1794705600.0  # 2026-11-15 01:20 UTC
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


def line(event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def lines(*events: object) -> bytes:
    return b"".join(line(event) for event in events)


class Session:
    """A reader, and all it has said so far."""

    def __init__(self, provider: str = "claude-code") -> None:
        self.reader = StreamReader(provider, tz="UTC")
        self.now = NOW

    def says(self, data: bytes, channel: Channel = "stdout") -> list[Signal]:
        return self.reader.feed(data, channel=channel, seen_at=self.now)

    def ends(self, exit_code: int | None) -> str | None:
        self.reader.close(exit_code=exit_code, seen_at=self.now)
        return self.reader.outcome


def outcome_of(provider: str, stdout: bytes, exit_code: int | None, stderr: bytes = b"") -> str | None:
    session = Session(provider)
    session.says(stdout)
    session.says(stderr, "stderr")
    return session.ends(exit_code)


def kinds(signals: Iterable[Signal]) -> list[str]:
    return [type(signal).__name__ for signal in signals]


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown channel 'stdin': it is stdout, stderr or screen"):
        Session().says(b"", "stdin")  # type: ignore[arg-type]


# --- when a signal is told -----------------------------------------------------------------------------------


def test_a_retry_is_told_at_the_first_one_and_the_rest_are_counted() -> None:
    session = Session()
    session.says(line(INIT))

    first = session.says(line(RETRY))
    later = session.says(lines(RETRY, RETRY))

    assert first == [RateLimited(retry_after=3.0, confidence=0.6, source="backoff")]
    assert later == []
    assert session.reader.retries == 3


def test_an_event_is_told_as_soon_as_its_line_is_whole() -> None:
    session = Session()
    data = line(INIT) + line(REJECTED)

    before = session.says(data[:-1])
    at_the_line_feed = session.says(data[-1:])

    assert (before, at_the_line_feed) == ([], [QUOTA])


def test_the_next_incident_after_an_answer_is_told_again() -> None:
    session = Session()
    session.says(lines(INIT, RETRY))

    again = session.says(lines(ANSWER, RETRY))

    assert kinds(again) == ["RateLimited"]
    assert session.reader.retries == 1


def test_a_limit_that_outlasts_what_was_told_is_told_again() -> None:
    session = Session()
    session.says(lines(INIT, RETRY))

    session.now += 61
    again = session.says(line(RETRY))

    assert kinds(again) == ["RateLimited"]


def test_a_wait_over_a_minute_is_told_even_after_a_short_one() -> None:
    session = Session()
    session.says(lines(INIT, RETRY))

    longer = session.says(line(RETRY | {"retry_delay_ms": 90_000}))

    assert longer == [RateLimited(retry_after=90.0, confidence=0.6, source="backoff")]


def test_the_429_that_follows_a_spent_window_is_the_same_limit() -> None:
    session = Session()
    result = DONE | {"is_error": True, "api_error_status": 429, "result": "API Error: Request rejected (429)"}

    told = session.says(lines(INIT, REJECTED, result))

    assert told == [QUOTA]
    assert session.ends(1) == "quota_window"


def test_another_window_is_another_limit() -> None:
    session = Session()
    weekly = {"status": "rejected", "resetsAt": RESET + 400_000, "rateLimitType": "seven_day"}

    told = session.says(lines(INIT, REJECTED, REJECTED | {"rate_limit_info": weekly}))

    assert [signal.window for signal in told if isinstance(signal, QuotaClosed)] == ["5h", "weekly"]


def test_a_meter_reading_is_told_when_it_has_moved() -> None:
    session = Session()
    info = {"status": "allowed_warning", "resetsAt": RESET, "rateLimitType": "five_hour", "utilization": 0.9}
    moved = info | {"utilization": 0.93}

    told = session.says(lines(INIT, *(REJECTED | {"rate_limit_info": i} for i in (info, info, moved))))

    assert [signal.used_ratio for signal in told if isinstance(signal, Budget)] == [0.9, 0.93]


QWEN_RETRY = {
    "type": "system",
    "subtype": "retry",
    "session_id": "s1",
    "data": {"reason": "retry", "attempt": 1, "maxRetries": 10, "delayMs": 60000},
}
QWEN_NOTICE = b"Retrying in 60s (attempt 1/10): [API Error: 503 The server is overloaded or not ready yet.]\n"


def test_qwen_announces_a_retry_without_its_cause_and_names_it_on_stderr() -> None:
    session = Session("qwen-code")

    guessed = session.says(lines(INIT, QWEN_RETRY))
    named = session.says(QWEN_NOTICE, "stderr")

    assert guessed == [RateLimited(retry_after=60.0, confidence=0.4, source="backoff")]
    assert kinds(named) == ["Overloaded"]
    assert session.reader.retries == 1
    assert session.ends(143) == "overloaded"


def test_a_guess_is_not_told_where_the_cause_is_known() -> None:
    session = Session("qwen-code")
    session.says(QWEN_NOTICE, "stderr")

    assert session.says(lines(INIT, QWEN_RETRY)) == []
    assert session.ends(143) == "overloaded"


# --- whose words ---------------------------------------------------------------------------------------------


def test_prose_and_tool_results_never_count() -> None:
    session = Session()

    told = session.says(lines(INIT, ANSWER, TOOL_RESULT, ANSWER, DONE))

    assert told == []
    assert session.ends(0) == "success"


@pytest.mark.parametrize("channel", ["stdout", "stderr", "screen"])
def test_pr_4290_is_not_a_429(channel: Channel) -> None:
    session = Session()

    told = session.says(b"Opened PR #4290 (429 lines changed)\n", channel)

    assert told + session.reader.close(exit_code=1, seen_at=NOW) == []
    assert session.reader.outcome == "failed"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_plain_text_that_only_talks_about_limits_is_prose(exit_code: int) -> None:
    session = Session()
    text = b"You've hit your session limit \xc2\xb7 resets 3:20am (UTC)\n\nThat line is what users see.\n"

    told = session.says(text) + session.reader.close(exit_code=exit_code, seen_at=NOW)

    assert told == []
    assert session.reader.outcome == ("failed" if exit_code else "success")


def test_the_error_at_the_end_of_plain_text_is_the_clis_own() -> None:
    session = Session()
    session.says("Working on it.\n\nYou've hit your session limit · resets 3:20am (UTC)\n".encode())

    told = session.reader.close(exit_code=1, seen_at=NOW)

    assert kinds(told) == ["QuotaClosed"]
    assert session.reader.outcome == "quota_window"


def test_an_answer_written_as_json_is_an_answer() -> None:
    stdout = b'{"type": "bug", "error": {"code": 429, "message": "Too Many Requests"}}\n'

    assert outcome_of("claude-code", stdout, 0) == "success"
    assert outcome_of("claude-code", b"{\n" + stdout[1:-2] + b"\n}\n", 0) == "success"


def test_an_event_quoted_far_down_in_plain_text_is_quoted() -> None:
    session = Session()

    told = session.says(b"I read the log.\n" * 9 + line(REJECTED))

    assert told == []
    assert session.ends(0) == "success"


def test_an_event_behind_a_word_of_plain_text_is_quoted() -> None:
    session = Session()

    told = session.says(b"The log says: " + line(REJECTED))

    assert told == []


def test_codex_transcript_on_stderr_is_not_read_as_errors() -> None:
    session = Session("codex")
    transcript = b"OpenAI Codex v0.166.0\n--------\nsession id: 01a1\n--------\nuser\nfix it\ncodex\n"

    told = session.says(transcript + b"You've hit your usage limit. Try again at 4:02 AM.\n", "stderr")
    told += session.says(b"tokens used\n1,020\n", "stderr")

    assert told == []
    assert (session.reader.session_id, session.reader.tokens) == ("01a1", 1020)


def test_the_last_error_line_of_a_failed_codex_transcript_counts() -> None:
    session = Session("codex")
    transcript = b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nfix it\ncodex\nOn it.\n"
    session.says(transcript + "ERROR: You’ve hit your usage limit. Try again at 4:02 AM.\n".encode(), "stderr")

    told = session.reader.close(exit_code=1, seen_at=NOW)

    assert kinds(told) == ["QuotaClosed"]
    assert session.reader.outcome == "quota_window"


@pytest.mark.parametrize(
    ("last", "outcome"), [(b"turn interrupted", "interrupted"), (b"turn interrupted\ncodex\nsorry", "failed")]
)
def test_a_codex_transcript_that_ends_with_an_interruption_was_stopped(last: bytes, outcome: str) -> None:
    session = Session("codex")
    session.says(b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nfix it\n" + last + b"\n", "stderr")

    session.reader.close(exit_code=1, seen_at=NOW)

    assert session.reader.outcome == outcome


def test_a_codex_transcript_tells_a_retry_at_once() -> None:
    session = Session("codex")
    session.says(b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nfix it\n", "stderr")

    told = session.says(
        b"ERROR: Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)\n", "stderr"
    )

    assert kinds(told) == ["RateLimited"]
    assert session.reader.retries == 1


def test_a_notice_over_several_lines_is_read_as_one() -> None:
    session = Session("gemini-cli")
    notice = (
        b"Attempt 1 failed: You exceeded your current quota, please check your plan and billing details. * Quota "
        b"exceeded for metric: generate_content_free_tier_requests, limit: 10\nPlease retry in 3.2s.\n"
    )

    begun = session.says(notice, "stderr")
    ended = session.says(b"Suggested retry after 3.2s.. Retrying after 5607ms...\n", "stderr")

    assert begun == []
    assert ended == [RateLimited(retry_after=3.2, confidence=0.9, source="text")]


def test_the_dump_under_an_error_is_left_out() -> None:
    session = Session("gemini-cli")
    dump = (
        b"    at classify (file:1:2)\n  cause: {\n    code: 429,\n"
        b"    message: 'You exceeded your current quota, please check your plan and billing details.' +\n  }\n}\n"
    )

    told = session.says(b"Something unrelated happened\n" + dump, "stderr")

    assert told == []


def test_the_stderr_of_an_unknown_command_counts_only_when_it_failed() -> None:
    session = Session("command")
    stderr = b"HTTP 429 Too Many Requests: rate limit exceeded, retry after 20 seconds\n"

    told = session.says(stderr, "stderr")

    assert told == []
    assert outcome_of("command", b"", 0, stderr) == "success"
    assert outcome_of("command", b"", 1, stderr) == "rate_limit"


def test_aider_prints_its_notices_among_its_prose() -> None:
    session = Session("aider")
    notice = (
        b"litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit exceeded\nRetrying in 0.2 seconds...\n"
    )

    told = session.says(b"I will add a rate limit.\n" + notice)

    assert kinds(told) == ["RateLimited"]
    assert session.ends(0) == "rate_limit"


# --- broken and odd bytes ------------------------------------------------------------------------------------


def test_an_event_in_the_middle_of_another_line() -> None:
    session = Session()
    whole, outer = line(REJECTED)[:-1], line(ANSWER)

    told = session.says(line(INIT) + outer[:60] + whole + outer[60:])

    assert told == [QUOTA]


def test_inner_objects_of_a_broken_event_are_not_events() -> None:
    session = Session("codex")
    broken = b'{"type":"item.completed","item":{"a":{"type":"error","text":"429 Too Many Requests"}, "b":\n'

    told = session.says(line({"type": "thread.started", "thread_id": "t1"}) + broken)

    assert told == []


def test_several_events_on_one_line() -> None:
    session = Session()

    told = session.says(lines(INIT, RETRY, REJECTED).replace(b"\n", b"") + b"\n")

    assert kinds(told) == ["RateLimited", "QuotaClosed"]
    assert session.reader.session_id == "s1"


@pytest.mark.parametrize(
    "wrapped",
    [
        b"\x1b[2K\x1b[1G" + line(REJECTED),
        b"\r\xe2\xa0\x8b\r" + line(REJECTED),
        b"\xef\xbb\xbf" + line(REJECTED),
        line(REJECTED)[:-1] + b"\r\n",
        line(REJECTED | {"note": "\ud83d"}),
        b'{"note":"\xff\xfe",' + line(REJECTED)[1:],
        b'{"note":"a\tb",' + line(REJECTED)[1:],
        b"   " + line(REJECTED),
    ],
    ids=["ansi", "spinner", "bom", "crlf", "half-surrogate", "invalid-utf8", "control-character", "indented"],
)
@pytest.mark.parametrize("before", [b"", line(INIT)], ids=["first", "later"])
def test_an_event_in_odd_wrapping(before: bytes, wrapped: bytes) -> None:
    assert Session().says(before + wrapped) == [QUOTA]


def test_keys_in_any_order_and_type_last() -> None:
    event = dict(reversed(DONE.items())) | {"is_error": True, "api_error_status": 429}

    assert outcome_of("claude-code", lines(INIT, dict(reversed(event.items()))), 1) == "rate_limit"


def test_one_document_over_many_lines() -> None:
    document = {"session_id": "s1", "response": "ok", "stats": {"models": {"m": {"tokens": {"total": 20}}}}}
    session = Session("gemini-cli")
    session.says(json.dumps(document, indent=2).encode())

    assert session.ends(0) == "success"
    assert (session.reader.session_id, session.reader.tokens) == ("s1", 20)


def test_an_error_document_on_stderr() -> None:
    document = {"session_id": "s1", "error": {"type": "Error", "message": "Resource has been exhausted", "code": 429}}

    assert outcome_of("gemini-cli", b"", 1, json.dumps(document, indent=2).encode() + b"\n") == "rate_limit"


def test_a_document_that_was_cut_short_is_no_success() -> None:
    document = json.dumps({"session_id": "s1", "response": "ok", "stats": {}}, indent=2).encode()

    assert outcome_of("gemini-cli", document[:-10], 0) == "interrupted"


def test_all_events_in_one_array() -> None:
    session = Session()
    session.says(line([INIT, ANSWER, DONE]))

    assert session.ends(0) == "success"
    assert session.reader.auth_mode == "subscription"


def test_a_line_of_fifty_megabytes_keeps_its_small_members_and_no_memory() -> None:
    session = Session()
    result = DONE | {"result": "x" * (50 << 20), "is_error": True, "api_error_status": 529}
    data = line(result)
    session.says(line(INIT))

    for start in range(0, len(data), 1 << 20):
        session.says(data[start : start + (1 << 20)])

    assert session.ends(1) == "overloaded"


def test_a_long_line_is_cut_alike_in_any_chunks() -> None:
    data = line(INIT) + line(DONE | {"result": "é" * LINE_LIMIT})
    whole, chunked = Session(), Session()

    whole.says(data)
    for start in range(0, len(data), EDGE - 1):
        chunked.says(data[start : start + EDGE - 1])

    assert (whole.ends(0), whole.reader.tokens) == (chunked.ends(0), chunked.reader.tokens) == ("success", 20)


def test_a_result_line_that_was_cut_off_is_no_success() -> None:
    assert outcome_of("claude-code", lines(INIT, ANSWER) + line(DONE)[:-20], 0) == "interrupted"


# --- facts for the engine ------------------------------------------------------------------------------------


def test_tokens_grow_with_the_messages_and_end_as_the_cli_counts_them() -> None:
    session = Session()
    seen: list[int | None] = [session.reader.tokens]
    for event in (INIT, ANSWER, ANSWER, DONE | {"modelUsage": {"opus": {"inputTokens": 100, "outputTokens": 11}}}):
        session.says(line(event))
        seen.append(session.reader.tokens)

    assert seen == [None, None, 50, 50, 111]


def test_turns_are_counted_when_they_are_completed() -> None:
    session = Session()
    session.says(lines(INIT, ANSWER, DONE))
    session.says(lines(ANSWER, DONE, DONE | {"is_error": True}))

    assert session.reader.turns == 2


@pytest.mark.parametrize(
    ("source", "mode"), [("none", "subscription"), ("ANTHROPIC_API_KEY", "api_key"), ("/login managed key", "api_key")]
)
def test_who_pays_is_known_from_the_first_event(source: str, mode: str) -> None:
    session = Session()
    session.says(line(INIT | {"apiKeySource": source}))

    assert session.reader.auth_mode == mode


def test_copilot_names_its_session_with_the_hint_how_to_resume_it() -> None:
    session = Session("copilot-cli")
    session.says(b"Answer.\n")
    session.says(b"\nChanges    +0 -0\nResume     copilot --resume=74b08c31-b2e7\n", "stderr")

    assert session.reader.session_id == "74b08c31-b2e7"
    assert session.ends(0) == "success"


def test_overage_once_seen_stays() -> None:
    session = Session()
    allowed = {"status": "allowed", "resetsAt": RESET, "rateLimitType": "five_hour"}
    for overage in (False, True, False):
        session.says(lines(INIT, REJECTED | {"rate_limit_info": allowed | {"isUsingOverage": overage}}))

    assert session.reader.auth_mode == "overage"


# --- the conclusion ------------------------------------------------------------------------------------------

FAILED = DONE | {"is_error": True, "result": "API Error: it did not work"}
THREAD = {"type": "thread.started", "thread_id": "t1"}
GEMINI_INIT = {"type": "init", "timestamp": "t", "session_id": "s1", "model": "m"}
OPENCODE_ERROR = {"type": "error", "timestamp": 1, "sessionID": "ses_1"}


@pytest.mark.parametrize(
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
        ("qwen-code", lines(INIT, DONE | {"result": "[API Error: Connection error.]"}), 0, "failed"),
        ("qwen-code", b"[API Error: 503 The server is overloaded or not ready yet.]\n", 0, "overloaded"),
        ("qwen-code", b"[API Error: Connection error.]\n", 0, "failed"),
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


# --- screens -------------------------------------------------------------------------------------------------

BOX = (
    "\x1b[2J\x1b[H\x1b[31m╭────────────────────────────────────╮\x1b[0m\r\n"
    "│ Usage limit reached for gemini-2.5-pro.│\r\n│ Access resets at 2:00 AM.          │\r\n"
    "│ /stats model for usage details     │\r\n╰────────────────────────────────────╯\r\n"
).encode()


def test_a_screen_is_rendered_as_a_terminal_shows_it() -> None:
    data = "\x1b[31mfirst\x1b[0m\r\n⚠️ sec\u0301ond\x00!\r\ngone\rthird wraps".encode()

    assert render_screen(data, columns=10, rows=5) == ["first", "⚠ second!", "third wrap", "s", ""]


def test_a_code_that_never_ends_does_not_swallow_the_screen_for_ever() -> None:
    endless = b"\x1b]0;" + b"x" * 300_000

    assert render_screen(endless + b"\x1b[2J\x1b[Hback again", columns=20, rows=2) == ["back again", ""]


def test_what_pyte_cannot_read_is_dropped() -> None:
    number = b"9" * 5000

    assert render_screen(b"\x1b[" + number + b"A\x1b[?1;2;3zback again", columns=20, rows=1)[0].endswith("back again")


def test_a_box_on_the_screen() -> None:
    session = Session("gemini-cli")

    told = session.says(BOX, "screen")

    assert [type(signal) for signal in told] == [QuotaClosed]
    assert session.ends(143) == "quota_window"


def test_a_countdown_that_redraws_itself_is_told_once() -> None:
    session = Session()
    told: list[Signal] = []
    for seconds in range(9, 0, -1):
        drawn = f"\x1b[2J\x1b[H✻ 529 Overloaded · Retrying in {seconds}s · attempt 6/10\r\n\r\n❯ \r\n"
        told += session.says(drawn.encode(), "screen")

    assert [type(signal) for signal in told] == [Overloaded]


def test_what_the_agent_writes_on_the_screen_is_prose() -> None:
    session = Session()
    text = "⏺ The API docs say a rate limit of 30 concurrent requests applies,\r\n  so it should back off on 429s.\r\n"

    assert session.says(text.encode(), "screen") == []


def test_an_auth_failure_is_told() -> None:
    session = Session()
    retry = RETRY | {"error_status": 401, "error": "authentication_failed"}

    assert [type(signal) for signal in session.says(lines(INIT, retry, retry))] == [AuthFailed]


def test_a_conversation_has_begun_once_the_model_acts_even_if_the_turn_never_ends() -> None:
    reader = StreamReader("codex")
    started = {"type": "thread.started", "thread_id": "t1"}
    note = {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Model metadata not found"}}
    called = {"type": "item.started", "item": {"id": "item_1", "type": "command_execution", "command": "ls"}}

    reader.feed(line(started) + line(note), channel="stdout", seen_at=NOW)
    assert not reader.has_answered
    reader.feed(line(called), channel="stdout", seen_at=NOW)

    assert (reader.has_answered, reader.turns, reader.tokens) == (True, 0, None)
