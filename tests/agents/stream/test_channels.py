"""Stdout: events, a document or plain text; stderr: notices between everything else, and floods."""

import hashlib
import json

import pytest
from tests.agents.stream.agent_output import (
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

from paceline.agents.known import CLIS
from paceline.agents.stream.channels import BLOCK_BYTES, StderrReader
from paceline.agents.stream.flood import FREE_NOTICES, LAST_OF_BLOCK, PER_BLOCK
from paceline.agents.stream.lines import EDGE, LINE_LIMIT
from paceline.agents.stream.record import RunRecord
from paceline.core.signals import RateLimited


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


def hash_of(number: int) -> str:
    """Return letters that differ for every number."""
    return hashlib.sha256(str(number).encode()).hexdigest().translate({ord(digit): "g" for digit in "0123456789"})


def test_a_notice_over_several_lines_is_read_as_one() -> None:
    session = AgentRun("gemini-cli")
    notice = (
        b"Attempt 1 failed: You exceeded your current quota, please check your plan and billing details. * Quota "
        b"exceeded for metric: generate_content_free_tier_requests, limit: 10\nPlease retry in 3.2s.\n"
    )

    begun = session.prints(notice, "stderr")
    ended = session.prints(b"Suggested retry after 3.2s.. Retrying after 5607ms...\n", "stderr")

    assert begun == []
    assert ended == [RateLimited(retry_after=3.2, confidence=0.9, source="text")]


def test_the_dump_under_an_error_is_left_out() -> None:
    session = AgentRun("gemini-cli")
    dump = (
        b"    at classify (file:1:2)\n  cause: {\n    code: 429,\n"
        b"    message: 'You exceeded your current quota, please check your plan and billing details.' +\n  }\n}\n"
    )

    reported = session.prints(b"Something unrelated happened\n" + dump, "stderr")

    assert reported == []


def test_the_stderr_of_an_unknown_command_counts_only_when_it_failed() -> None:
    session = AgentRun("command")
    stderr = b"HTTP 429 Too Many Requests: rate limit exceeded, retry after 20 seconds\n"

    reported = session.prints(stderr, "stderr")

    assert reported == []
    assert outcome_of("command", b"", 0, stderr) == "success"
    assert outcome_of("command", b"", 1, stderr) == "rate_limit"


def test_an_error_document_on_stderr() -> None:
    document = {"session_id": "s1", "error": {"type": "Error", "message": "Resource has been exhausted", "code": 429}}

    assert outcome_of("gemini-cli", b"", 1, json.dumps(document, indent=2).encode() + b"\n") == "rate_limit"


ATTEMPT = "Error: 429 rate limited, retrying in {} s (attempt {})\n"
FLOODS = {
    "the same error": b"Error: 429 rate limited, retrying\n" * 60_000,
    "errors with numbers": "".join(ATTEMPT.format(number % 90, number) for number in range(40_000)).encode(),
    "different errors": "".join(
        f"Error: limit of {number:x} reached, {hash_of(number)}\n" for number in range(40_000)
    ).encode(),
    "open brackets": b"{\n" * 1_000_000,
    "two bytes": b"y\n" * 1_000_000,
    "events": b'{"level":"error","msg":"429 rate limit reached"}\n' * 40_000,
    "documents": "".join(
        json.dumps({"error": {"type": "Error", "message": f"limit {hash_of(number)}"}}, indent=2) + "\n"
        for number in range(10_000)
    ).encode(),
}


@pytest.mark.parametrize("cli", ["claude-code", "codex", "gemini-cli", "command"])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_read_with_bounded_work(name: str, cli: str) -> None:
    record = RunRecord(cli, tz="UTC", clis=CLIS)
    reader = StderrReader(record)
    for start in range(0, len(FLOODS[name]), BLOCK_BYTES):
        reader.feed(FLOODS[name][start : start + BLOCK_BYTES])
    reader.flush(1)
    blocks = len(FLOODS[name]) / BLOCK_BYTES + 1

    assert record.closely_read <= FREE_NOTICES + blocks * (PER_BLOCK + LAST_OF_BLOCK) + 1


def test_the_last_words_of_a_flood_count() -> None:
    run = AgentRun("claude-code")
    run.prints(FLOODS["different errors"], "stderr")
    run.prints("You've hit your limit · resets 3am\n".encode(), "stderr")

    assert run.ends(1) == "quota_window"


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("flood", ["different errors", "documents"])
def test_the_first_and_the_last_notice_of_a_flood_are_read_within_one_piece(flood: str, is_first: bool) -> None:
    run = AgentRun("gemini-cli")
    notice = json.dumps({"error": {"type": "Error", "message": "Resource has been exhausted", "code": 429}}).encode()
    pieces = [notice + b"\n", FLOODS[flood]]

    run.prints(b"".join(pieces if is_first else pieces[::-1]), "stderr")

    assert run.ends(1) == "rate_limit"


def test_a_limit_before_a_flood_of_other_lines_is_reported() -> None:
    run = AgentRun("claude-code")
    signals = run.prints(b"API Error: 529 Overloaded\n" + FLOODS["two bytes"], "stderr")

    assert kinds(signals) == ["Overloaded"]


def test_a_limit_in_the_middle_of_a_build_log_is_reported() -> None:
    run = AgentRun("claude-code")
    log = b"".join(b"[%d/9000] Building CXX object src/file%d.cc.o\n" % (number, number) for number in range(9_000))
    signals = run.prints(log + b"API Error: 529 Overloaded\n" + log, "stderr")

    assert kinds(signals) == ["Overloaded"]


def test_a_flood_of_retries_is_counted_as_many() -> None:
    run = AgentRun("claude-code")
    run.prints(FLOODS["errors with numbers"], "stderr")

    assert run.reader.retries >= 8


def test_a_long_quiet_run_is_read_closely_to_its_end() -> None:
    run = AgentRun("claude-code")
    closely_read = []
    for minute in range(1_000):
        run.now += 60.0
        run.prints(f"Error: odd limit {hash_of(minute)}\n".encode(), "stderr")
        closely_read.append(run.reader.closely_read)

    assert closely_read == list(range(1, 1_001))
