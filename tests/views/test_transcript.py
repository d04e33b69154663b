"""Transcripts as text: what each agent CLI prints, as a person reads it."""

import json
import re
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.detect.sample_files import GOLDEN

from paceline.agents.dialect import TranscriptEntry
from paceline.agents.transcript_reader import TranscriptReader
from paceline.executors.process import LAST_SCREEN, TERMINAL_MARK
from paceline.views.transcript import SCREEN_BYTES, TranscriptText, last_output

UTC = ZoneInfo("UTC")
VARYING = {
    r"session [\w-]+": "session ID",
    r"in [\d.]+ s:": "in T s:",
    r"[\d,]+ (input|output)": r"N \1",
    r"until [\d-]+ [\d:]+ UTC": "until TIME",
    r"resets [\d:]+[ap]m": "resets TIME",
}
"""What differs each time that the CLIs are recorded again."""
RECORDINGS = {
    ("claude-code", "recorded/claude/denied.out"): """\
notice  session ID, model claude-opus-4-8[1m]
said    Answer 1 to message 1 of this conversation: hi
tool    Write /home/user/work/new.txt
error   Claude requested permissions to write to /home/user/work/new.txt, but you haven't granted it yet.
said    Answer 2 to message 1 of this conversation: hi
notice  turn ended; tokens: N input, N output
""",
    ("claude-code", "recorded/claude-newest/429_then_ok.out"): """\
notice  session ID, model claude-opus-5-5
notice  retry in T s: rate limited (status 429)
notice  retry in T s: rate limited (status 429)
said    Answer 1 to message 1 of this conversation: hi
notice  turn ended; tokens: N input, N output
""",
    ("claude-code", "recorded/claude-newest/429_unified.oauth.out"): """\
notice  session ID, model claude-sonnet-5-5
error   usage limit reached (5h window), until TIME
error   You've hit your 5-hour limit · resets TIME (UTC)
""",
    ("codex", "recorded/codex/denied.out"): """\
notice  session ID
error   Model metadata for `gpt-5` not found. Defaulting to fallback metadata; this can degrade performance and cause \
issues.
said    Answer 1 to message 2 of this conversation: hi
tool    shell /bin/bash -lc 'touch new.txt'
error   touch: cannot touch 'new.txt': Read-only file system
said    Answer 3 to message 2 of this conversation: hi
notice  turn ended; tokens: N input, N output
""",
    ("gemini-cli", "recorded/gemini/denied.out"): """\
notice  session ID, model gemini-2.5-pro
said    Answer 1 to message 1 of this conversation: hi
tool    write_file /home/user/work/new.txt
error   Tool "write_file" not found. Did you mean one of: "read_file", "update_topic", "grep_search"?
said    Answer 2 to message 1 of this conversation: hi
notice  turn ended; tokens: N input, N output
""",
    ("opencode", "recorded/opencode/denied.out"): """\
notice  session ID
tool    bash
error   The arguments provided to the tool are invalid: Model tried to call unavailable tool 'bash'. Available tools: \
apply_patch, glob, grep, invalid, read, skill, task, todowrite, webfetch.
said    Answer 1 to message 1 of this conversation: hi
said    Answer 2 to message 1 of this conversation: hi
notice  turn ended; tokens: N input, N output
""",
    ("qwen-code", "recorded/qwen-newest/denied.out"): """\
notice  session ID, model qwen3-coder
said    Answer 1 to message 1 of this conversation: hi
tool    write_file /home/user/work/new.txt
error   Qwen Code requires permission to use "write_file", but that permission was declined. Matching deny rule: "edit".
said    Answer 2 to message 1 of this conversation: hi
notice  turn ended; tokens: N input, N output
""",
    ("copilot-cli", "golden/copilot/success.anthropic.out"): """\
said    Hello from the fake upstream.
notice  model claude-sonnet-4
notice  session ID
notice  turn ended
""",
}


def transcript(provider: str, output: bytes) -> str:
    reader, text = TranscriptReader(provider), TranscriptText(UTC)
    passages = [*text.passages(reader.feed(output)), *text.passages(reader.flush()), *text.close()]
    return "".join(passage.text for passage in passages)


