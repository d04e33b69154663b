"""Denied tool calls: each is counted once, and the sentence says what to do."""

import pytest
from tests.detect.agent_output import ANSWER, DONE, GEMINI_INIT, INIT, THREAD, AgentRun, lines

from paceline.detect.denials import DenialRecord
from paceline.detect.run_facts import Denial

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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
