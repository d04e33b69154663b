"""docs/overnight.md, followed from scratch with a stand-in for the CLI: every file and command on the page works."""

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace, finish, read_until

PAGE = (Path(__file__).parents[2] / "docs" / "overnight.md").read_text("utf-8")
SETTINGS, PLAN = re.findall(r"^```toml\n(.*?)^```", PAGE, re.S | re.M)
COMMANDS = re.findall(r"^    (?:\S+=\S+ )?(paceline .*?)(?: +#.*| && .*)?$", PAGE, re.M)
INIT = '{"type":"system","subtype":"init","session_id":"s-%s","apiKeySource":"none","model":"claude-opus-4-6"}'
RESULT = (
    '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok","session_id":"s-%s",'
    '"usage":{"input_tokens":5,"output_tokens":7}}'
)
STAND_IN = f"""#!/bin/sh
[ "$1" = --version ] && exec echo "2.1.0 (Claude Code)"
[ -z "$ANTHROPIC_API_KEY" ] || exit 9
echo "$CLAUDE_CONFIG_DIR" >> "$HOME/sessions"
echo '{INIT % "1"}'
while [ -e "$HOME/closed" ]; do sleep 0.05; done
echo '{RESULT % "1"}'
"""


@pytest.fixture
def night(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The folder of the page, up to its step 3."""
    tools = workspace.folder / "bin"
    tools.mkdir()
    (tools / "claude").write_text(STAND_IN)
    (tools / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-day")
    login = workspace.folder / ".claude-max-1"
    login.mkdir()
    (login / ".credentials.json").touch()
    workspace.write("paceline.toml", SETTINGS)
    workspace.write("docs.toml", PLAN)
    (workspace.folder / "tasks").mkdir()
    workspace.write("tasks/parser.md", "Write docstrings.")
    workspace.write("tasks/lexer.md", "Write docstrings.")
    return workspace


def test_the_machine_is_found_well_and_the_plan_would_start(night: Workspace) -> None:
    assert "Nothing is wrong." in night.run("doctor").stdout
    assert "2 would start now (2 on max-1)" in night.run("preview", "docs.toml").stdout


def test_the_night_ends_with_everything_done_on_the_subscription(night: Workspace) -> None:
    code, out, err = finish(night.start("run", "docs.toml"))

    assert (code, err) == (0, "")
    assert "docs: 2 done" in out
    assert (night.folder / "sessions").read_text().splitlines() == [f"{night.folder}/.claude-max-1"] * 2


def test_every_command_of_the_page_works_while_it_runs(night: Workspace) -> None:
    (night.folder / "closed").touch()
    engine = night.start("run", "docs.toml")
    read_until(engine, "started docs/parser")

    commands = [line.replace("UNIT", "docs/parser").split()[1:] for line in COMMANDS]
    for argv in [argv for argv in commands if argv[0] != "run"]:
        night.run(*argv)
    (night.folder / "closed").unlink()

    assert {argv[0] for argv in commands} >= {
        "doctor",
        "preview",
        "run",
        "status",
        "why",
        "logs",
        "limits",
        "pool",
        "list",
    }
    assert finish(engine)[0] == 0
