"""The command as a whole: help that teaches, clear words and exit code 2 for wrong use."""

import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.conftest import PATIENCE_SECONDS, Workspace
from tests.cli.shell import accept_interrupts
from typer.testing import CliRunner

from paceline.cli import commands
from paceline.cli.main import COMMANDS, MODULES, app


def test_the_version_is_the_packages(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.strip() == f"paceline {version('paceline')}"


def test_help_names_every_command_and_where_to_begin(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--help"])

    assert result.exit_code == 0
    for word in ("Start with paceline demo", "Exit codes", *NAMES):
        assert word in result.stdout
    assert "bool" not in result.stdout


NAMES = [name for names in COMMANDS.values() for name in names]
WITHOUT_JSON = {"exec", "export", "gateway", "keys", "token", "top", "worker"}


def test_every_command_has_one_module_and_every_module_a_command() -> None:
    modules = {module.name for module in pkgutil.iter_modules(commands.__path__)}

    assert modules == set(MODULES)
    assert sorted(name for names in MODULES.values() for name in names) == sorted(NAMES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_no_command_that_cannot_be_called(module: str) -> None:
    found = vars(import_module(f"{commands.__name__}.{module}"))
    groups = [each for name, each in found.items() if name.endswith("_app")]
    of_groups = {
        each.callback for group in groups for each in (*group.registered_commands, group.registered_callback) if each
    }
    names = {
        name.removesuffix("_command")
        for name, each in found.items()
        if name[0] != "_" and name.endswith("_command") and each not in of_groups
    }

    assert names | {name.removesuffix("_app") for name in found if name.endswith("_app")} == set(MODULES[module])


@pytest.mark.parametrize("command", NAMES)
def test_every_command_has_help(runner: CliRunner, command: str) -> None:
    result = runner.invoke(app, [command, "--help"])

    assert result.exit_code == 0
    assert "--json" in result.stdout or command in WITHOUT_JSON
    assert "bool" not in result.stdout


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
        _, errors = demo.communicate(timeout=PATIENCE_SECONDS)

    assert demo.returncode == 130
    assert b"Traceback" not in errors


def test_a_current_folder_that_was_deleted_is_named(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert workspace.run("gc", code=2).stderr == (
        "Error: the current folder was deleted; change to another one and run this again\n"
    )


def run_on_a_full_disk(*argv: str) -> "subprocess.CompletedProcess[str]":
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "paceline", *argv]
        return subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize("argv", [("list",), ("list", "--json"), ("status",), ("--help",), ("--version",)])
def test_output_that_cannot_be_written_is_one_line_on_stderr_and_exit_code_1(
    workspace: Workspace, argv: tuple[str, ...]
) -> None:
    done = run_on_a_full_disk(*argv)

    said = "Error: the output cannot be written: No space left on device; write it to another place\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_run_whose_output_cannot_be_written_still_runs_its_campaign(workspace: Workspace) -> None:
    done = run_on_a_full_disk("run", str(workspace.plan("true", "a", "b")))

    assert (done.returncode, done.stderr.count("\n"), workspace.run_json("list")["campaigns"][0]["units"]["done"]) == (
        1,
        1,
        2,
    )


def test_a_reader_that_has_gone_is_no_error(workspace: Workspace) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    argv = [sys.executable, "-m", "paceline", "list", "--json"]
    done = subprocess.run(argv, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)

    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("argv", ["status", "summary docs", "exec -- echo hi", "export -", "detect -"])
def test_streams_that_are_closed_are_empty(workspace: Workspace, argv: str) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    command = f"{sys.executable} -m paceline {argv}"
    closed = subprocess.run(["sh", "-c", f"{command} <&- >&-"], stderr=subprocess.PIPE, text=True, check=False)
    all_closed = subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], check=False)

    assert "Traceback" not in closed.stderr
    assert (closed.returncode, all_closed.returncode) == (0, 0)
