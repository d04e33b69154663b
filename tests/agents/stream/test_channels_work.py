"""The work of a run: its tokens by kind and model, and its turns."""

import json

from tests.agents.stream.agent_output import ANSWER, DONE, INIT, AgentRun, lines
from tests.agents.stream.test_reader_recorded import PROVIDERS
from tests.detect.each_row import each_row
from tests.detect.sample_files import RECORDED, SAMPLES

from paceline.agents.dialect import RunUsage
from paceline.core.values.session_output import Tokens
from paceline.detect import StreamReader


def read(cli: str, case: str) -> StreamReader:
    reader = StreamReader(PROVIDERS[cli], tz="UTC")
    reader.feed((RECORDED / cli / f"{case}.out").read_bytes(), channel="stdout", seen_at=0.0)
    reader.close(exit_code=0, seen_at=0.0)
    return reader


def usage(model: str, *, is_conversation: bool = False, **tokens: int) -> RunUsage:
    return RunUsage(by_model={model: Tokens(**tokens)}, is_conversation=is_conversation)


@each_row(
    ("cli", "expected", "model"),
    [
        ("claude", usage("claude-opus-4-8[1m]", input=19083, output=9), "claude-opus-4-8[1m]"),
        (
            "claude-newest",
            usage("claude-opus-5-5", input=11604, output=9, is_conversation=True),
            "claude-opus-5-5",
        ),
        ("codex", usage("", input=9843, output=9, is_conversation=True), None),
        ("gemini", usage("gemini-2.5-pro", input=7798, output=9), "gemini-2.5-pro"),
        ("opencode", usage("", input=7493, output=9), None),
        ("qwen", usage("", input=24682, output=19, is_conversation=True), "qwen3-coder"),
        ("qwen-newest", usage("", input=26164, output=19, is_conversation=True), "qwen3-coder"),
    ],
)
def test_a_run_states_its_tokens_model_turns_and_answer(cli: str, expected: RunUsage, model: str | None) -> None:
    reader = read(cli, "success")

    assert (reader.usage, reader.model, reader.model_turns) == (expected, model, 1)
    assert (reader.answer or "").endswith("of this conversation: hi")


@each_row(
    ("cli", "counts_the_conversation"),
    [
        ("claude", False),
        ("claude-newest", True),
        ("codex", True),
        ("gemini", False),
        ("opencode", False),
        ("qwen", True),
        ("qwen-newest", True),
    ],
)
def test_a_resumed_run_states_whether_it_counts_the_whole_conversation(cli: str, counts_the_conversation: bool) -> None:
    """The prompt of the second run is a little longer than that of the first: about twice as many tokens is the sum."""
    first, second = (read(cli, case).usage for case in ("success", "resume"))
    assert first is not None
    assert second is not None
    (before,), (after,) = first.by_model.values(), second.by_model.values()

    assert second.is_conversation == counts_the_conversation
    assert (after.input > before.input * 1.5) == counts_the_conversation


def test_copilot_names_its_model_and_its_answer_and_tokens_only_where_it_prints_them() -> None:
    message = {"type": "assistant.message", "data": {"model": "sonnet", "content": "It is done. "}}
    final = {"type": "model.call_final_result", "data": {"model": "sonnet", "isByok": True, "result": "success"}}
    spent = {
        "type": "assistant.usage",
        "data": {
            "model": "sonnet",
            "inputTokens": 100,
            "outputTokens": 7,
            "cacheReadTokens": 80,
            "cacheWriteTokens": 5,
        },
    }
    result = {"type": "result", "sessionId": "s1", "exitCode": 0, "usage": {"premiumRequests": 0}}
    silent, outspoken = AgentRun("copilot-cli"), AgentRun("copilot-cli")
    start = {"type": "session.start", "data": {"sessionId": "s1"}}
    silent.prints(lines(start, message, final, result))
    outspoken.prints(lines(start, message, spent, final, result))

    assert (silent.reader.usage, silent.reader.model, silent.reader.answer) == (None, "sonnet", "It is done.")
    assert outspoken.reader.usage == usage("sonnet", input=15, output=7, cache_read=80, cache_write=5)


def test_cached_input_is_not_counted_twice() -> None:
    codex, qwen = AgentRun("codex"), AgentRun("qwen-code")
    spent = {"input_tokens": 100, "cached_input_tokens": 60, "cache_write_input_tokens": 10, "output_tokens": 5}
    codex.prints(lines({"type": "thread.started", "thread_id": "t"}, {"type": "turn.completed", "usage": spent}))
    both = {"input_tokens": 100, "cache_read_input_tokens": 60, "output_tokens": 5, "total_tokens": 105}
    qwen.prints(lines(INIT, DONE | {"usage": both}))

    assert codex.reader.usage == usage("", is_conversation=True, input=30, output=5, cache_read=60, cache_write=10)
    assert qwen.reader.usage == usage("", is_conversation=True, input=40, output=5, cache_read=60)


