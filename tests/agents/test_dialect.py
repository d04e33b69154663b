"""Entries of transcripts: tool calls and results are short."""

from tests.detect.each_row import each_row

from paceline.agents.dialect import LONGEST_LINE, RESULT_LINES, TranscriptEntry, tool_call, tool_result


@each_row(
    ("arguments", "shown"),
    [
        ({"description": "Run tests", "command": "pytest -q\n  tests"}, "Bash pytest -q tests"),
        ({"content": "x" * 9, "file_path": "/a.py"}, "Bash /a.py"),
        ({"command": ["ls", "-l"]}, "Bash ls -l"),
        ({"limit": 3, "other": "first text"}, "Bash first text"),
        ({"limit": 3}, "Bash"),
        ("ls", "Bash ls"),
        (None, "Bash"),
        ([1, {}], "Bash"),
    ],
)
def test_a_tool_call_names_what_it_is_about(arguments: object, shown: str) -> None:
    assert tool_call("Bash", arguments) == TranscriptEntry(kind="tool", text=shown)


def test_a_long_argument_and_a_long_result_are_cut() -> None:
    call = tool_call("Bash", {"command": "x" * 10_000})
    (result,) = tool_result("\n".join(["y" * 10_000] * (RESULT_LINES + 3)))

    assert call.text == f"Bash {'x' * (LONGEST_LINE - 1)}…"
    assert result.text == "\n".join([*["y" * (LONGEST_LINE - 1) + "…"] * RESULT_LINES, "… 3 more lines"])


def test_an_empty_result_is_shown_only_if_it_failed() -> None:
    assert tool_result("\n \n") == []
    assert tool_result("", is_error=True) == [TranscriptEntry(kind="result", text="failed", is_error=True)]
