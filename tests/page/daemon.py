"""Helpers that act on a daemon, and `paceline up` as a separate process for tests that restart it."""

import os
import re
import signal
from pathlib import Path

from tests.daemon import Daemon
from tests.warm_process import WarmProcess

from paceline.core import ScopeStatus

PATIENCE_SECONDS = 60.0
WAIT_FOR_FILE = "while [ ! -e go-{id} ]; do sleep 0.05; done"
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")


def finish_units(daemon: Daemon, *units: str) -> None:
    """Create the files that these units wait for, so that they end."""
    for unit in units:
        (daemon.home.path.parent / f"go-{unit}").touch()


def page_address(daemon: Daemon) -> str:
    """Return the address that `paceline up` prints."""
    return f"{daemon.url}/?token={daemon.tokens.full}"


def status_of(daemon: Daemon, scope: str) -> ScopeStatus:
    """Return the status of a scope from the engine's limiter."""
    status = daemon.engine.limiter.scope_status(scope)
    assert status is not None
    return status


class UpProcess:
    """A process of `paceline up` that keeps its port when it is started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page = ""
        self._port = 0
        self._process: WarmProcess | None = None

    def start(self) -> None:
        self._process = self._command("up", "--port", str(self._port))
        assert self._process.stdout is not None
        printed = []
        for line in self._process.stdout:
            printed.append(line)
            if found := URL.search(line):
                self.page, self._port = found[0], int(found[1])
                return
        raise AssertionError(f"paceline up printed no address: {''.join(printed)}{self._process.stderr.read()}")

    def run(self, *argv: str) -> None:
        """Run another command in the same home."""
        command = self._command(*argv)
        printed, complaints = command.communicate(timeout=PATIENCE_SECONDS)
        assert command.returncode == 0, printed + complaints

    def _command(self, *argv: str) -> WarmProcess:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PACELINE_HOME": str(self.folder / "home")}
        return WarmProcess(*argv, cwd=self.folder, env=env)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=PATIENCE_SECONDS)
            self._process = None

    close = stop