def test_a_run_that_was_ended_early_states_the_tokens_of_its_messages() -> None:
    session = AgentRun()
    other = ANSWER | {"message": ANSWER["message"] | {"id": "m2", "model": "haiku"}}  # type: ignore[operator]

    session.prints(lines(INIT, ANSWER, ANSWER, other))

    spent = Tokens(input=12, output=8, cache_write=30)
    assert session.reader.usage == RunUsage(by_model={"opus": spent, "haiku": spent})
    assert session.reader.answer is None


def test_sub_agents_are_counted_under_their_own_models() -> None:
    session = AgentRun()
    models = {
        "claude-opus-4-8": {
            "inputTokens": 1,
            "outputTokens": 2,
            "cacheReadInputTokens": 3,
            "cacheCreationInputTokens": 4,
        },
        "claude-haiku-4-5": {"inputTokens": 5, "outputTokens": -6, "cacheReadInputTokens": "many"},
    }
    session.prints(lines(INIT, ANSWER, DONE | {"modelUsage": models, "num_turns": 4}))

    assert session.reader.usage == RunUsage(
        by_model={
            "claude-opus-4-8": Tokens(input=1, output=2, cache_read=3, cache_write=4),
            "claude-haiku-4-5": Tokens(input=5),
        }
    )
    assert session.reader.model_turns == 4


def test_an_answer_in_pieces_is_that_after_the_last_tool() -> None:
    run = AgentRun("gemini-cli")
    piece = {"type": "message", "timestamp": "t", "role": "assistant", "delta": True}
    user = {"type": "message", "timestamp": "t", "role": "user", "content": "do it"}
    tool = {"type": "tool_use", "timestamp": "t", "tool_name": "edit", "tool_id": "1", "parameters": {}}
    init = {"type": "init", "timestamp": "t", "session_id": "s1", "model": "m"}

    run.prints(lines(init, user, piece | {"content": "I look."}, tool))
    assert run.reader.answer is None
    run.prints(lines(piece | {"content": "It is "}, piece | {"content": "done."}))

    assert run.reader.answer == "It is done."


def test_an_answer_is_bounded() -> None:
    run = AgentRun()
    run.prints(lines(INIT, ANSWER, DONE | {"result": "ü" * 20_000}))

    answer = run.reader.answer or ""
    assert len(answer.encode()) <= 16_384
    assert answer.endswith("ü […]")


def test_the_answer_of_a_command_is_the_end_of_what_it_printed() -> None:
    run = AgentRun("command")
    run.prints(b"working\n\nall 3 files done\n")
    run.ends(0)

    assert (run.reader.answer, run.reader.usage, run.reader.model) == ("working\n\nall 3 files done", None, None)


def turn_ends(provider: str, output: bytes) -> int:
    reader = StreamReader(provider)
    reader.feed(output, channel="stdout", seen_at=0.0)
    return reader.turn_ends


def compact(*events: object) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


@each_row(
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


@each_row(
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
    assert turn_ends("copilot-cli", compact(begun, *calls, over[0])) == 0
    assert turn_ends("copilot-cli", compact(begun, *calls, *over)) == 1


def codex_item(kind: str, number: int, what: str = "command_execution") -> dict[str, object]:
    return {"type": f"item.{kind}", "item": {"id": f"item_{number}", "type": what, "text": ""}}


def test_a_turn_of_codex_ends_with_its_last_command_and_a_plan_is_no_tool() -> None:
    begun = {"type": "thread.started", "thread_id": "t1"}, {"type": "turn.started"}
    two = codex_item("started", 1), codex_item("started", 2), codex_item("started", 3, "todo_list")
    assert turn_ends("codex", compact(*begun, *two, codex_item("completed", 1))) == 0
    assert turn_ends("codex", compact(*begun, *two, codex_item("completed", 1), codex_item("completed", 2))) == 1


def test_a_command_that_runs_on_in_the_background_keeps_no_later_turn_from_ending() -> None:
    begun = {"type": "thread.started", "thread_id": "t1"}, {"type": "turn.started"}
    server = codex_item("started", 1), codex_item("completed", 2, "agent_message")
    command = codex_item("started", 3), codex_item("completed", 3)
    assert turn_ends("codex", compact(*begun, *server)) == 0
    assert turn_ends("codex", compact(*begun, *server, *command)) == 1


def test_a_result_too_long_to_be_kept_ends_its_turn() -> None:
    begun = {"type": "system", "subtype": "init", "session_id": "s1"}
    call = {"type": "assistant", "message": {"id": "m1", "content": [{"type": "tool_use", "id": "a"}]}}
    content = [{"type": "tool_result", "tool_use_id": "a", "content": "x" * 3_000_000}]
    result = {"type": "user", "session_id": "s1", "message": {"role": "user", "content": content}, "uuid": "u1"}
    assert turn_ends("claude-code", compact(begun, call, result)) == 1


def test_words_about_tools_in_an_answer_are_no_tools() -> None:
    begun = {"type": "system", "subtype": "init", "session_id": "s1"}
    quoted = json.dumps({"type": "tool_result", "tool_use_id": "a"})
    said = {"type": "user", "message": {"role": "user", "content": quoted}}
    assert turn_ends("claude-code", compact(begun, said)) == 0


def test_plain_text_shows_no_turns() -> None:
    assert turn_ends("aider", b"Applied edit to a.py\n") == 0
