"""`paceline exec`: any command inside a slot, whoever decides about slots just now."""

import os
import signal
import sys

import pytest
from tests.cli.conftest import PATIENCE_SECONDS, Workspace, finish, lines_of, read_until
from tests.cli.terminal import COLUMNS, ROWS, on_terminal
from tests.executors.conftest import is_gone, until

GATED = "echo {0} >> starts; echo {0} runs; while [ ! -e {0}.go ]; do sleep 0.05; done; echo {0} >> ends"


def test_the_exit_code_and_output_are_the_commands(workspace: Workspace) -> None:
    code, out, err = finish(workspace.start("exec", "--", "sh", "-c", "echo out; echo err >&2; exit 7"))

    assert (code, out, err) == (7, "out\n", "err\n")


def test_options_after_the_command_are_its_own(workspace: Workspace) -> None:
    assert finish(workspace.start("exec", "--", "echo", "--json", "-x"))[1] == "--json -x\n"


def test_a_program_that_is_not_there_is_127(workspace: Workspace) -> None:
    code, _, err = finish(workspace.start("exec", "--", "no-such-program"))

    assert code == 127
    assert "no-such-program" in err


def test_it_waits_for_its_place_and_says_why(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    first = workspace.start("exec", "--", "sh", "-c", GATED.format("a"))
    read_until(first, "a runs")

    second = workspace.start("exec", "--", "sh", "-c", GATED.format("b"))
    assert second.stderr is not None
    assert "sessions at its limit (1/1)" in second.stderr.readline()
    assert lines_of(workspace.folder / "starts") == ["a"]
    (workspace.folder / "a.go").touch()
    (workspace.folder / "b.go").touch()

    assert finish(first)[0] == finish(second)[0] == 0
    assert lines_of(workspace.folder / "ends") == ["a", "b"]


def test_an_engine_that_stands_still_is_named_to_who_waits_for_it(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan("while [ ! -e go ]; do sleep 0.05; done", "a"))
    read_until(engine, "started docs/a")
    os.kill(engine.pid, signal.SIGSTOP)
    waiting = workspace.start("exec", "--", "echo", "hi")
    assert waiting.stderr is not None
    said = next(line for line in waiting.stderr if line.startswith("nobody"))
    os.kill(engine.pid, signal.SIGCONT)
    (workspace.folder / "go").touch()

    assert (finish(waiting)[:2], finish(engine)[0]) == ((0, "hi\n"), 0)
    assert said == (
        f"nobody gets a slot: process {engine.pid} of the engine is stopped or frozen; "
        f"`kill -CONT {engine.pid}` continues one that was stopped\n"
    )


def test_an_engine_takes_over_and_counts_what_is_held(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    held = workspace.start("exec", "--", "sh", "-c", GATED.format("a"))
    read_until(held, "a runs")

    engine = workspace.start("run", workspace.plan("echo unit >> ends", "u"))
    read_until(engine, "waits docs: sessions at its limit (1/1)")
    (workspace.folder / "a.go").touch()

    assert finish(engine)[0] == finish(held)[0] == 0
    assert lines_of(workspace.folder / "ends") == ["a", "unit"]


def test_one_that_was_killed_gives_its_place_back(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    first = workspace.start("exec", "--", "sh", "-c", "echo runs; exec sleep 60")
    read_until(first, "runs")
    first.kill()
    first.wait()

    assert finish(workspace.start("exec", "--", "echo", "next"))[1] == "next\n"


def test_one_that_was_killed_takes_its_command_with_it(workspace: Workspace) -> None:
    first = workspace.start("exec", "--", "sh", "-c", "echo pid $$; exec sleep 60")
    pid = int(read_until(first, "pid").split()[-1])
    first.kill()
    first.wait()

    until(lambda: is_gone(pid))


TREE = """
sleep 60 & first=$!
setsid sh -c 'env -i sleep 60 & echo $! > daemon; wait' &
while [ ! -s daemon ]; do sleep 0.02; done
echo pids $$ $first $(cat daemon)
wait
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_was_ended_takes_its_whole_process_tree_with_it(workspace: Workspace, number: signal.Signals) -> None:
    first = workspace.start("exec", "--", "sh", "-c", TREE)
    pids = [int(pid) for pid in read_until(first, "pids").split()[1:]]

    first.send_signal(number)
    first.wait(PATIENCE_SECONDS)

    until(lambda: all(is_gone(pid) for pid in pids))


def test_one_that_is_asked_to_end_lets_its_command_end_in_order(workspace: Workspace) -> None:
    script = "trap 'echo cleaned; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    first = workspace.start("exec", "--", "sh", "-c", script)
    read_until(first, "ready")

    first.terminate()

    assert finish(first)[:2] == (9, "cleaned\n")


def test_a_background_process_of_a_command_that_ended_well_is_left_alone(workspace: Workspace) -> None:
    code, out, _ = finish(workspace.start("exec", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"))

    assert code == 0
    assert not is_gone(int(out))
    os.kill(int(out), signal.SIGKILL)


def test_inside_a_unit_it_uses_the_units_own_slot(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    inner = f'{sys.executable} -m paceline exec -- sh -c "echo \\$PACELINE_UNIT >> ends"'

    code, out, err = finish(workspace.start("run", workspace.plan(inner, "a", head="timeout = '60s'")))

    assert (code, err) == (0, "")
    assert "docs: 1 done" in out
    assert lines_of(workspace.folder / "ends") == ["docs/a"]


@pytest.mark.parametrize("inner", ["exec --", "exec -- {python} -m paceline exec --"])
def test_inside_another_exec_it_uses_the_slot_of_that_one(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    inner = inner.format(python=sys.executable)

    script = f"{sys.executable} -m paceline {inner} echo inside"
    code, out, err = finish(workspace.start("exec", "--", "sh", "-c", script))

    assert (code, out, err) == (0, "inside\n", "")


def test_an_agent_inside_another_exec_is_never_billed_by_a_key(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    put_claude_on_path(workspace, monkeypatch, 'echo "key: $ANTHROPIC_API_KEY"')

    script = f"{sys.executable} -m paceline exec -- claude --model opus-4-6"
    assert finish(workspace.start("exec", "--", "sh", "-c", script))[1] == "key: \n"


def test_a_plain_command_teaches_nothing_about_logins(workspace: Workspace) -> None:
    refused = "echo 'HTTP 401 Unauthorized: invalid api key' >&2; exit 1"

    assert finish(workspace.start("exec", "--scope", "acme/me", "--", "sh", "-c", refused))[0] == 1
    assert finish(workspace.start("exec", "--scope", "acme/me", "--", "sh", "-c", "exit 3"))[0] == 3


def test_the_limit_of_a_plain_command_is_its_own(workspace: Workspace) -> None:
    message = "HTTP 429 Too Many Requests: rate limit exceeded, retry after 50 seconds"
    limited = workspace.start("exec", "--", "sh", "-c", f"echo '{message}' >&2; exit 1")
    assert limited.stderr is not None
    assert [limited.stderr.readline() for _ in range(2)][1].startswith("paceline: sh met a limit; it runs again in 50")

    assert finish(workspace.start("exec", "--", "sh", "-c", "echo free")) == (0, "free\n", "")


def test_a_command_that_meets_a_limit_is_run_again(workspace: Workspace) -> None:
    message = "HTTP 429 Too Many Requests: rate limit exceeded, retry after 1 seconds"
    limited = f"echo try >> tries; [ -e again ] && exit 0; touch again; echo '{message}' >&2"

    code, _, err = finish(workspace.start("exec", "--scope", "acme/me", "--", "sh", "-c", f"{limited}; exit 1"))

    assert code == 0
    assert "it runs again when there is room" in err
    assert "acme/me is paused" in err
    assert lines_of(workspace.folder / "tries") == ["try", "try"]


def test_an_agent_that_reaches_nobody_is_run_again_when_the_outage_is_over(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"type":"result","is_error":true,"result":"API Error: Connection error.","session_id":"s1"}'
    outage = f"echo try >> tries; [ -e back ] && echo answer && exit 0; touch back; echo '{said}'; exit 1"
    put_claude_on_path(workspace, monkeypatch, outage)

    code, out, err = finish(workspace.start("exec", "--", "claude", "-p", "hi"))

    assert code == 0
    assert out.endswith("answer\n")
    assert "paceline: claude reached nobody; it runs again when there is room" in err
    assert "waits: anthropic/default cannot be reached" in err
    assert lines_of(workspace.folder / "tries") == ["try", "try"]


def test_a_plain_command_that_reaches_nobody_ends_with_its_own_exit_code(workspace: Workspace) -> None:
    refused = "echo 'curl: (6) Could not resolve host: example.com' >&2; exit 6"

    assert finish(workspace.start("exec", "--", "sh", "-c", refused))[0] == 6
    assert finish(workspace.start("exec", "--scope", "acme/me", "--", "sh", "-c", refused))[0] == 6


def test_a_subscription_is_never_billed_by_a_key(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    workspace.write(
        "paceline.toml",
        '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\nenv = { CLAUDE_CONFIG_DIR = "~/.max" }',
    )
    show = 'echo "$CLAUDE_CONFIG_DIR:$ANTHROPIC_API_KEY"'

    _, out, _ = finish(workspace.start("exec", "--scope", "anthropic/max-1/opus-4-6", "--", "sh", "-c", show))

    assert out == f"{workspace.folder}/.max:\n"


def put_claude_on_path(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = workspace.write("claude", f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace.folder}:{os.environ['PATH']}")


def test_an_agent_without_a_scope_has_the_caps_of_its_default_login(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_LIMITS", "anthropic/*/opus-*=1")
    put_claude_on_path(workspace, monkeypatch, GATED.format("$2"))
    first = workspace.start("exec", "--", "claude", "--name", "a", "--model=claude-opus-4-6")
    read_until(first, "a runs")

    second = workspace.start("exec", "--", "claude", "--name", "b", "--model", "opus-4-6")
    assert second.stderr is not None
    waits = next(line for line in second.stderr if "waits:" in line)
    assert "opus-4-6 at its cap (1/1) on default" in waits
    (workspace.folder / "a.go").touch()
    (workspace.folder / "b.go").touch()

    assert finish(first)[0] == finish(second)[0] == 0


def test_an_agent_without_a_scope_is_never_billed_by_a_key(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    put_claude_on_path(workspace, monkeypatch, 'echo "key: $ANTHROPIC_API_KEY"')

    assert finish(workspace.start("exec", "--", "claude", "--model", "opus-4-6"))[1] == "key: \n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scope", "anthropic"], "names no account and no model"),
        (["--scope", "sessions"], "not a provider path"),
        (["--scope", "a//b"], "a//b"),
        (["--agent", "cluade"], 'did you mean "claude"?'),
    ],
)
def test_wrong_use_starts_nothing(workspace: Workspace, options: list[str], said: str) -> None:
    refused = workspace.run("exec", *options, "--", "touch", "ran", code=2)

    assert said in refused.stderr
    assert not (workspace.folder / "ran").exists()


def test_exec_gives_its_command_a_terminal(workspace: Workspace) -> None:
    script = "test -t 0 && test -t 1 && stty size; printf 'name? '; read name; echo hello $name; exit 5"

    with on_terminal(workspace, "exec", "--", "sh", "-c", script) as terminal:
        terminal.wait_for(lambda text: "name?" in text)
        terminal.type(b"bob\r")
        code = terminal.wait_end()

    assert f"{ROWS} {COLUMNS}" in terminal.text
    assert "hello bob" in terminal.text
    assert code == 5


def test_ctrl_c_is_the_commands_to_answer(workspace: Workspace) -> None:
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"

    with on_terminal(workspace, "exec", "--", "sh", "-c", script) as terminal:
        terminal.wait_for(lambda text: "ready" in text)
        terminal.type(b"\x03")
        code = terminal.wait_end()

    assert "caught" in terminal.text
    assert code == 9
