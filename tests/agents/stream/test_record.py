"""The record of a run: facts, signals that were reported, and denied tool calls."""

from tests.agents.stream.agent_output import (
    ANSWER,
    DONE,
    GEMINI_INIT,
    INIT,
    QUOTA,
    QWEN_NOTICE,
    QWEN_RETRY,
    REJECTED,
    RESET,
    RETRY,
    STARTED_AT,
    THREAD,
    AgentRun,
    kinds,
    line,
    lines,
)
from tests.detect.each_row import each_row

from paceline.agents.dialect import Denial
from paceline.agents.stream.record import DenialRecord
from paceline.core.signals import (
    Budget,
    QuotaClosed,
    RateLimited,
)
from paceline.detect import StreamReader


def test_tokens_grow_with_the_messages_and_end_as_the_cli_counts_them() -> None:
    session = AgentRun()
    seen: list[int | None] = [session.reader.tokens]
    for event in (INIT, ANSWER, ANSWER, DONE | {"modelUsage": {"opus": {"inputTokens": 100, "outputTokens": 11}}}):
        session.prints(line(event))
        seen.append(session.reader.tokens)

    assert seen == [None, None, 50, 50, 111]


def test_turns_are_counted_when_they_are_completed() -> None:
    session = AgentRun()
    session.prints(lines(INIT, ANSWER, DONE))
    session.prints(lines(ANSWER, DONE, DONE | {"is_error": True}))

    assert session.reader.turns == 2


def test_overage_once_seen_stays() -> None:
    session = AgentRun()
    allowed = {"status": "allowed", "resetsAt": RESET, "rateLimitType": "five_hour"}
    for overage in (False, True, False):
        session.prints(lines(INIT, REJECTED | {"rate_limit_info": allowed | {"isUsingOverage": overage}}))

    assert session.reader.auth_mode == "overage"


def test_a_conversation_has_begun_once_the_model_acts_even_if_the_turn_never_ends() -> None:
    reader = StreamReader("codex")
    started = {"type": "thread.started", "thread_id": "t1"}
    note = {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Model metadata not found"}}
    called = {"type": "item.started", "item": {"id": "item_1", "type": "command_execution", "command": "ls"}}

    reader.feed(line(started) + line(note), channel="stdout", seen_at=STARTED_AT)
    assert not reader.has_answered
    reader.feed(line(called), channel="stdout", seen_at=STARTED_AT)

    assert (reader.has_answered, reader.turns, reader.tokens) == (True, 0, None)


def test_the_next_incident_after_an_answer_is_reported_again() -> None:
    session = AgentRun()
    session.prints(lines(INIT, RETRY))

    again = session.prints(lines(ANSWER, RETRY))

    assert kinds(again) == ["RateLimited"]
    assert session.reader.retries == 1


def test_a_limit_that_outlasts_what_was_reported_is_reported_again() -> None:
    session = AgentRun()
    session.prints(lines(INIT, RETRY))

    session.now += 61
    again = session.prints(line(RETRY))

    assert kinds(again) == ["RateLimited"]


def test_a_wait_over_a_minute_is_reported_even_after_a_short_one() -> None:
    session = AgentRun()
    session.prints(lines(INIT, RETRY))

    longer = session.prints(line(RETRY | {"retry_delay_ms": 90_000}))

    assert longer == [RateLimited(retry_after=90.0, confidence=0.6, source="backoff")]


def test_the_429_that_follows_a_spent_window_is_the_same_limit() -> None:
    session = AgentRun()
    result = DONE | {"is_error": True, "api_error_status": 429, "result": "API Error: Request rejected (429)"}

    reported = session.prints(lines(INIT, REJECTED, result))

    assert reported == [QUOTA]
    assert session.ends(1) == "quota_window"


def test_another_window_is_another_limit() -> None:
    session = AgentRun()
    weekly = {"status": "rejected", "resetsAt": RESET + 400_000, "rateLimitType": "seven_day"}

    reported = session.prints(lines(INIT, REJECTED, REJECTED | {"rate_limit_info": weekly}))

    assert [signal.window for signal in reported if isinstance(signal, QuotaClosed)] == ["5h", "weekly"]


def test_a_meter_reading_is_reported_when_it_has_moved() -> None:
    session = AgentRun()
    info = {"status": "allowed_warning", "resetsAt": RESET, "rateLimitType": "five_hour", "utilization": 0.9}
    moved = info | {"utilization": 0.93}

    reported = session.prints(lines(INIT, *(REJECTED | {"rate_limit_info": i} for i in (info, info, moved))))

    assert [signal.used_ratio for signal in reported if isinstance(signal, Budget)] == [0.9, 0.93]


def test_a_guess_is_not_reported_where_the_cause_is_known() -> None:
    session = AgentRun("qwen-code")
    session.prints(QWEN_NOTICE, "stderr")

    assert session.prints(lines(INIT, QWEN_RETRY)) == []
    assert session.ends(143) == "overloaded"


UNTRUSTED = (
    b"Ignoring 3 permissions.allow entries from .claude/settings.json: this workspace has not been trusted. "
    b"Run Claude Code interactively here once and accept the trust dialog.\n"
)
DENIED_BASH = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "ls"}}
DENIED_WRITE = {"tool_name": "Write", "tool_use_id": "t2", "tool_input": {}}
CODEX_DONE = {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}


