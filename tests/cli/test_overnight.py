"""docs/overnight.md: its files are those of the example, and its commands work, with a stand-in for the CLI."""

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Workspace
from typer.testing import CliRunner

from paceline.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "overnight.md").read_text("utf-8")
SETTINGS, PLAN = re.findall(r"^```toml\n(.*?)^```", PAGE, re.S | re.M)
COMMANDS = re.findall(r"^    (?:\$ )?(paceline .*?)(?: +#.*)?$", PAGE, re.M)
CLAUDE = """\
echo '{"type":"system","subtype":"init","session_id":"s-1","apiKeySource":"none","model":"claude-opus-4-6"}'
WORK
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok","session_id":"s-1",\
"usage":{"input_tokens":5,"output_tokens":7}}'
"""
CODEX = """\
echo '{"type":"thread.started","thread_id":"t-1"}'
WORK
echo '{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":0,"output_tokens":7}}'
"""
STAND_IN = """#!/bin/sh
[ "$1" = --version ] && exec echo "2.1.0 (Claude Code)"
[ -z "$ANTHROPIC_API_KEY" ] || exit 9
echo "$PACELINE_UNIT $CLAUDE_CONFIG_DIR" >> "$HOME/sessions"
"""
WORK = """\
case "$*" in *resume*) export PACELINE_CHECK_OUTPUT=failed;; esac
python3 "$HOME/stand_in.py" < "$HOME/tasks/$PACELINE_UNIT.md" >&2\
"""
TASKS = ("feet_to_metres", "gallons_to_litres", "metres_to_yards", "stones_to_kilograms", "is_leap_year")
"""Those that the page names: fewer sessions make the same night."""
NIGHT_SECONDS = 180
CONFLICT = 1
ENDLESS = ("run", "top")


def example() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / "overnight" / "repository.py"))


@pytest.fixture
def night(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The folder of the page, up to its step 3, with two of its tasks."""
    tools, login = workspace.folder / "bin", workspace.folder / ".claude-max-1"
    example()["make_night"](workspace.folder, has_stand_in=False)
    for path in workspace.folder.glob("tasks/*/*.md"):
        if path.stem not in TASKS:
            path.unlink()
    workspace.write("stand_in.py", example()["STAND_IN"])
    tools.mkdir()
    for name, script in (("claude", CLAUDE), ("codex", CODEX)):
        (tools / name).write_text(STAND_IN + script.replace("WORK", WORK))
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-day")
    monkeypatch.setenv("TEAM_KEY", "sk-of-the-team")
    login.mkdir()
    (login / ".credentials.json").touch()
    return workspace


def test_the_page_shows_the_files_that_the_example_makes(night: Workspace) -> None:
    assert (night.folder / "paceline.toml").read_text() == SETTINGS
    assert (night.folder / "metric.toml").read_text() == PLAN


def test_the_machine_is_found_well_and_the_plan_would_start(night: Workspace) -> None:
    assert "Nothing that was checked is wrong." in night.run("doctor").stdout
    assert "4 would start now (4 on max-1)" in night.run("preview", "metric.toml").stdout


def merge_by_hand(night: Workspace) -> None:
    """Do what the page does in an editor: keep the lines of both units."""
    names = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    merge = ("merge", "-q", "--no-edit", "-X", "theirs", "paceline/metric/metres_to_yards")
    subprocess.run(["git", *names, *merge], cwd=night.folder / "measures", check=True)


def test_every_command_of_the_page_ends_as_it_does_there(night: Workspace, runner: CliRunner) -> None:
    out, err = night.start("run", "metric.toml", "science.toml").communicate(timeout=NIGHT_SECONDS)
    assert ("metric: 4 done" in out, "science: 1 unverified" in out, err) == (True, True, "")
    sessions = (night.folder / "sessions").read_text().splitlines()
    assert {line.split()[1] for line in sessions if line.startswith("metric/")} == {f"{night.folder}/.claude-max-1"}
    codes: list[tuple[str, int]] = []
    for line in COMMANDS:
        argv = line.split()[1:]
        if line == "paceline apply metric" and codes.count((line, CONFLICT)) == 2:
            merge_by_hand(night)
        if argv[0] not in ENDLESS:
            codes.append((line, runner.invoke(app, argv).exit_code))

    assert [each for each in codes if each[1]] == [
        ("paceline apply metric --dry-run", CONFLICT),
        ("paceline apply metric", CONFLICT),
        ("paceline apply metric", CONFLICT),
    ]
    named = {line.split()[1] for line, _ in codes}
    assert named >= {"doctor", "preview", "summary", "results", "show", "logs", "why", "diff", "accept", "apply", "gc"}
