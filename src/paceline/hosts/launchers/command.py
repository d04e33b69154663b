"""Starting a worker with a command of the user: `systemd-run`, `kubectl apply`, a script."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.detached_worker import TOKEN_FILE, one_at_a_time
from paceline.hosts.launchers.interface import WorkerStart, run_program, start_digest, worker_home, write_private
from paceline.settings import HostSettings

COMMAND_SECONDS: Final = 120.0
"""How long a command may take: `kubectl apply` against a busy cluster needs half a minute."""
_STARTED_FILE: Final = "started"
_NOT_RUN: Final = 126
"""The first of the codes by which a shell says that a program could not be run, or was killed."""
_LONGEST_SHOWN: Final = 300
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class CommandLauncher:
    """Runs the commands `command`, `alive` and `stop` of a host on the leader's machine.

    `folder` is private to the host, in the home of the leader. It holds the file with the token. Without `alive`,
    `command` itself must start no second worker; a second one is refused by its leader.
    """

    def __init__(self, host: HostSettings, folder: Path, environ: Mapping[str, str]) -> None:
        self._host = host
        self._folder = folder
        self._environ = {name: value for name, value in environ.items() if name != "PACELINE_TOKEN"}

    def start(self, worker: WorkerStart) -> None:
        with one_at_a_time(self._folder):
            self._start(worker)

    def _start(self, worker: WorkerStart) -> None:
        is_alive = self.is_alive()
        if is_alive and self._started() in (None, start_digest(worker)):
            return
        if is_alive:
            self.stop()
        write_private(self._folder / TOKEN_FILE, f"{worker.token}\n")
        code, output = self._run(self._host.command, worker)
        if code != 0:
            raise LaunchFailed(f"{self._which(self._host.command)} ended with exit code {code}: {output}")
        write_private(self._folder / _STARTED_FILE, start_digest(worker))

    def is_alive(self) -> bool | None:
        if not self._host.alive:
            return None
        code, output = self._run(self._host.alive)
        if code < 0 or code >= _NOT_RUN:
            raise LaunchFailed(f"{self._which(self._host.alive)} could not be run (exit code {code}): {output}")
        return code == 0

    def stop(self) -> None:
        if not self._host.stop:
            return
        code, output = self._run(self._host.stop)
        if code != 0:
            raise LaunchFailed(f"{self._which(self._host.stop)} ended with exit code {code}: {output}")

    def describe(self) -> str:
        return f"command {self._host.command[0]}"

    def _started(self) -> str | None:
        """Return what the worker was started with; None if another machine has started it."""
        try:
            return (self._folder / _STARTED_FILE).read_text()
        except OSError:
            return None

    def _run(self, command: tuple[str, ...], worker: WorkerStart | None = None) -> tuple[int, str]:
        argv = [self._filled(word, worker) for word in command]
        silent = (
            f"{self._which(command)} did not return within {COMMAND_SECONDS:g} s; it must leave the worker "
            "behind, for example with systemd-run"
        )
        try:
            result = run_program(argv, seconds=COMMAND_SECONDS, silent=silent, environ=self._environ, merged=True)
        except OSError as error:
            reason = "there is no such program" if isinstance(error, FileNotFoundError) else error.strerror
            raise LaunchFailed(f"{self._which(command)} cannot be run: {reason}; install it, or correct it") from error
        return result.code, result.output.strip()[-_LONGEST_SHOWN:] or "it printed nothing"

    def _filled(self, word: str, worker: WorkerStart | None) -> str:
        host = self._host
        values = {
            "name": host.name,
            "url": worker.connect[0] if worker is not None else host.connect or "",
            "token_file": str(self._folder / TOKEN_FILE),
            "home": os.path.expanduser(worker.home if worker is not None else worker_home(host)),
            "labels": ",".join(host.labels),
        }
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)

    def _which(self, command: tuple[str, ...]) -> str:
        return f"host {self._host.name}: the command {shlex.join(command)[:_LONGEST_SHOWN]!r}"
