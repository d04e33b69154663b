"""stdout as events, as one document and as plain text, also where bytes are broken."""

import json

import pytest
from tests.detect.agent_output import (
    ANSWER,
    DONE,
    INIT,
    QUOTA,
    REJECTED,
    RETRY,
    STARTED_AT,
    TOOL_RESULT,
    AgentRun,
    kinds,
    line,
    lines,
    outcome_of,
)

from paceline.detect.parsing.line_splitter import EDGE, LINE_LIMIT


def test_prose_and_tool_results_never_count() -> None:
    session = AgentRun()

    reported = session.prints(lines(INIT, ANSWER, TOOL_RESULT, ANSWER, DONE))

    assert reported == []
    assert session.ends(0) == "success"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_plain_text_that_only_talks_about_limits_is_prose(exit_code: int) -> None:
    session = AgentRun()
    text = b"You've hit your session limit \xc2\xb7 resets 3:20am (UTC)\n\nThat line is what users see.\n"

    reported = session.prints(text) + session.reader.close(exit_code=exit_code, seen_at=STARTED_AT)

    assert reported == []
    assert session.reader.outcome == ("failed" if exit_code else "success")


def test_the_error_at_the_end_of_plain_text_is_the_clis_own() -> None:
    session = AgentRun()
    session.prints("Working on it.\n\nYou've hit your session limit · resets 3:20am (UTC)\n".encode())

    reported = session.reader.close(exit_code=1, seen_at=STARTED_AT)

    assert kinds(reported) == ["QuotaClosed"]
    assert session.reader.outcome == "quota_window"


def test_an_answer_written_as_json_is_an_answer() -> None:
    stdout = b'{"type": "bug", "error": {"code": 429, "message": "Too Many Requests"}}\n'

    assert outcome_of("claude-code", stdout, 0) == "success"
    assert outcome_of("claude-code", b"{\n" + stdout[1:-2] + b"\n}\n", 0) == "success"


def test_an_event_quoted_far_down_in_plain_text_is_quoted() -> None:
    session = AgentRun()

    reported = session.prints(b"I read the log.\n" * 9 + line(REJECTED))

    assert reported == []
    assert session.ends(0) == "success"


def test_an_event_behind_a_word_of_plain_text_is_quoted() -> None:
    session = AgentRun()

    reported = session.prints(b"The log says: " + line(REJECTED))

    assert reported == []


def test_an_event_in_the_middle_of_another_line() -> None:
    session = AgentRun()
    whole, outer = line(REJECTED)[:-1], line(ANSWER)

    reported = session.prints(line(INIT) + outer[:60] + whole + outer[60:])

    assert reported == [QUOTA]


def test_inner_objects_of_a_broken_event_are_not_events() -> None:
    session = AgentRun("codex")
    broken = b'{"type":"item.completed","item":{"a":{"type":"error","text":"429 Too Many Requests"}, "b":\n'

    reported = session.prints(line({"type": "thread.started", "thread_id": "t1"}) + broken)

    assert reported == []


def test_several_events_on_one_line() -> None:
    session = AgentRun()

    reported = session.prints(lines(INIT, RETRY, REJECTED).replace(b"\n", b"") + b"\n")

    assert kinds(reported) == ["RateLimited", "QuotaClosed"]
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
    assert AgentRun().prints(before + wrapped) == [QUOTA]


def test_keys_in_any_order_and_type_last() -> None:
    event = dict(reversed(DONE.items())) | {"is_error": True, "api_error_status": 429}

    assert outcome_of("claude-code", lines(INIT, dict(reversed(event.items()))), 1) == "rate_limit"


def test_one_document_over_many_lines() -> None:
    document = {"session_id": "s1", "response": "ok", "stats": {"models": {"m": {"tokens": {"total": 20}}}}}
    session = AgentRun("gemini-cli")
    session.prints(json.dumps(document, indent=2).encode())

    assert session.ends(0) == "success"
    assert (session.reader.session_id, session.reader.tokens) == ("s1", 20)


def test_a_document_that_was_cut_short_is_no_success() -> None:
    document = json.dumps({"session_id": "s1", "response": "ok", "stats": {}}, indent=2).encode()

    assert outcome_of("gemini-cli", document[:-10], 0) == "interrupted"


def test_all_events_in_one_array() -> None:
    session = AgentRun()
    session.prints(line([INIT, ANSWER, DONE]))

    assert session.ends(0) == "success"
    assert session.reader.auth_mode == "subscription"


def test_a_line_of_fifty_megabytes_keeps_its_small_members_and_no_memory() -> None:
    session = AgentRun()
    result = DONE | {"result": "x" * (50 << 20), "is_error": True, "api_error_status": 529}
    data = line(result)
    session.prints(line(INIT))

    for start in range(0, len(data), 1 << 20):
        session.prints(data[start : start + (1 << 20)])

    assert session.ends(1) == "overloaded"


def test_a_long_line_is_cut_alike_in_any_chunks() -> None:
    data = line(INIT) + line(DONE | {"result": "é" * LINE_LIMIT})
    whole, chunked = AgentRun(), AgentRun()

    whole.prints(data)
    for start in range(0, len(data), EDGE - 1):
        chunked.prints(data[start : start + EDGE - 1])

    assert (whole.ends(0), whole.reader.tokens) == (chunked.ends(0), chunked.reader.tokens) == ("success", 20)


def test_a_result_line_that_was_cut_off_is_no_success() -> None:
    assert outcome_of("claude-code", lines(INIT, ANSWER) + line(DONE)[:-20], 0) == "interrupted"
