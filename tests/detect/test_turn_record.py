"""Ends of turns in the streams of agent CLIs, as they were recorded and as they may come."""

import json
from pathlib import Path

import pytest

from paceline.detect.stream import StreamReader

SAMPLES = Path(__file__).parent / "samples"


def turn_ends(provider: str, output: bytes) -> int:
    reader = StreamReader(provider)
    reader.feed(output, channel="stdout", seen_at=0.0)
    return reader.turn_ends


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


@pytest.mark.parametrize(
    ("provider", "sample"),
    [
        ("claude-code", "golden/claude/tool.tool.out"),
        ("claude-code", "recorded/claude/denied.out"),
        ("claude-code", "recorded/claude-newest/denied.out"),
        ("codex", "golden/codex/tool.tool.out"),
        ("gemini-cli", "recorded/gemini/denied.out"),
        ("opencode", "recorded/opencode/denied.out"),
        ("qwen-code", "recorded/qwen/denied.out"),
        ("qwen-code", "recorded/qwen-newest/denied.out"),
    ],
)
def test_a_recorded_run_with_one_tool_has_one_turn_end_and_it_comes_with_the_result_of_the_tool(
    provider: str, sample: str
) -> None:
    output = (SAMPLES / sample).read_bytes()
    assert turn_ends(provider, output) == 1
    ends = [turn_ends(provider, b"\n".join(output.split(b"\n")[:count]) + b"\n") for count in range(1, 40)]
    first = ends.index(1)
    line = output.split(b"\n")[first]
    assert any(mark in line for mark in (b"tool_result", b"command_execution", b"tool-calls"))


@pytest.mark.parametrize(
    ("provider", "sample"),
    [
        ("claude-code", "golden/claude/success.out"),
        ("codex", "golden/codex/success.out"),
        ("gemini-cli", "golden/gemini/success.out"),
        ("opencode", "recorded/opencode/success.out"),
        ("qwen-code", "golden/qwen/success.out"),
        ("copilot-cli", "golden/copilot/success.anthropic.out"),
    ],
)
def test_a_run_that_only_answers_ends_by_itself_and_has_no_turn_end(provider: str, sample: str) -> None:
    assert turn_ends(provider, (SAMPLES / sample).read_bytes()) == 0


def test_a_turn_of_copilot_ends_when_all_its_tools_are_complete() -> None:
    begun = {"type": "session.start", "data": {"sessionId": "s1"}}
    calls = [{"type": "tool.execution_start", "data": {"toolCallId": call}} for call in ("a", "b")]
    over = [{"type": "tool.execution_complete", "data": {"toolCallId": call, "success": True}} for call in ("a", "b")]
    assert turn_ends("copilot-cli", lines(begun, *calls, over[0])) == 0
    assert turn_ends("copilot-cli", lines(begun, *calls, *over)) == 1


def codex_item(kind: str, number: int, what: str = "command_execution") -> dict[str, object]:
    return {"type": f"item.{kind}", "item": {"id": f"item_{number}", "type": what, "text": ""}}


def test_a_turn_of_codex_ends_with_its_last_command_and_a_plan_is_no_tool() -> None:
    begun = {"type": "thread.started", "thread_id": "t1"}, {"type": "turn.started"}
    two = codex_item("started", 1), codex_item("started", 2), codex_item("started", 3, "todo_list")
    assert turn_ends("codex", lines(*begun, *two, codex_item("completed", 1))) == 0
    assert turn_ends("codex", lines(*begun, *two, codex_item("completed", 1), codex_item("completed", 2))) == 1


def test_a_command_that_runs_on_in_the_background_keeps_no_later_turn_from_ending() -> None:
    begun = {"type": "thread.started", "thread_id": "t1"}, {"type": "turn.started"}
    server = codex_item("started", 1), codex_item("completed", 2, "agent_message")
    command = codex_item("started", 3), codex_item("completed", 3)
    assert turn_ends("codex", lines(*begun, *server)) == 0
    assert turn_ends("codex", lines(*begun, *server, *command)) == 1


def test_a_result_too_long_to_be_kept_ends_its_turn() -> None:
    begun = {"type": "system", "subtype": "init", "session_id": "s1"}
    call = {"type": "assistant", "message": {"id": "m1", "content": [{"type": "tool_use", "id": "a"}]}}
    content = [{"type": "tool_result", "tool_use_id": "a", "content": "x" * 3_000_000}]
    result = {"type": "user", "session_id": "s1", "message": {"role": "user", "content": content}, "uuid": "u1"}
    assert turn_ends("claude-code", lines(begun, call, result)) == 1


def test_words_about_tools_in_an_answer_are_no_tools() -> None:
    begun = {"type": "system", "subtype": "init", "session_id": "s1"}
    quoted = json.dumps({"type": "tool_result", "tool_use_id": "a"})
    said = {"type": "user", "message": {"role": "user", "content": quoted}}
    assert turn_ends("claude-code", lines(begun, said)) == 0


def test_plain_text_shows_no_turns() -> None:
    assert turn_ends("aider", b"Applied edit to a.py\n") == 0
