"""The command as a whole: help that teaches, clear words and exit code 2 for wrong use."""

import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace
from tests.cli.shell import accept_interrupts
from typer.testing import CliRunner

from paceline.cli import commands
from paceline.cli.main import COMMANDS, app


def test_the_version_is_the_packages(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.strip() == f"paceline {version('paceline')}"


def test_help_names_every_command_and_where_to_begin(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--help"])

    assert result.exit_code == 0
    for word in ("Start with paceline demo", "Exit codes", *NAMES):
        assert word in result.stdout


NAMES = [name for names in COMMANDS.values() for name in names]
WITHOUT_JSON = {"exec", "gateway", "keys", "store", "token", "top", "worker"}


def test_a_command_is_one_module_and_one_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(commands.__path__)}

    assert modules == set(NAMES)


@pytest.mark.parametrize("command", NAMES)
def test_every_command_has_help(runner: CliRunner, command: str) -> None:
    result = runner.invoke(app, [command, "--help"])

    assert result.exit_code == 0
    assert "--json" in result.stdout or command in WITHOUT_JSON


def test_exec_has_help_too(runner: CliRunner) -> None:
    assert "--scope" in runner.invoke(app, ["exec", "--help"]).stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["detect"], "FILE"),
        (["detect", "-", "--colour"], "--colour"),
        (["detect", "no/such/file"], "no/such/file"),
        (["detect", "."], "cannot read"),
        (["detect", "-", "--channel", "smoke"], "smoke"),
        (["detect", "-", "--tz", "Mars/Olympus"], "Mars/Olympus"),
        (["detect", "-", "--tz", "../../etc/passwd"], "no time zone"),
        (["detect", "-", "--seen-at", "yesterday"], "yesterday"),
        (["detect", "-", "--seen-at", "nan"], "nan"),
        (["detect", "-", "--seen-at", "-5"], "-5"),
        (["detect", "-", "--status", "42"], "--status"),
        (["detect", "-", "--header", "no colon here"], "no colon here"),
        (["detect", "-", "--stream", "--channel", "http"], "http"),
        (["detect", "-", "--stderr", "x"], "--stream"),
        (["detect", "-", "--stream", "--stderr", "-"], "twice"),
    ],
)
def test_wrong_use_exits_with_2_and_names_what_was_wrong(runner: CliRunner, wrong: list[str], said: str) -> None:
    result = runner.invoke(app, wrong, input="")

    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("paceline pa", "pause"),
        ("paceline why ", "docs/"),
        ("paceline why docs/", "docs/a"),
        ("paceline pause ", "docs"),
    ],
)
def test_the_shell_completes_commands_campaigns_and_units(workspace: Workspace, typed: str, offered: str) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    words = typed.split(" ")
    asked = {"_PACELINE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}

    done = subprocess.run(
        [shutil.which("paceline") or Path(sys.executable).with_name("paceline")],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )

    assert offered in done.stdout.split()


def test_it_runs_as_a_module_and_reads_a_pipe() -> None:
    argv = [sys.executable, "-m", "paceline", "detect", "-", "--tz", "UTC", "--seen-at", "2026-11-15T12:00:00Z"]

    done = subprocess.run(argv, input=b"Claude AI usage limit reached|1794758400", capture_output=True, check=False)

    assert done.returncode == 0
    assert b"Quota window spent" in done.stdout


def test_an_interrupted_demo_exits_with_130_and_no_traceback() -> None:
    argv = [sys.executable, "-u", "-m", "paceline", "demo"]

    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=accept_interrupts) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()  # it plays
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=30)

    assert demo.returncode == 130
    assert b"Traceback" not in errors
