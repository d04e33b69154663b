"""stderr: notices over several lines, dumps under them, documents, and unknown commands."""

import hashlib
import json

import pytest
from tests.detect.agent_output import AgentRun, kinds, outcome_of

from paceline.core.signals import RateLimited
from paceline.detect.notice_budget import FREE_NOTICES, LAST_OF_BLOCK, PER_BLOCK
from paceline.detect.output_interpreter import OutputInterpreter
from paceline.detect.providers import KNOWN
from paceline.detect.stderr_reader import BLOCK_BYTES, StderrReader


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
    interpreter = OutputInterpreter(cli, tz="UTC", providers=KNOWN)
    reader = StderrReader(interpreter)
    for start in range(0, len(FLOODS[name]), BLOCK_BYTES):
        reader.feed(FLOODS[name][start : start + BLOCK_BYTES])
    reader.flush(1)
    blocks = len(FLOODS[name]) / BLOCK_BYTES + 1

    assert interpreter.closely_read <= FREE_NOTICES + blocks * (PER_BLOCK + LAST_OF_BLOCK) + 1


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