def lines(*events: dict[str, object]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def text_of(*entries: TranscriptEntry) -> str:
    text = TranscriptText(UTC)
    return "".join(passage.text for passage in (*text.passages(entries), *text.close()))


@pytest.mark.parametrize(("provider", "recording"), RECORDINGS)
def test_a_recorded_run_is_shown_as_what_was_said_and_done(provider: str, recording: str) -> None:
    shown = transcript(provider, (GOLDEN.parent / recording).read_bytes())

    for pattern, name in VARYING.items():
        shown = re.sub(pattern, name, shown)
    assert shown == RECORDINGS[provider, recording]


def test_a_tool_and_its_result_are_shown_for_each_form_of_stream() -> None:
    call = {"command": "make test"}
    streams = {
        "claude-code": lines(
            {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash", "input": call}]}},
            {"type": "user", "message": {"content": [{"type": "tool_result", "content": [{"text": "ok\nfine"}]}]}},
        ),
        "codex": lines(
            {"type": "item.started", "item": {"type": "command_execution", "command": "make test"}},
            {
                "type": "item.completed",
                "item": {"type": "command_execution", "aggregated_output": "ok\nfine\n", "exit_code": 0},
            },
        ),
        "gemini-cli": lines(
            {"type": "tool_use", "tool_name": "run_shell_command", "parameters": call},
            {"type": "tool_result", "status": "success", "output": "ok\nfine"},
        ),
        "opencode": lines(
            {
                "type": "tool_use",
                "part": {"tool": "bash", "state": {"status": "completed", "input": call, "output": "ok\nfine"}},
            }
        ),
        "copilot-cli": lines(
            {"type": "tool.execution_start", "data": {"toolName": "bash", "arguments": call}},
            {"type": "tool.execution_complete", "data": {"success": True, "result": {"content": "ok\nfine"}}},
        ),
    }
    names = {"claude-code": "Bash", "codex": "shell", "gemini-cli": "run_shell_command"}

    for provider, stream in streams.items():
        name = names.get(provider, "bash")
        assert transcript(provider, stream) == f"tool    {name} make test\nresult  ok\n        fine\n"


def test_a_change_of_files_by_codex_names_the_files() -> None:
    changes = [{"path": "/a.py", "kind": "update"}, {"path": "/b.py", "kind": "add"}]
    stream = lines(
        {"type": "item.completed", "item": {"type": "file_change", "changes": changes, "status": "completed"}},
        {"type": "item.completed", "item": {"type": "web_search", "id": "i", "query": "how"}},
        {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    )

    assert transcript("codex", stream) == "tool    apply_patch /a.py, /b.py\ntool    web_search how\n"


def test_nothing_that_an_agent_prints_steers_a_terminal_or_passes_for_another_entry() -> None:
    said = "\x1b[31mred\x1b]0;owned\x07\ntool    rm -rf /\r\n\x9b2J\u202eend"

    shown = text_of(TranscriptEntry(kind="said", text=said), TranscriptEntry(kind="plain", text="\x1b[2Jline\x07"))

    assert shown == "said    red\n        tool    rm -rf /\n        �2J�end\nline�\n"


def test_pieces_of_a_message_continue_on_one_line() -> None:
    pieces = [TranscriptEntry(kind="said", text=text, is_piece=True) for text in (" one", " two\n", "three")]

    assert text_of(*pieces, TranscriptEntry(kind="notice", text="x")) == "said    one two\n        three\nnotice  x\n"
    assert text_of(*pieces[:1]) == "said    one\n"


def test_a_reset_beyond_all_dates_is_shown_as_unknown() -> None:
    assert (
        text_of(TranscriptEntry(kind="notice", text="limit", resets_at=1e300))
        == "notice  limit, until an unknown time\n"
    )


def test_the_end_of_a_long_output_is_read_alone_and_without_its_cut_line(tmp_path: Path) -> None:
    texts = (f"message {number:06d}" for number in range(20_000))
    said: list[dict[str, object]] = [{"type": "text", "sessionID": "s", "part": {"text": text}} for text in texts]
    (tmp_path / "stdout").write_bytes(lines(*said))
    (tmp_path / "stderr").write_text("a \x1b[31mwarning\n")

    shown = last_output(str(tmp_path), "opencode", UTC).splitlines()

    assert shown[-2:] == ["said    message 019999", "a warning"]
    assert [line[:8] for line in shown[:-1]] == ["said    "] * (len(shown) - 1)
    assert len("\n".join(shown)) <= SCREEN_BYTES + 20


def test_the_last_screen_is_shown_for_a_session_in_a_terminal_and_for_plain_output(tmp_path: Path) -> None:
    event = lines({"type": "text", "sessionID": "s", "part": {"text": "hello"}})
    (tmp_path / "stdout").write_bytes(event)
    as_plain = last_output(str(tmp_path), None, UTC)
    (tmp_path / TERMINAL_MARK).touch()
    (tmp_path / LAST_SCREEN).write_text("drawn\n")

    assert as_plain == event.decode()
    assert last_output(str(tmp_path), "opencode", UTC) == "drawn\n"