def run_of(provider: str, stdout: bytes, stderr: bytes = b"", exit_code: int = 0) -> AgentRun:
    run = AgentRun(provider)
    run.prints(stdout)
    run.prints(stderr, "stderr")
    run.ends(exit_code)
    return run


def test_a_run_that_ended_well_with_denied_tools_is_denied() -> None:
    done = DONE | {"permission_denials": [DENIED_BASH, DENIED_WRITE]}
    reader = run_of("claude-code", lines(INIT, ANSWER, done)).reader

    assert (reader.outcome, reader.denials, reader.denial_reason) == (
        "denied",
        2,
        "Bash, Write were denied 2 times: the agent's permissions do not allow it; "
        'set permissions = "edit" or "full" in the plan, or allow the tool in the CLI\'s own settings',
    )


def test_an_untrusted_folder_is_named_as_the_cause() -> None:
    done = DONE | {"permission_denials": [DENIED_BASH]}
    reader = run_of("claude-code", lines(INIT, ANSWER, done), UNTRUSTED).reader

    assert (reader.outcome, reader.denials, reader.denial_reason) == (
        "denied",
        1,
        "Bash was denied once: this folder was never trusted for the account; "
        'set permissions = "edit" in the plan, or trust the folder',
    )


def test_the_warning_about_trust_alone_is_no_denial_if_the_cli_lists_none() -> None:
    reader = run_of("claude-code", lines(INIT, ANSWER, DONE | {"permission_denials": []}), UNTRUSTED).reader

    assert (reader.outcome, reader.denials, reader.denial_reason) == ("success", 0, None)


def test_the_warning_about_trust_counts_if_the_cli_prints_no_list() -> None:
    reader = run_of("claude-code", b"I need your permission to write the file.\n", UNTRUSTED).reader

    assert (reader.outcome, reader.denials) == ("denied", 1)


def test_a_denied_call_that_several_results_list_counts_once() -> None:
    first, second = (
        DONE | {"permission_denials": [DENIED_BASH]},
        DONE | {"permission_denials": [DENIED_BASH, DENIED_WRITE]},
    )

    assert run_of("claude-code", lines(INIT, ANSWER, first, ANSWER, second)).reader.denials == 2


