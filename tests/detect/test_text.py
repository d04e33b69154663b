"""The reason of a failure: the agent's own words in one line, and never a piece of JSON."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.agents.stream.agent_output import DONE, GEMINI_INIT, INIT, OPENCODE_ERROR, THREAD, AgentRun, lines
from tests.detect.each_row import each_row

from paceline.detect.text import LONGEST_REASON, last_words, reason_line

MODEL_ISSUE = "There's an issue with the selected model (opus-4-6). It may not exist or you may not have access to it."


@each_row(
    ("text", "reason"),
    [
        (None, None),
        ("  \n", None),
        ("}}", None),
        ('{"usage": {"input_tokens": 0}}', None),
        ("API Error: Connection error.", "API Error: Connection error."),
        (
            '{"error":{"message":"Incorrect API key provided","type":"invalid_request_error"}}',
            "Incorrect API key provided",
        ),
        (
            'API Error: 400 {"type":"error","error":{"type":"x","message":"max_tokens: too large"},"request_id":"r"}',
            "API Error: 400 max_tokens: too large",
        ),
        ('{"error":{"message":"{\\"error\\":{\\"code\\":404,\\"message\\":\\"no such model\\"}}"}}', "no such model"),
        ('{"detail":"Not allowed"}', "Not allowed"),
        ('{"errors":[{"message":"first"},{"message":"second"}]}', "first"),
        ('boom: {"error":{"message":"cut in the mid', "boom: cut in the mid"),
        ('message: "Your credit is gone"', "Your credit is gone"),
        ("\x1b[31mError:\x1b[0m it\n\n   broke", "Error: it broke"),
        ("unexpected token { in a.js", "unexpected token { in a.js"),
    ],
)
def test_the_words_of_an_error(text: str | None, reason: str | None) -> None:
    assert reason_line(text) == reason


@given(st.text())
def test_a_reason_is_one_bounded_line(text: str) -> None:
    reason = reason_line(text) or ""

    assert len(reason) <= LONGEST_REASON
    assert len(reason.splitlines()) <= 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_read(value: object) -> None:
    reason_line(json.dumps(value))


@each_row(
    ("shown", "words"),
    [
        (["one", "Error: two", "three"], "Error: two"),
        (["one", "two"], "two"),
        (["fatal: not a git repository", "    at foo (a.js:1:2)", "}"], "fatal: not a git repository"),
        (['":0},"inference_geo":"","iterations":[]}'], None),
        ([], None),
    ],
)
def test_the_last_words_are_the_last_error(shown: list[str], words: str | None) -> None:
    assert last_words(shown) == words


@each_row(
    ("provider", "stdout", "stderr", "reason"),
    [
        (
            "claude-code",
            lines(INIT, DONE | {"is_error": True, "result": MODEL_ISSUE, "usage": {"iterations": []}}),
            b"",
            MODEL_ISSUE,
        ),
        (
            "claude-code",
            lines(INIT, DONE | {"is_error": True, "subtype": "error_max_turns", "result": None}),
            b"",
            "error max turns",
        ),
        ("claude-code", b"", b"Error: --model needs a value\n", "Error: --model needs a value"),
        (
            "codex",
            lines(
                THREAD,
                {
                    "type": "turn.failed",
                    "error": {
                        "message": '{"type":"error","error":{"message":"The model x does not exist"},"status":400}'
                    },
                },
            ),
            b"",
            "The model x does not exist",
        ),
        (
            "gemini-cli",
            lines(
                GEMINI_INIT,
                {
                    "type": "result",
                    "timestamp": "t",
                    "status": "error",
                    "error": {"type": "Error", "message": "[API Error: models/x is not found]"},
                },
            ),
            b"",
            "[API Error: models/x is not found]",
        ),
        (
            "opencode",
            lines(
                OPENCODE_ERROR | {"error": {"name": "ProviderModelNotFoundError", "data": {"message": "no such model"}}}
            ),
            b"",
            "no such model",
        ),
        (
            "copilot-cli",
            lines({"type": "session.error", "data": {"errorType": "query", "message": "Model is not available"}}),
            b"",
            "Model is not available",
        ),
        (
            "command",
            b"step 1\n",
            b'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: bad row 7\n',
            "ValueError: bad row 7",
        ),
        ("command", b"step 1\nassertion failed: x\n", b"", "assertion failed: x"),
        ("command", b"", b"", None),
    ],
)
def test_a_failed_run_says_why_in_its_own_words(
    provider: str, stdout: bytes, stderr: bytes, reason: str | None
) -> None:
    run = AgentRun(provider)
    run.prints(stdout)
    run.prints(stderr, "stderr")

    assert run.ends(1) in ("failed", "auth")
    assert run.reader.failure_text == reason


def test_a_run_that_ended_well_has_no_reason_to_fail() -> None:
    run = AgentRun("claude-code")
    run.prints(lines(INIT, DONE))
    run.prints(b"Error: a warning of no account\n", "stderr")
    run.ends(0)

    assert run.reader.failure_text is None
