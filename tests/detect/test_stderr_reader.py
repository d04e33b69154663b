"""stderr: notices over several lines, dumps under them, documents, and unknown commands."""

import json

from tests.detect.agent_output import (
    AgentRun,
    outcome_of,
)

from paceline.core.signals import (
    RateLimited,
)


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
