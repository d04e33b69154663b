"""`logs`: the output of the last attempt."""

import json
from pathlib import Path

from tests.cli.conftest import Workspace, finish, read_until
from tests.cli.terminal import on_terminal

from paceline.daemon.home import open_home
from paceline.testing.store_steps import add, claim, ended, record, specs, stored


def test_logs_show_the_last_try_and_pass_bytes_to_a_pipe(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan(r"printf 'out \033[31mred\n'; echo err >&2", "a"))

    code, out, _ = finish(workspace.start("logs", "a"))

    assert code == 0
    assert "\x1b[31mred" in out
    assert workspace.run_json("logs", "docs/a")["stderr"] == "err\n"
    assert workspace.run("logs", "a", "--channel", "stderr").stdout == "err\n"


def test_logs_of_what_never_ran_say_so(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    assert "has not been started yet" in workspace.run("logs", "a", code=2).stderr


def test_logs_of_a_session_that_never_began_do_not_say_that_they_were_removed(workspace: Workspace) -> None:
    with open_home() as home:
        add(home.store, specs("a"))
        claim(home.store)
        record(home.store, [ended(stored(home.store, "night/a"), "barred")])

    said = workspace.run("logs", "a", code=2).stderr

    assert said == (
        "Error: night/a has no output: its session never began, or the output has been removed (attempt attempt-0)\n"
    )


def test_logs_on_a_terminal_hold_nothing_that_steers_it(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan(r"printf 'plain\033]0;owned\007\033[2Jtext\n'", "a"))

    with on_terminal(workspace, "logs", "a") as terminal:
        terminal.wait_end()

    assert b"\x1b" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "plain" in terminal.text


EVENTS = [
    {"type": "system", "subtype": "init", "session_id": "s1", "model": "opus", "apiKeySource": "none"},
    {"type": "assistant", "session_id": "s1", "message": {"content": [{"type": "text", "text": "Looking \x1b[31m."}]}},
    {
        "type": "assistant",
        "session_id": "s1",
        "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]},
    },
    {
        "type": "user",
        "session_id": "s1",
        "message": {"content": [{"type": "tool_result", "content": "no such file", "is_error": True}]},
    },
    {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "session_id": "s1"},
]
TRANSCRIPT = """\
notice  session s1, model opus
said    Looking .
tool    Bash ls
error   no such file
said    Done.
notice  turn ended
"""


def agent_plan(workspace: Workspace, script: str) -> Path:
    """Write a plan whose agent is read as Claude Code, and runs a script instead."""
    workspace.write("events.jsonl", "".join(json.dumps(event) + "\n" for event in EVENTS))
    workspace.write(
        "paceline.toml",
        '[agents.mine]\nprovider = "claude-code"\nstream = "json"\n'
        f'start = ["sh", "-c", {json.dumps(script)}, "{{prompt}}"]\n',
    )
    return workspace.write(
        "docs.toml", '[campaign]\nname = "docs"\nagent = "mine"\n[[unit]]\nid = "a"\nprompt = "do a"\n'
    )


def test_events_of_an_agent_are_shown_as_a_transcript_and_raw_as_they_are(workspace: Workspace) -> None:
    workspace.run("run", agent_plan(workspace, "cat events.jsonl; echo a warning >&2"))

    code, shown, _ = finish(workspace.start("logs", "a"))
    _, raw, _ = finish(workspace.start("logs", "a", "--raw"))

    assert code == 0
    assert shown == TRANSCRIPT + "a warning\n"
    assert [json.loads(line) for line in raw.splitlines()[:-1]] == EVENTS
    assert [json.loads(line) for line in workspace.run_json("logs", "a")["stdout"].splitlines()] == EVENTS


def test_a_transcript_on_a_terminal_holds_nothing_of_the_agent_that_steers_it(workspace: Workspace) -> None:
    workspace.run("run", agent_plan(workspace, "cat events.jsonl"))

    with on_terminal(workspace, "logs", "a") as terminal:
        terminal.wait_end()

    assert b"\x1b[31m" not in terminal.raw
    assert "tool    Bash ls" in terminal.text


def test_a_transcript_is_followed_while_the_agent_works(workspace: Workspace) -> None:
    workspace.run("add", agent_plan(workspace, "cat events.jsonl; while [ ! -e stop ]; do sleep 0.05; done; echo bye"))
    run = workspace.start("run", "docs.toml")
    read_until(workspace.start("events", "--follow", "--unit", "docs/a"), "started")

    follower = workspace.start("logs", "a", "--follow")
    seen = read_until(follower, "turn ended")
    workspace.write("stop", "")
    _, rest, _ = finish(follower)

    assert seen == TRANSCRIPT
    assert rest == "bye\n"
    assert finish(run)[0] == 0