def test_a_run_that_failed_stays_failed_whatever_was_denied() -> None:
    failed = DONE | {
        "is_error": True,
        "subtype": "error_max_turns",
        "result": None,
        "permission_denials": [DENIED_BASH],
    }
    reader = run_of("claude-code", lines(INIT, ANSWER, failed), exit_code=1).reader

    assert (reader.outcome, reader.denials) == ("failed", 1)


def codex_command(output: str, **fields: object) -> dict[str, object]:
    item = {"id": "item_1", "type": "command_execution", "command": "x", "aggregated_output": output}
    return {"type": "item.completed", "item": item | {"exit_code": 1, "status": "failed"} | fields}


@each_row(
    ("provider", "stdout", "stderr", "tool"),
    [
        ("codex", lines(THREAD, codex_command("bash: src/a.py: Read-only file system\n"), CODEX_DONE), b"", "shell"),
        ("codex", lines(THREAD, codex_command("", exit_code=-1, status="declined"), CODEX_DONE), b"", "shell"),
        (
            "codex",
            lines(THREAD, CODEX_DONE),
            b"2026-08-29T15:18:46.898484Z ERROR codex_core::tools::router: error=patch "
            b"rejected: writing outside of the project; rejected by user approval settings\n",
            "a tool",
        ),
        (
            "gemini-cli",
            lines(
                GEMINI_INIT,
                {
                    "type": "tool_result",
                    "timestamp": "t",
                    "tool_id": "c1",
                    "status": "error",
                    "output": "x",
                    "error": {"type": "policy_violation", "message": "Tool execution denied by policy."},
                },
                {"type": "result", "timestamp": "t", "status": "success", "stats": {}},
            ),
            b"",
            "a tool",
        ),
        (
            "gemini-cli",
            lines(
                GEMINI_INIT,
                {
                    "type": "tool_result",
                    "timestamp": "t",
                    "tool_id": "c1",
                    "status": "error",
                    "error": {
                        "type": "tool_not_registered",
                        "message": 'Tool "run_shell_command" not found. Did you mean one of: "grep_search"?',
                    },
                },
                {"type": "result", "timestamp": "t", "status": "success", "stats": {}},
            ),
            b'Error executing tool run_shell_command: Tool "run_shell_command" not found in registry.\n',
            "run_shell_command",
        ),
        (
            "gemini-cli",
            b"I could not write it.\n",
            b'Error executing tool write_file: Tool execution for "WriteFile" '
            b"requires user confirmation, which is not supported in non-interactive mode.\n",
            "write_file",
        ),
        (
            "qwen-code",
            b"I could not write it.\n",
            b'Warning: Tool "write_file" requires user approval but cannot execute in non-interactive mode.\n',
            "write_file",
        ),
        ("qwen-code", lines(INIT, ANSWER, DONE | {"permission_denials": [DENIED_BASH]}), b"", "Bash"),
        (
            "opencode",
            lines(
                {
                    "type": "tool_use",
                    "sessionID": "s",
                    "part": {
                        "tool": "bash",
                        "callID": "c1",
                        "state": {
                            "status": "error",
                            "error": "The user rejected permission to use this specific tool call.",
                        },
                    },
                },
                {"type": "step_finish", "sessionID": "s", "part": {"reason": "stop"}},
            ),
            b"! permission requested: bash (rm *); auto-rejecting\n",
            "bash",
        ),
        (
            "copilot-cli",
            lines(
                {"type": "session.start", "data": {"sessionId": "s"}},
                {
                    "type": "tool.execution_complete",
                    "data": {
                        "toolCallId": "c1",
                        "success": False,
                        "error": {
                            "message": "Permission denied and could not request permission from user",
                            "code": "denied",
                        },
                    },
                },
                {"type": "result", "sessionId": "s", "exitCode": 0},
            ),
            b"",
            "a tool",
        ),
        (
            "cursor-agent",
            lines(
                INIT,
                {
                    "type": "tool_call",
                    "subtype": "completed",
                    "session_id": "s1",
                    "call_id": "c1",
                    "tool_call": {"shellToolCall": {"result": {"rejected": {"command": "rm -r x", "reason": ""}}}},
                },
                DONE,
            ),
            b"",
            "shell",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_cli_reports_a_denied_call_in_its_own_way(provider: str, stdout: bytes, stderr: bytes, tool: str) -> None:
    reader = run_of(provider, stdout, stderr).reader

    assert (reader.outcome, reader.denials) == ("denied", 1)
    assert (reader.denial_reason or "").startswith(f"{tool} was denied once: ")


@each_row(
    ("provider", "stdout"),
    [
        (
            "codex",
            lines(THREAD, codex_command("mount: Read-only file system", exit_code=0, status="completed"), CODEX_DONE),
        ),
        ("codex", lines(THREAD, codex_command("tee: /proc/sys/vm/x: Read-only file system"), CODEX_DONE)),
        ("codex", lines(THREAD, codex_command("x" * 900 + "rejected by user approval settings"), CODEX_DONE)),
        (
            "codex",
            lines(
                THREAD,
                {
                    "type": "item.completed",
                    "item": {
                        "id": "i",
                        "type": "agent_message",
                        "text": "It is a Read-only file system: rejected by user approval settings, sandbox denied.",
                    },
                },
                CODEX_DONE,
            ),
        ),
        (
            "claude-code",
            lines(
                INIT,
                ANSWER,
                {
                    "type": "user",
                    "session_id": "s1",
                    "message": {
                        "role": "user",
                        "content": [{"type": "tool_result", "is_error": True, "content": "cp: x: Permission denied"}],
                    },
                },
                DONE | {"permission_denials": []},
            ),
        ),
        (
            "gemini-cli",
            lines(
                GEMINI_INIT,
                {
                    "type": "tool_result",
                    "timestamp": "t",
                    "tool_id": "c",
                    "status": "error",
                    "error": {"type": "tool_not_registered", "message": 'Tool "make_coffee" not found in registry.'},
                },
                {
                    "type": "tool_result",
                    "timestamp": "t",
                    "tool_id": "d",
                    "status": "success",
                    "output": "denied by policy",
                },
                {"type": "result", "timestamp": "t", "status": "success", "stats": {}},
            ),
        ),
        (
            "opencode",
            lines(
                {
                    "type": "tool_use",
                    "sessionID": "s",
                    "part": {
                        "tool": "read",
                        "callID": "c",
                        "state": {
                            "status": "completed",
                            "output": "The user rejected permission to use this specific tool call.",
                        },
                    },
                },
                {"type": "step_finish", "sessionID": "s", "part": {"reason": "stop"}},
            ),
        ),
    ],
)
def test_words_about_denials_in_the_agents_work_are_none(provider: str, stdout: bytes) -> None:
    reader = run_of(provider, stdout).reader

    assert (reader.outcome, reader.denials, reader.denial_reason) == ("success", 0, None)


def test_only_three_tools_are_named() -> None:
    record = DenialRecord()
    record.add(tuple(Denial(tool=name) for name in ("A", "B", "C", "D", "E")), is_list=False)

    assert (record.reason or "").startswith("A, B, C and other tools were denied 5 times: ")


def test_a_run_that_ends_where_a_call_was_denied_is_denied() -> None:
    denied = {"status": "error", "error": "The user rejected permission to use this specific tool call."}
    tool = {"type": "tool_use", "sessionID": "s", "part": {"tool": "bash", "callID": "c1", "state": denied}}
    end = {"type": "step_finish", "sessionID": "s", "part": {"reason": "tool-calls"}}
    notice = b"! permission requested: external_directory (/etc/*); auto-rejecting\n"

    assert run_of("opencode", lines(tool, end), notice).reader.outcome == "denied"
    assert run_of("opencode", lines(end)).reader.outcome == "interrupted"
    assert run_of("opencode", lines(tool, end), notice, exit_code=143).reader.outcome == "interrupted"
