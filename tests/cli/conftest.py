"""Shared by the tests of the command line: a runner with a fixed width and zone, and a workspace with a home."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.shell import shell as shell
from tests.slot_engines import end_slot_engines
from tests.warm_process import WarmProcess
from typer.testing import CliRunner

from paceline.cli.main import app
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.daemon.home import open_home
from paceline.store import OutcomeRecord

TERMINAL_ENV = {"TZ": "UTC", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
PATIENCE_SECONDS = 120


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner(env=TERMINAL_ENV)


class Workspace:
    """An empty folder with a home of its own, in which commands run."""

    def __init__(self, folder: Path, runner: CliRunner) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._runner = runner
        self._started: list[WarmProcess] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def plan(self, command: str, *units: str, name: str = "docs", head: str = "") -> Path:
        """Write a plan whose units run a shell script; `{id}` and `{prompt}` are filled in."""
        lines = [f"[campaign]\nname = {json.dumps(name)}\ncommand = {json.dumps(['sh', '-c', command])}\n{head}"]
        lines += [f'[[unit]]\nid = "{unit}"\nprompt = "do {unit}"' for unit in units]
        return self.write(f"{name}.toml", "\n".join(lines))

    def run(self, *argv: object, code: int = 0) -> Any:
        """Run a command in this process and check its exit code."""
        result = self._runner.invoke(app, [str(each) for each in argv])
        assert result.exit_code == code, result.output
        return result

    def run_json(self, *argv: object, code: int = 0) -> Any:
        """Run a command with --json, and return what it prints."""
        return json.loads(self.run(*argv, "--json", code=code).stdout)

    def start(self, *argv: object) -> WarmProcess:
        """Start a command in a process of its own, as from a shell."""
        env = {**os.environ, **TERMINAL_ENV, "PYTHONUNBUFFERED": "1"}
        process = WarmProcess(*map(str, argv), cwd=self.folder, env=env)
        self._started.append(process)
        return process

    def end_processes(self) -> None:
        """End the processes of the test, and the sessions that are left under their supervisors."""
        for process in self._started:
            process.kill()
            process.communicate()
        end_slot_engines(self.folder)
        for status in self.home.glob("spool/*/status.json"):
            pid = json.loads(status.read_text()).get("supervisor_pid")
            if pid is not None and str(self.home) in _command_line(pid):
                os.kill(pid, signal.SIGTERM)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def read_until(process: WarmProcess, words: str) -> str:
    """Read the output up to the line that contains the words."""
    assert process.stdout is not None
    seen = ""
    # A hung process fails its test, not the suite, and prints where it stands.
    timer = threading.Timer(PATIENCE_SECONDS, process.send_signal, [signal.SIGABRT])
    timer.start()
    try:
        for line in process.stdout:
            seen += line
            if words in line:
                return seen
    finally:
        timer.cancel()
    raise AssertionError(f"ended without {words!r}: {seen}{process.stderr.read() if process.stderr else ''}")


def finish(process: WarmProcess) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.wait(), out, err


@pytest.fixture
def workspace(tmp_path: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    for name in [name for name in os.environ if name.startswith(("PACELINE_", "ANTHROPIC_", "CLAUDE", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = Workspace(tmp_path, runner)
    yield made
    made.end_processes()


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def decode_lines(text: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in text.splitlines()]


def park(unit_count: int = 1, *, reason: str = "the quota window is spent", until: float | None = None) -> None:
    """Park units as an engine does: claim them, and record the outcome."""
    now = time.time()
    with open_home() as home:
        names = [f"park-{number}" for number in range(unit_count)]
        units = home.store.claim_units("docs", "", unit_count, attempt_ids=names, lease_until=now + 60, now=now)
        for unit in units:
            outcome = AttemptOutcome(ending="parked", reason=reason, resume_at=until or now + 3600)
            transition = transition_after(unit.counters, outcome, Policy(), now)
            home.store.record_outcomes(
                [OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition)], now=now
            )


@pytest.fixture
def bare_path(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only what the test puts there is installed."""
    bin_folder = workspace.folder / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    return bin_folder
