"""`logs`: the output of the last attempt."""

from tests.cli.conftest import Workspace, finish
from tests.cli.terminal import on_terminal


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


def test_logs_on_a_terminal_hold_nothing_that_steers_it(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan(r"printf 'plain\033]0;owned\007\033[2Jtext\n'", "a"))

    with on_terminal(workspace, "logs", "a") as terminal:
        terminal.wait_end()

    assert b"\x1b" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "plain" in terminal.text
