"""What the tests of the page do to a daemon, and `paceline up` as a process of its own for those that end one."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.api.conftest import Daemon

from paceline.core import ScopeStatus

PATIENCE_SECONDS = 20.0
WAITS_FOR_A_FILE = "while [ ! -e go-{id} ]; do sleep 0.05; done"
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")


def let_go(daemon: Daemon, *units: str) -> None:
    """Units that wait for a file go on."""
    for unit in units:
        (daemon.home.path.parent / f"go-{unit}").touch()


def page_of(daemon: Daemon) -> str:
    """The address that `paceline up` prints."""
    return f"{daemon.url}/?token={daemon.tokens.full}"


def status_of(daemon: Daemon, scope: str) -> ScopeStatus:
    """What the Governor says of it."""
    status = daemon.engine.limiter.scope_status(scope)
    assert status is not None
    return status


class UpProcess:
    """`paceline up`; started again, it is on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page = ""
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = self._command("up", "--port", str(self._port))
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if found := URL.search(line):
                self.page, self._port = found[0], int(found[1])
                return
        raise AssertionError(f"paceline up said no address: {''.join(said)}")

    def give(self, *argv: str) -> None:
        """Another command in the same home."""
        command = self._command(*argv)
        said, _ = command.communicate(timeout=PATIENCE_SECONDS)
        assert command.returncode == 0, said

    def _command(self, *argv: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "paceline", *argv],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "PACELINE_HOME": str(self.folder / "home")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=PATIENCE_SECONDS)
            self._process = None

    close = stop
