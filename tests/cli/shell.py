"""A daemon as a person starts it: `paceline up` in a process of its own."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.warm_process import WarmProcess

PATIENCE_SECONDS = 60


def accept_interrupts() -> None:
    """Let SIGINT end the process, also where the tests run in the background of a shell and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Shell:
    """Commands in a folder with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PACELINE_HOME": str(self.home), "TZ": "UTC"}
        self.started: list[WarmProcess | subprocess.Popen[str]] = []

    def start(self, *argv: str, **env: str) -> WarmProcess:
        process = WarmProcess(*argv, cwd=self.folder, env={**self.env, **env})
        self.started.append(process)
        return process

    def start_shell(self, command: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def run(self, *argv: str, code: int = 0, **env: str) -> tuple[str, str]:
        process = self.start(*argv, **env)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == code, out + err
        return out, err

    def up(self, *argv: str, **env: str) -> tuple[WarmProcess, str]:
        """The daemon once it serves, and the line it printed."""
        process = self.start("up", "--port", "0", *argv, **env)
        assert process.stdout is not None
        impatience = threading.Timer(PATIENCE_SECONDS, process.kill)
        impatience.start()
        line = process.stdout.readline()
        impatience.cancel()
        assert line, process.communicate()
        return process, line.strip()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    for process in made.started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def url_of(line: str) -> str:
    return line[line.index("http://") :]
